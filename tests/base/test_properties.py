"""Properties files as Java reads them, with the line of each key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.base.properties import Property, parse_assignment, parse_properties, properties_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# comment\n  ! another\n\n   \n", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t:\f1", {"a": "1"}),
        ("a==1", {"a": "=1"}),
        ("a", {"a": ""}),
        ("=1", {"": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n  2,\\\n  3\nb=x", {"a": "1,2,3", "b": "x"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("\\", {}),
        ("a\\ b\\:c\\=d=e", {"a b:c=d": "e"}),
        ("a=\\t\\n\\r\\f\\u00e9\\q", {"a": "\t\n\r\f\u00e9q"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert {key: item.value for key, item in parse_properties(text, "file").items()} == expected


def test_places() -> None:
    text = "# one\na=1\nb=1\\\n2\n\nc=3\n"
    places = {key: item.place for key, item in parse_properties(text, "server.properties").items()}
    assert places == {"a": "server.properties:2", "b": "server.properties:3", "c": "server.properties:6"}


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^file:2: .*four hexadecimal"):
        parse_properties("a=1\nb=\\u12x4", "file")
    with pytest.raises(ConfigError, match=r"^file:1: half a surrogate pair"):
        parse_properties("b=\\ud800", "file")


def test_assignments() -> None:
    assert parse_assignment("node.id = 3") == ("node.id", Property("3", "--set", 0))
    assert parse_assignment("a=b=c") == ("a", Property("b=c", "--set", 0))
    assert parse_assignment("a=")[1].place == "--set"
    for text in ("a", "=1", " =1"):
        with pytest.raises(ConfigError, match="expected key=value"):
            parse_assignment(text)


@given(st.text(alphabet=" \t\f\r\n\\=:#!uabc019\u00e9", max_size=60))
def test_any_text_is_parsed_or_raises_config_error(text: str) -> None:
    try:
        properties = parse_properties(text, "file")
    except ConfigError:
        return
    lines = text.count("\n") + text.count("\r") + 1
    assert all(1 <= item.line <= lines for item in properties.values())


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_escaping_round_trip(expected: dict[str, str]) -> None:
    def escape(text: str) -> str:
        units = text.encode("utf-16-be")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in expected.items())

    found = {key: item.value for key, item in parse_properties(text, "file").items()}
    assert found == expected


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_written_text_is_ascii_and_parses_to_the_same(values: dict[str, str]) -> None:
    text = properties_text(values)
    assert text.isascii()
    assert {key: written.value for key, written in parse_properties(text, "test").items()} == values
