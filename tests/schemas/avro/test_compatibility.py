import pytest

from rookery.schemas.avro import check
from tests.schemas.avro.resolution_cases import AMBIGUOUS, CASES, Case
from tests.schemas.avro.shapes import enum, field, fixed, one, parse_shape, record


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_schema_resolution(case: Case) -> None:
    found = check(parse_shape(case.reader), parse_shape(case.writer))
    assert tuple((each.kind, each.path) for each in found) == case.found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_every_schema_reads_itself(case: Case) -> None:
    """Unless an alias is the name of another field."""
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
