from typing import Any

import pytest

from rookery.schemas.avro import AvroSchema, check, compatibility, parse
from rookery.schemas.bounds import INCOMPATIBILITIES_MAX, TOO_COMPLEX
from tests.schemas.avro.resolution_cases import AMBIGUOUS, BRANCH, CASES, Case
from tests.schemas.avro.shapes import array, enum, field, fixed, one, parse_shape, record


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_schema_resolution(case: Case) -> None:
    found = check(parse_shape(case.reader), parse_shape(case.writer))
    assert tuple((each.kind, each.path) for each in found) == case.found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_every_schema_reads_itself(case: Case) -> None:
    """Except if an alias is the name of another field."""
    for schema in (case.reader, case.writer):
        found = check(parse_shape(schema), parse_shape(schema))
        assert {each.kind for each in found} <= {AMBIGUOUS}


@pytest.mark.parametrize(
    ("reader", "writer", "message"),
    [
        (
            fixed("F", 4),
            fixed("F", 5),
            "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path '/size' in the new "
            "schema does not match with the old schema', additionalInfo:'expected: 5, found: 4'}",
        ),
        (
            one("int"),
            one("string"),
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema "
            "does not match with the old schema', additionalInfo:'reader type: INT not compatible with writer type: "
            "STRING'}",
        ),
        (
            record("a.R"),
            record("b.S"),
            "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/name')', "
            "additionalInfo:'expected: b.S'}",
        ),
        (
            enum("E", "A"),
            enum("E", "C", "A", "B"),
            "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[B, C]' at path "
            "'/symbols' in the old schema', additionalInfo:'[B, C]'}",
        ),
        (
            one(["null"]),
            one(["null", "int"]),
            "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type inside a union field at "
            "path '/fields/0/type/1' in the old schema', additionalInfo:'reader union lacking writer type: INT'}",
        ),
        (
            one("int"),
            record("R"),
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f' at path '/fields/0' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'f'}",
        ),
        (
            record("R", field("g", "int", aliases=["f"])),
            record("R", field("f", "int"), field("g", "int")),
            "{errorType:'READER_FIELD_AMBIGUOUS', description:'The field 'g' at path '/fields/0' in the new schema "
            "matches several fields in the old schema', additionalInfo:'g'}",
        ),
    ],
)
def test_messages_are_those_of_the_registry(reader: object, writer: object, message: str) -> None:
    (found,) = check(parse_shape(reader), parse_shape(writer))
    assert found.describe("new", "old") == message


def _union(count: int, *others: dict[str, Any]) -> AvroSchema:
    return parse_shape([record(f"R{number}", field("x", "int"), *others) for number in range(count)])


def test_unions_of_many_records() -> None:
    assert check(_union(3_000, field("y", "int", default=0)), _union(3_000)) == []
    found = check(_union(3_000, field("y", "int")), _union(3_000))
    assert [(each.kind, each.path) for each in found[:2]] == [(BRANCH, "/0"), (BRANCH, "/1")]
    assert len(found) == INCOMPATIBILITIES_MAX


def _mutual(count: int, kind: str) -> AvroSchema:
    """Return records of which each may contain all records defined before it, and itself."""
    names = [f"R{number}" for number in range(count)]
    records = [
        record(name, field("others", array(["null", *names[: number + 1]])), field("v", kind if number == 9 else "int"))
        for number, name in enumerate(names)
    ]
    return parse_shape(records)


def test_records_that_contain_each_other() -> None:
    assert check(_mutual(60, "int"), _mutual(60, "int")) == []
    found = check(_mutual(60, "int"), _mutual(60, "string"))
    assert [each.path for each in found] == [f"/{number}" for number in range(9, 60)]


def _chain(count: int, kind: str, name: str) -> AvroSchema:
    """Return a chain of types. The field that defines them is not compared, so the path to the innermost is as long as
    the chain."""
    chain = [record(f"R{number}", field("next", f"R{number - 1}")) for number in range(1, count)]
    types = ["null", record("R0", field("x", kind)), *chain]
    return parse_shape(record("Root", field(name, types, default=None), field("last", f"R{count - 1}")))


def test_long_chains_of_types_need_no_stack() -> None:
    reader = _chain(3_000, "int", "reader_types")
    assert check(reader, _chain(3_000, "int", "writer_types")) == []
    (found,) = check(reader, _chain(3_000, "string", "writer_types"))
    assert (found.kind, found.path.count("/fields/0")) == ("TYPE_MISMATCH", 3_000)
    assert parse(reader.normalized().canonical).canonical == reader.canonical


def test_very_many_paths_to_a_difference() -> None:
    def schema(kind: str) -> AvroSchema:
        types = [
            field(f"f{number}", record(f"R{number}", field("a", f"R{number - 1}"), field("b", f"R{number - 1}")))
            for number in range(1, 60)
        ]
        return parse_shape(record("Root", field("f0", record("R0", field("x", kind))), *types))

    assert len(check(schema("int"), schema("string"))) == INCOMPATIBILITIES_MAX


def test_a_comparison_with_too_many_steps_is_incompatible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles of 100 and 101 types have 10,100 pairs."""
    monkeypatch.setattr(compatibility, "_STEPS_MAX", 10_000)

    def cycle(count: int, name: str) -> AvroSchema:
        types = [record(f"n{number}.R", field("next", f"n{number - 1}.R")) for number in range(1, count)]
        return parse_shape(
            record("n0.R", field(name, ["null", *types], default=None), field("next", f"n{count - 1}.R"))
        )

    assert check(cycle(100, "a"), cycle(100, "b")) == []
    assert check(cycle(100, "a"), cycle(101, "b")) == [TOO_COMPLEX]


def test_large_records_take_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "_STEPS_MAX", 10_000)

    def union(name: str, count: int) -> AvroSchema:
        fields = [field(f"{name}{number}", "int", default=0) for number in range(count)]
        return parse_shape([record(f"n{number}.R", *fields, field(f"{name}x", "int")) for number in range(40)])

    assert {each.kind for each in check(union("a", 2), union("b", 2))} == {BRANCH}
    assert check(union("a", 200), union("b", 200)) == [TOO_COMPLEX]
