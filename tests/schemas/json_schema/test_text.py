"""JSON text as Jackson prints it."""

import pytest

from rookery.schemas.json_schema.text import key_of, print_compact, print_sorted, read


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (' { "b" : [ 1 , 2 ] , "a" : { } } ', '{"b":[1,2],"a":{}}'),
        ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
        ("1", "1"),
        ("1.0", "1.0"),
        ("1.10", "1.10"),
        ("-0", "0"),
        ("-0.0", "0.0"),
        ("1e5", "1E+5"),
        ("0e3", "0E+3"),
        ("1E400", "1E+400"),
        ("0.0000001", "1E-7"),
        ("0.000001", "0.000001"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("123456789.123456789123456789", "123456789.123456789123456789"),
        (r'"\u00e9\ud83d\ude00\/"', '"é😀/"'),
        (r'"\u0008\u000a\u001f\u007f\u2028"', '"\\b\\n\\u001F\x7f\u2028"'),
        (r'"\\u001f\""', r'"\\u001f\""'),
    ],
)
def test_print(text: str, printed: str) -> None:
    assert print_compact(text) == printed
    assert print_compact(printed) == printed


def test_print_sorted() -> None:
    assert print_sorted('{"b":[{"d":1.0,"c":2}],"a":{}}') == '{"a":{},"b":[{"c":2,"d":1.0}]}'


def test_read_has_floats() -> None:
    assert read("[1.5,1E400,1]") == [1.5, float("inf"), 1]


def test_keys() -> None:
    assert key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1})
    assert len({key_of(value) for value in (1, True, "1", 1.0, None)}) == 5
