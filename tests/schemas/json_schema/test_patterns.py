import pytest

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.json_schema.patterns import compile_pattern


def test_a_pattern_matches_anywhere_in_a_text() -> None:
    assert compile_pattern("^a+$")("aaa")
    assert compile_pattern("b")("abc")
    assert not compile_pattern("^b")("abc")


def test_a_pattern_that_only_python_accepts_is_valid_but_never_matched() -> None:
    """Matching this text would take exponential time."""
    assert not compile_pattern("^(?P<x>a+)+(?P=x)$")("a" * 60 + "!")


def test_an_invalid_pattern_is_rejected() -> None:
    with pytest.raises(InvalidSchemaError, match="is not a valid pattern"):
        compile_pattern("(")
