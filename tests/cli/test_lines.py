import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.cli.lines import LineError, LineFormat, ParsedLine, Record, compile_format, render_json
from rookery.client.consume.records import ConsumerRecord


def record(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Record:
    return ConsumerRecord("topic", 3, 42, 1700000000123, 0, key, value, headers, 0)


@pytest.mark.parametrize(
    ("line_format", "line", "expected"),
    [
        (LineFormat(), b"a:b", ParsedLine(None, b"a:b", ())),
        (LineFormat(), b"", ParsedLine(None, b"", ())),
        (LineFormat(key_separator=b":"), b"k:v:w", ParsedLine(b"k", b"v:w", ())),
        (LineFormat(key_separator=b"::"), b"k::", ParsedLine(b"k", b"", ())),
        (LineFormat(key_separator=b":", null_marker=b"NULL"), b"k:NULL", ParsedLine(b"k", None, ())),
        (LineFormat(key_separator=b":", null_marker=b"NULL"), b"NULL:v", ParsedLine(None, b"v", ())),
        (LineFormat(null_marker=b""), b"", ParsedLine(None, None, ())),
        (
            LineFormat(key_separator=b":", headers_separator=b"\t", null_marker=b"-"),
            b"a=1,b=-,c=x=y\tk:v",
            ParsedLine(b"k", b"v", (("a", b"1"), ("b", None), ("c", b"x=y"))),
        ),
        (LineFormat(headers_separator=b"|"), b"|v", ParsedLine(None, b"v", ())),
    ],
)
def test_lines(line_format: LineFormat, line: bytes, expected: ParsedLine) -> None:
    assert line_format.parse(line) == expected


@pytest.mark.parametrize(
    ("line_format", "line", "message"),
    [
        (LineFormat(key_separator=b"\t"), b"no key", r"no key separator '\\t' in 'no key'"),
        (LineFormat(headers_separator=b"|"), b"v", "no headers separator"),
        (LineFormat(headers_separator=b"|"), b"a,b=1|v", "the header 'a' must have the form name=value"),
    ],
)
def test_lines_without_required_parts(line_format: LineFormat, line: bytes, message: str) -> None:
    with pytest.raises(LineError, match=message):
        line_format.parse(line)


def test_every_field_of_a_format() -> None:
    render = compile_format("%t/%p@%o %T %k=%v [%h] 100%%%%\n")
    assert render(record(headers=(("a", b"1"), ("b", None)))) == b"topic/3@42 1700000000123 k=v [a=1,b=null] 100%%\n"


def test_nulls_and_bytes_that_are_not_text() -> None:
    assert compile_format("%k|%v", b"NULL")(record(None, b"\xff\x00")) == b"NULL|\xff\x00"


@pytest.mark.parametrize("template", ["%", "a%", "%x", "%k %"])
def test_unknown_fields_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="is not a field"):
        compile_format(template)


@given(st.text(st.characters(exclude_characters="%", codec="utf-8")), st.binary())
def test_text_around_the_fields_is_kept(text: str, value: bytes) -> None:
    assert compile_format(f"{text}%v{text}")(record(value=value)) == text.encode() + value + text.encode()


@given(st.binary(min_size=1).filter(lambda data: b":" not in data), st.binary())
def test_consumed_lines_can_be_produced_again(key: bytes, value: bytes) -> None:
    line = compile_format("%k:%v")(record(key, value))
    assert LineFormat(key_separator=b":").parse(line) == ParsedLine(key, value, ())


def test_json_is_one_line_with_all_fields() -> None:
    line = render_json(record(b"\xff", "ü\n".encode(), (("h", None), ("i", b"\xfe"))))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "topic",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1700000000123,
        "timestamp_type": "CreateTime",
        "key_base64": "/w==",
        "value": "ü\n",
        "headers": [{"name": "h", "value": None}, {"name": "i", "value_base64": "/g=="}],
    }
