import pytest
import typer

from rookery.cli.option_values import parse_pairs, unescape


def test_pairs() -> None:
    assert parse_pairs(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_texts_that_are_no_pairs(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_pairs([text], "--set")


@pytest.mark.parametrize(
    ("text", "expected"),
    [(r"\t", "\t"), (r"a\nb\r\0", "a\nb\r\0"), (r"\\t", r"\t"), (r"\x", r"\x"), ("\\", "\\"), ("ü%", "ü%")],
)
def test_escapes(text: str, expected: str) -> None:
    assert unescape(text) == expected
