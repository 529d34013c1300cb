import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.security.jaas import LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_the_example_of_kafkas_documentation() -> None:
    text = f'{PLAIN} required\n    username="alice"\n    password="alice-secret";'
    assert parse_jaas(text) == LoginModule(PLAIN, "required", {"username": "alice", "password": "alice-secret"})


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("  M\tREQUIRED\n;\n ", {}),
        ("M required a=b c = d-e_f$g.h9;", {"a": "b", "c": "d-e_f$g.h9"}),
        ("""M required a='b"c' d="e'f";""", {"a": 'b"c', "d": "e'f"}),
        (r'M required a="\"\\\t\101\60\400\x";', {"a": '"\\\tA0 0x'}),
        ('M required "a"="b";', {"a": "b"}),
        ('M required a="";', {"a": ""}),
        ('M required a="b"c="d";', {"a": "b", "c": "d"}),
        ('M required a="//" /* b="c" */ d="e" // f="g";\n h="i" / more\n;', {"a": "//", "d": "e", "h": "i"}),
        ('M required a="1" a="2";', {"a": "2"}),
        ("M required a=größe;", {"a": "größe"}),
        ('M required a="x;y=z #1";', {"a": "x;y=z #1"}),
    ],
)
def test_tokens_are_those_of_java(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == LoginModule("M", "required", options)


@pytest.mark.parametrize("flag", ["required", "requisite", "sufficient", "optional", "Required", "OPTIONAL"])
def test_control_flags_in_any_case(flag: str) -> None:
    assert parse_jaas(f"M {flag};").control_flag == flag.lower()


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "its end", "the class of a login module"),
        (";", "character 1:", "the class of a login module"),
        ("M", "its end", "required, requisite, sufficient, optional"),
        ('M username="secret";', "character 3:", "required, requisite, sufficient, optional"),
        ("M required", "its end", "semicolon"),
        ('M required a="secret"', "its end", "semicolon"),
        ("M required a;", "character 13:", "key=value"),
        ("M required a=;", "character 14:", "needs a value"),
        ("M required a=1secret;", "character 14:", "begin with a letter"),
        ("M required a=-;", "character 14:", "begin with a letter"),
        ("M required a=secret@secret;", "character 20:", "without quotes"),
        ("M required a=secret secret;", "character 27:", "key=value"),
        ('M required a="secret;', "character 14:", "a quote is not closed"),
        ('M required a="secret\n";', "character 14:", "a quote is not closed"),
        ("M required a=/secret/path;", "its end", "needs a value"),
        ("M required; N required;", "character 13:", "only one login module"),
    ],
)
def test_an_error_has_the_position_and_not_the_text(text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config ") as caught:
        parse_jaas(text)
    assert where in str(caught.value)
    assert what in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_login_module_shows_no_values() -> None:
    shown = repr(parse_jaas('M required username="alice" password="secret";'))
    assert "password" in shown
    assert "alice" not in shown
    assert "secret" not in shown


def _quoted(text: str, quote: str) -> str:
    for plain, escaped in (("\\", "\\\\"), (quote, "\\" + quote), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return quote + text + quote


@given(
    st.dictionaries(st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$.-]*", fullmatch=True), st.text()),
    st.sampled_from("\"'"),
    st.sampled_from([" ", "\n  ", " /* and */ ", "// and\n"]),
)
def test_any_values_round_trip(options: dict[str, str], quote: str, between: str) -> None:
    text = between.join(["M", "required", *(f"{key}={_quoted(value, quote)}" for key, value in options.items()), ";"])
    assert parse_jaas(text).options == options


@given(st.text(st.sampled_from("Mm required;=\"'\\/*\n\t1.-@\x00é")))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_jaas(text)
