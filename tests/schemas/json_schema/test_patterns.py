import pytest

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.json_schema.patterns import compile_pattern


def test_patterns_are_looked_for_in_a_text() -> None:
    assert compile_pattern("^a+$")("aaa")
    assert compile_pattern("b")("abc")
    assert not compile_pattern("^b")("abc")


def test_what_only_python_understands_is_taken_and_never_tried() -> None:
    """Tried on this text, the pattern would take for ever."""
    assert not compile_pattern("^(?P<x>a+)+(?P=x)$")("a" * 60 + "!")


def test_what_nobody_understands_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="is no pattern"):
        compile_pattern("(")
