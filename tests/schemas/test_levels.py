import pytest

from rookery.schemas.formats import find_format
from rookery.schemas.interface import ParsedSchema
from rookery.schemas.levels import LEVELS, Level, Version, check_compatibility, find_level
from tests.schemas.avro.shapes import field, parse_shape, record

ALL = set(LEVELS)
BACKWARD_LEVELS = {"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}
FORWARD_LEVELS = {"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}


def shape(names: str) -> ParsedSchema:
    """Return a record with a field for each letter; lower-case fields have a default, upper-case fields have none."""
    defaults: dict[bool, dict[str, int]] = {True: {"default": 0}, False: {}}
    return parse_shape(record("R", *(field(name, "int", **defaults[name.islower()]) for name in names)))


def history(*names: str) -> list[Version]:
    return [Version(number, shape(each)) for number, each in enumerate(names, start=1)]


@pytest.mark.parametrize(
    ("rule", "old", "new", "rejected_by"),
    [
        ("there is no older version", [], "A", set()),
        ("nothing changes", ["A"], "A", set()),
        ("a field with a default is added", ["A"], "Ab", set()),
        ("a field with a default is removed", ["Ab"], "A", set()),
        ("a field without default is added", ["A"], "AB", BACKWARD_LEVELS),
        ("a field without default is removed", ["AB"], "A", FORWARD_LEVELS),
        ("both", ["A"], "B", BACKWARD_LEVELS | FORWARD_LEVELS),
        ("the new one does not read the first", ["", "A"], "A", {"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
        ("the first does not read the new one", ["A", ""], "", {"FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
        (
            "only the first version without the field is incompatible",
            ["A", "", "A"],
            "A",
            {"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"},
        ),
    ],
)
def test_which_levels_reject(rule: str, old: list[str], new: str, rejected_by: set[Level]) -> None:
    rejecting = {level for level in LEVELS if check_compatibility(level, shape(new), history(*old))}
    assert rejecting == rejected_by, rule


def test_messages_name_reader_and_writer() -> None:
    messages = check_compatibility("BACKWARD", shape("AB"), history("A"))
    assert messages == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'B' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'B'}",
        "{oldSchemaVersion: 1}",
        "{oldSchema: '" + shape("A").canonical + "'}",
    ]
    assert (
        "in the old schema has no default value and is missing in the new schema"
        in (check_compatibility("FORWARD", shape("A"), history("AB"))[0])
    )


def test_full_levels_report_both_directions() -> None:
    first, second, *_ = check_compatibility("FULL", shape("B"), history("A"))
    assert "The field 'A' at path '/fields/0' in the old schema" in first
    assert "The field 'B' at path '/fields/0' in the new schema" in second


def test_the_latest_incompatible_version_is_reported() -> None:
    messages = check_compatibility("BACKWARD_TRANSITIVE", shape("A"), history("", "", "A"))
    assert "{oldSchemaVersion: 2}" in messages


def test_a_long_schema_is_truncated() -> None:
    old = parse_shape(record("R", *(field(f"f{number}", "int") for number in range(1_000))))
    messages = check_compatibility("FORWARD", shape(""), [Version(1, old)])
    assert messages[-1] == f"{{oldSchema: <truncated> '{old.canonical[:10240]}...'}}"


def test_another_format_is_never_compatible() -> None:
    old = [Version(1, find_format("JSON").parse('{"type":"object"}'))]
    for level in ALL - {"NONE"}:
        assert check_compatibility(level, shape("A"), old) == ["Incompatible because of different schema type"]
    assert check_compatibility("NONE", shape("A"), old) == []


@pytest.mark.parametrize(
    ("text", "level"), [("full", "FULL"), ("Backward_Transitive", "BACKWARD_TRANSITIVE"), ("x", None)]
)
def test_levels_are_found_in_any_case(text: str, level: Level | None) -> None:
    assert find_level(text) == level
