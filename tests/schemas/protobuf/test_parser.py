import re

import pytest

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import Option, Span, Word
from rookery.schemas.protobuf.parser import read_file

SYNTAX_ERRORS = [
    ("message", "line 1, column 8: expected a name, found the end of the text"),
    ("message M {", "line 1, column 12: expected a name, found the end of the text"),
    ("message M { string a = ; }", "line 1, column 24: expected an integer, found ';'"),
    ("message M { string a = 1.5; }", "line 1, column 24: expected an integer, found '1.5'"),
    ("message M { string a = 1 }", "line 1, column 26: expected ';', found '}'"),
    ("message M {}\n}", "line 2, column 1: expected 'package' or 'import'"),
    ('syntax = "proto4";', 'line 1, column 10: unknown syntax "proto4"'),
    ('message M {}\nsyntax = "proto3";', "line 2, column 1: expected 'package'"),
    ("package a; package b;", "the package is given more than once"),
    ("message M {\n  string # = 1;\n}", "line 2, column 10: unexpected '# = 1;'"),
    ('option a = "x;\nmessage M {}', "line 1, column 12: unexpected '\"x;'"),
    ('option a = "\\q";', "line 1, column 12: \\q is not a valid escape sequence"),
    ('option a = "\\777";', "\\777 is not a valid escape sequence"),
    ("/* never closed", "line 1, column 1: unexpected '/* never closed'"),
    ("option a = -b;", "line 1, column 13: expected a number, found 'b'"),
    ("option a = { b 1 };", "line 1, column 16: expected ':', found '1'"),
    ("enum E { A; }", "line 1, column 11: expected '=', found ';'"),
    ("message M { " * 65, "more than 64 levels of nesting"),
    ("option a = " + "[" * 65, "more than 64 levels of nesting"),
    ("option (a)" + ".(b)" * 5_000 + " = 1;", "more than 64 levels of nesting"),
    ("option a" + ".b" * 5_000 + " = 1;", "more than 64 levels of nesting"),
    ("option (a)" + ".b" * 40 + " = " + "{ c: " * 40, "more than 64 levels of nesting"),
    ("package a" + ".b" * 64 + ";", "more than 64 levels of nesting"),
    ("message M { optional group G = 1 { " * 40, "more than 64 levels of nesting"),
    ("message M { int32 a = 0x" + "f" * 5_000 + "; }", "does not fit into 32 bits"),
    ("message M { int32 a = " + "9" * 5_000 + "; }", "expected an integer"),
    ('import "\\377";', "line 1, column 8: the string is not UTF-8"),
    ('message M { reserved "\\377"; }', "line 1, column 22: the string is not UTF-8"),
    ('message M { int32 a = 1 [json_name = "\\377"]; }', '"a": the JSON name is not UTF-8'),
    ("message " + "M" * 513 + " {}", "line 1, column 9: a name with more than 512 characters"),
    ("service S { rpc R (A) (B); }", "expected 'returns', found '('"),
    ("message M { optional int32 a = 1 [default = {}]; }", "not a plain value"),
    ("Hello, world!", "line 1, column 13: unexpected '!'"),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX_ERRORS, ids=[row[0][:40] for row in SYNTAX_ERRORS])
def test_errors_contain_the_position(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=re.escape(message)):
        read_file(text)


def _value(text: str) -> object:
    return read_file(f"option a = {text};").options[0].value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", Word("true")),
        ("-0x1F", Word("-0x1F")),
        ("1.50e+3f", Word("1.50e+3f")),
        (".5", Word(".5")),
        ("-inf", Word("-inf")),
        ("SOME.NAME", Word("SOME.NAME")),
        ('"a" \'b\' "c"', "abc"),
        ('"\\x41\\102\\u00e9\\U0001F600\\t\\\\\\""', 'AB\u00e9\U0001f600\t\\"'),
        ('"\\303\\251"', "\u00e9"),
        ('"\\303" "\\251"', "\u00e9"),
        ('"\\x4" "1"', "\x041"),
        ('"\\377"', "\udcff"),
        ('"// no comment"', "// no comment"),
        ("[1, 'x', { y: 2 }]", (Word("1"), "x", {"y": Word("2")})),
        (
            "{ a: 1, b { c: 2 } ; d < e: 3 > [f.g/h]: 4 }",
            {"a": Word("1"), "b": {"c": Word("2")}, "d": {"e": Word("3")}, "[f.g/h]": Word("4")},
        ),
        ("{ a: 1 a: 2 a: 3 }", {"a": (Word("1"), Word("2"), Word("3"))}),
        ("{}", {}),
    ],
)
def test_values(text: str, value: object) -> None:
    assert _value(text) == value


def test_a_key_may_be_repeated_very_often() -> None:
    """A new list for each value would take quadratic time."""
    assert _value(f"{{ {'a: 1 ' * 40_000} a: [2, 3] }}") == {"a": (*(Word("1"),) * 40_000, Word("2"), Word("3"))}


def test_names_of_options() -> None:
    options = read_file("option (a.b).c.(d).e = 1; option f.g = 2; option (.h) = 3;").options
    inner = Option("c", Option("d", Option("e", Word("1")), is_extension=True))
    assert options == (Option("a.b", inner, True), Option("f.g", Word("2")), Option(".h", Word("3"), True))


def test_comments_may_be_anywhere() -> None:
    text = "message /* a */ M { // b\n repeated /*c*/ string a /**/ = /* d\n\n */ 1 [ // e\n packed = /**/ true ] ; }"
    assert read_file(text) == read_file("message M { repeated string a = 1 [packed = true]; }")


def test_empty_statements_are_ignored() -> None:
    text = ';syntax = "proto3";; message M { ; string a = 1;; enum E { ; A = 0; } ; } ; service S { ; };'
    assert read_file(text) == read_file('syntax = "proto3"; message M { string a = 1; enum E { A = 0; } } service S {}')


def test_a_byte_order_mark_is_ignored() -> None:
    assert read_file("\ufeffmessage M {}") == read_file("message M {}")


def test_ranges() -> None:
    message = read_file(
        "message M { reserved 1, 0x3 to 07, 9 to max; enum E { reserved -5 to -1, 8 to max; A = 0; } }"
    ).messages[0]
    assert message.reserved[0].values == (1, Span(3, 7), Span(9, 536_870_911))
    assert message.enums[0].reserved[0].values == (Span(-5, -1), Span(8, 2_147_483_647))


def test_members_have_positions() -> None:
    message = read_file("message M {\n  string a = 1;\n\n  oneof o { int32 b = 2; }\n}").messages[0]
    assert [str(each.position) for each in (message.fields[0], message.oneofs[0], message.oneofs[0].fields[0])] == [
        "line 2, column 3",
        "line 4, column 9",
        "line 4, column 13",
    ]
