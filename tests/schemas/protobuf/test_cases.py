import pytest

from rookery.schemas.bounds import INCOMPATIBILITIES_MAX
from rookery.schemas.protobuf import check
from rookery.schemas.protobuf.differences import DESCRIPTIONS, compare
from tests.schemas.protobuf.cases import enums, fields, imports, messages, oneofs, types
from tests.schemas.protobuf.cases.case import Case, Imports, parse_side

CASES = [case for module in (messages, enums, fields, types, oneofs, imports) for case in module.CASES]


def _rule(case: Case) -> str:
    return case.rule


@pytest.mark.parametrize("case", CASES, ids=_rule)
def test_differences(case: Case) -> None:
    writer, reader = parse_side(case.writer), parse_side(case.reader)
    found = [f"{each.kind} {each.path}" for each in compare(writer.side, reader.side)]
    assert sorted(found) == sorted(case.differences)
    harmful = [each for each in case.differences if each.split()[0] in DESCRIPTIONS]
    assert sorted(f"{each.kind} {each.path}" for each in check(reader, writer)) == sorted(harmful)


@pytest.mark.parametrize("case", CASES, ids=_rule)
def test_the_normal_forms_differ_in_the_same_way(case: Case) -> None:
    """The normal form drops only differences that do not count."""
    writer, reader = parse_side(case.writer), parse_side(case.reader)
    found = {(each.kind, each.path) for each in check(reader.normalized(), writer.normalized())}
    assert found == {(each.kind, each.path) for each in check(reader, writer)}


def test_the_table_has_every_kind() -> None:
    kinds = {each.split()[0] for case in CASES for each in case.differences}
    assert kinds == {
        *DESCRIPTIONS,
        *("MESSAGE_ADDED", "MESSAGE_MOVED", "ENUM_ADDED", "ENUM_REMOVED", "ENUM_CONST_ADDED", "ENUM_CONST_CHANGED"),
        *("ENUM_CONST_REMOVED", "FIELD_ADDED", "FIELD_REMOVED", "FIELD_NAME_CHANGED", "ONEOF_ADDED", "ONEOF_REMOVED"),
        *("FIELD_STRING_OR_BYTES_LABEL_CHANGED", "ONEOF_FIELD_ADDED", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL"),
    }


def test_rules_are_unique() -> None:
    rules = [case.rule for case in CASES]
    assert len(rules) == len(set(rules))
    assert len(rules) >= 200


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (
            "message M { string a = 1; }",
            "message M { int32 a = 1; }",
            '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/1\''
            ' in the new schema does not match its kind in the old schema"}',
        ),
        (
            "package a; message M {}",
            "package b; message M {}",
            '{errorType:"PACKAGE_CHANGED", description:"The package at \'#/\' in the new schema'
            ' does not match the package in the old schema"}',
        ),
        (
            "message M {} message N {}",
            "message M {}",
            '{errorType:"MESSAGE_REMOVED", description:"The new schema is missing a MESSAGE type at path \'#/N\''
            ' in the old schema"}',
        ),
        (
            'syntax = "proto2"; message M {}',
            'syntax = "proto2"; message M { required string a = 1; }',
            '{errorType:"REQUIRED_FIELD_ADDED", description:"A required field  at path \'#/M/1\' in the new schema'
            ' is missing in the old schema"}',
        ),
    ],
)
def test_messages(writer: str, reader: str, message: str) -> None:
    """The messages are those of Confluent's registry, including the quotes."""
    found = check(parse_side(reader), parse_side(writer))
    assert [each.describe("new", "old") for each in found] == [message]


def test_imported_messages_that_all_contain_each_other_take_no_time() -> None:
    names = [f"M{index}" for index in range(14)]
    body = "".join(f"{name} f{index} = {index + 1}; " for index, name in enumerate(names))
    case = "".join(f"message {name} {{ {body} %s last = 100; }} " for name in names)
    text = 'import "other.proto"; message M { M0 m = 1; }'
    sides = [Imports(text, {"other.proto": case.replace("%s", kind)}) for kind in ("string", "int32")]
    found = compare(parse_side(sides[1]).side, parse_side(sides[0]).side)
    assert {each.path for each in found if each.kind == "FIELD_SCALAR_KIND_CHANGED"} == {
        f"#/{name}/100" for name in names
    }


def test_a_long_chain_of_imported_messages() -> None:
    count = 1_000
    chain = "".join(f"message M{index} {{ M{index + 1} next = 1; }} " for index in range(count))
    text = 'import "other.proto"; message M { M0 m = 1; }'
    sides = [
        parse_side(Imports(text, {"other.proto": f"{chain} message M{count} {{ {kind} last = 1; }}"}))
        for kind in ("string", "int32")
    ]
    assert check(sides[0], sides[0]) == []
    found = [f"{each.kind} {each.path}" for each in compare(sides[1].side, sides[0].side)]
    ways = ["#/M/1", *(f"#/M{index}/1" for index in range(count))]
    assert found == [
        f"FIELD_SCALAR_KIND_CHANGED #/M{count}/1",
        *(f"FIELD_NAMED_TYPE_CHANGED {way}" for way in reversed(ways)),
    ]


def test_many_messages_of_an_import_that_changed_much() -> None:
    """Each message has all the differences of the import."""

    def side(kind: str) -> Imports:
        fields = "".join(f"{kind} f{index} = {index + 1}; " for index in range(2_000))
        messages = "".join(f"message M{index} {{ Other other = 1; }} " for index in range(2_000))
        return Imports(f'import "other.proto"; {messages}', {"other.proto": f"message Other {{ {fields} }}"})

    old, new = parse_side(side("string")), parse_side(side("int32"))
    assert len(check(new, old)) == INCOMPATIBILITIES_MAX
    assert len(compare(old.side, new.side)) == 4_000


def test_messages_that_moved() -> None:
    names = [f"M{index}" for index in range(2_000)]
    texts = ["".join(f"message {name} {{}} " for name in order) for order in (names, names[1:] + names[:1])]
    found = compare(parse_side(texts[0]).side, parse_side(texts[1]).side)
    assert {each.kind for each in found} == {"MESSAGE_MOVED"}
    assert len(found) == 2_000
