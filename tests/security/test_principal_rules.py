"""`ssl.principal.mapping.rules` as Apache Kafka applies them."""

import pytest

from rookery.base.errors import ConfigError
from rookery.security.principal_rules import PrincipalRules

NAME = "CN=Alice Bob,OU=Service Users,O=Acme,C=DE"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", NAME),
        (" DEFAULT ", NAME),
        ("RULE:^CN=(.*?),OU=Service Users.*$/$1/", "Alice Bob"),
        ("RULE:^CN=(.*?),OU=Service Users.*$/$1/L", "alice bob"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "ALICE BOB@SERVICE USERS"),
        ("RULE:^CN=Unknown.*$/x/,DEFAULT", NAME),
        ("RULE:^CN=Other.*$/x/ , RULE:^CN=(.*?) .*$/$1/L, DEFAULT", "alice"),
        ("RULE:^.*C=(\\w+)$/$1$9/", "DE$9"),
        ("RULE:^.*C=(\\w+)$/$12/", "DE2"),
        ("RULE:^CN=(.*?),.*$/a\\/$1/", "a/Alice Bob"),
        ("RULE:^.*$/a,b/,DEFAULT", "a,b"),
        ("RULE:CN=Other/x/", None),
        ("", None),
    ],
)
def test_rules(rules: str, expected: str | None) -> None:
    assert PrincipalRules.parse(rules).apply(NAME) == expected


@pytest.mark.parametrize("rules", ["default", "RULE:x", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "DEFAULT,RULE:*/b/L"])
def test_malformed_rules_are_rejected(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: .*write DEFAULT, or RULE:"):
        PrincipalRules.parse(rules)
