"""`sasl.kerberos.principal.to.local.rules` as Apache Kafka applies them. The conformance suite compares both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.security.kerberos_rules import KEY, KerberosRules, NoLocalNameError

REALM = "EXAMPLE.COM"

# Rules separated by commas, a principal, and its user; None if there is none.
TABLE: tuple[tuple[str, str, str | None], ...] = (
    ("DEFAULT", f"alice@{REALM}", "alice"),
    ("DEFAULT", f"alice/admin@{REALM}", "alice"),
    ("DEFAULT", "alice@OTHER.COM", None),
    ("DEFAULT", "alice", "alice"),
    ("DEFAULT", "alice/admin", "alice/admin"),
    ("DEFAULT", f"a/b/c@{REALM}", None),
    ("DEFAULT", f"a@b@{REALM}", None),
    ("DEFAULT", f"@{REALM}", ""),
    ("RULE:[1:$1]", f"Alice@{REALM}", "Alice"),
    ("RULE:[1:$1]/L", f"Alice@{REALM}", "alice"),
    ("RULE:[1:$1]L", f"Alice@{REALM}", "alice"),
    ("RULE:[1:$1]/U", f"Alice@{REALM}", "ALICE"),
    ("RULE:[1:$1]/", f"Alice@{REALM}", "Alice"),
    ("RULE:[1:$1]", f"alice/admin@{REALM}", None),
    ("RULE:[2:$1]", f"alice@{REALM}", None),
    ("RULE:[2:$2.$1.$0]", f"alice/admin@{REALM}", f"admin.alice.{REALM}"),
    ("RULE:[2:$1;$2](^.*;admin$)s/;admin$///L,DEFAULT", f"Alice/admin@{REALM}", "alice"),
    ("RULE:[2:$1;$2](^.*;admin$)s/;admin$//,DEFAULT", f"alice/user@{REALM}", "alice"),
    ("RULE:[1:$1@$0](.*@OTHER\\.COM)s/@.*//,DEFAULT", "bob@OTHER.COM", "bob"),
    ("RULE:[1:$1@$0](.*@OTHER\\.COM)s/@.*//,DEFAULT", "bob@OTHERxCOM", None),
    ("RULE:[1:$1@$0](other)s/@.*//", f"alice@{REALM}", None),
    ("RULE:[1:$1@$0]", f"alice@{REALM}", None),
    ("RULE:[1:$1@$0](.*)s/alice/bob/,DEFAULT", f"alice@{REALM}", None),
    ("RULE:[1:$1]s/a/b/", f"banana@{REALM}", "bbnana"),
    ("RULE:[1:$1]s/a/b/g", f"banana@{REALM}", "bbnbnb"),
    ("RULE:[1:$1]s/a/B/g/L", f"banana@{REALM}", "bbnbnb"),
    ("RULE:[1:$1]s/z/b/g", f"banana@{REALM}", "banana"),
    ("RULE:[1:$1]s/.*/x/g", f"banana@{REALM}", "xx"),
    ("RULE:[1:$1]s/x*/-/g", f"axb@{REALM}", "-a--b-"),
    ("RULE:[1:$1](.*)s/^(a+)(.*)$/$2$1/", f"aab@{REALM}", "baa"),
    ("RULE:[1:$1](.*)s/^(a+)(.*)$/$23/", f"aab@{REALM}", "b3"),
    ("RULE:[1:$1](.*)s/^(a)|(b)$/<$1$2>/g", f"ab@{REALM}", "<a><b>"),
    ("RULE:[1:$1](.*)s/a/\\$1\\\\/", f"ab@{REALM}", "$1\\b"),
    ("RULE:[1:$1](.*)s/b/$0$0/", f"ab@{REALM}", "abb"),
    ("RULE:[1:x$1y$1](xay.)s/y//", f"a@{REALM}", "xaa"),
    ("RULE:[1:]", f"a@{REALM}", ""),
    ("RULE:[2:$1](kafka),RULE:[1:$1]", f"kafka/host@{REALM}", "kafka"),
    ("RULE:[01:$01]", f"a@{REALM}", "a"),
    ("RULE:[3:$1],DEFAULT", f"a/b@{REALM}", "a"),
    ("RULE:[1:$1](\\w+)", f"ä@{REALM}", None),
    ("RULE:[1:$1](.)/U", f"ß@{REALM}", "SS"),
    ("", f"a@{REALM}", None),
)
WRONG = (
    *("default", "DEFAULT/L", " DEFAULT", "RULE", "RULE:[1]", "RULE:[:$1]", "RULE:[x:$1]", "RULE:[1:$1", "RULE:[0:x]"),
    *("RULE:[1:$1](", "RULE:[1:$1](()", "RULE:[1:$1](*)", "RULE:[1:$1]s/a/b", "RULE:[1:$1]s/a/b/G", "RULE:[1:$1]/X"),
    *("RULE:[1:$1]s/(/b/", "RULE:[1:$1]s/a/$1/", "RULE:[1:$1]s/a/$/", "RULE:[1:$1]s/a/\\/", "RULE:[1:$1]s/a/${x}/"),
    *("RULE:[1:$2]", "RULE:[1:$]", "RULE:[2:$1$x]", "RULE:[1:$1]/LU", "RULE:[99999999999:$1]"),
)


def parse(rules: str) -> KerberosRules:
    return KerberosRules.parse([rule for rule in rules.split(",") if rule])


@pytest.mark.parametrize(("rules", "principal", "expected"), TABLE)
def test_rules(rules: str, principal: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(NoLocalNameError):
            parse(rules).local_name(principal, REALM)
    else:
        assert parse(rules).local_name(principal, REALM) == expected


def test_a_principal_without_a_rule_is_named() -> None:
    with pytest.raises(NoLocalNameError, match=r"no rule of sasl\.kerberos.* applies to 'alice@OTHER'"):
        parse("DEFAULT").local_name("alice@OTHER", REALM)
    with pytest.raises(NoLocalNameError, match="makes 'a@OTHER' of 'a@OTHER', which is not a simple name"):
        parse("RULE:[1:$1@$0],DEFAULT").local_name("a@OTHER", REALM)


@pytest.mark.parametrize("rule", WRONG)
def test_malformed_rules_are_rejected_with_their_key(rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KerberosRules.parse(["DEFAULT", rule])
    assert str(caught.value).startswith(f"{KEY}: ")
    assert repr(rule) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text("RULE:[]12$0()s/ag.*LU\\{}D@;", max_size=24), st.text("ab1/@.\\$", max_size=10))
def test_a_rule_is_rejected_or_gives_simple_names(rule: str, principal: str) -> None:
    try:
        rules = KerberosRules.parse([f"RULE:[1:{rule}", "DEFAULT"])
    except ConfigError:
        return
    try:
        name = rules.local_name(principal, "ab")
    except NoLocalNameError:
        return
    assert "@" not in principal or not {"/", "@"} & set(name)
