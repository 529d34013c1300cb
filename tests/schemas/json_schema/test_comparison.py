"""The tables of cases, and properties of all of them."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from rookery.schemas.bounds import INCOMPATIBILITIES_MAX, TOO_COMPLEX
from rookery.schemas.interface import Incompatibility
from rookery.schemas.json_schema import JSONSchema, check, parse
from rookery.schemas.json_schema.comparison import find_differences
from rookery.schemas.json_schema.differences import COMPATIBLE_KINDS, MESSAGES, flatten
from tests.schemas.json_schema import cases_arrays, cases_combinations, cases_objects, cases_values
from tests.schemas.json_schema.case import Case

CASES = [*cases_values.CASES, *cases_combinations.CASES, *cases_objects.CASES, *cases_arrays.CASES]


def make(tree: Any) -> JSONSchema:
    return parse(msgspec.json.encode(tree).decode())


def _differences(writer: Any, reader: Any) -> list[str]:
    differences = find_differences(make(reader), make(writer))
    return sorted(f"{each.kind} {each.pointer}" for each in flatten(differences, None))


@pytest.mark.parametrize("case", CASES, ids=[f"{index} {case.rule}" for index, case in enumerate(CASES)])
def test_case(case: Case) -> None:
    expected = sorted(each if " " in each else f"{each} #/" for each in case.differences)
    assert _differences(case.writer, case.reader) == expected
    assert (check(make(case.reader), make(case.writer)) == []) is case.is_compatible


def test_differences_are_as_compatible_as_the_worst_of_them() -> None:
    for case in CASES:
        kinds = {each.split(" ")[0] for each in case.differences}
        assert (kinds <= COMPATIBLE_KINDS) is case.is_compatible, case.rule


def test_every_kind_has_a_case() -> None:
    kinds = {each.split(" ")[0] for case in CASES for each in case.differences}
    assert kinds == COMPATIBLE_KINDS | MESSAGES.keys()
    assert not COMPATIBLE_KINDS & MESSAGES.keys()


def _only(writer: Any, reader: Any) -> Incompatibility:
    [found] = check(make(reader), make(writer))
    return found


def test_an_incompatibility_has_a_kind_and_a_path() -> None:
    writer = {"type": "object", "properties": {"a": {"type": "string"}}}
    reader = {"type": "object", "properties": {"a": {"type": "number"}}}
    found = _only(writer, reader)
    assert (found.kind, found.path, found.detail) == ("TYPE_CHANGED", "#/properties/a", None)
    assert found.describe("new", "old") == (
        '{errorType:"TYPE_CHANGED", description:"A type at path \'#/properties/a\' is different between the new schema '
        "and the old schema'}"
    )


@pytest.mark.parametrize(
    ("writer", "reader", "text"),
    [
        (
            {},
            {"type": "string", "maxLength": 1},
            "A type at path '#/' is different between the R schema and the W schema",
        ),
        (
            {"maxLength": 2},
            {"maxLength": 1},
            "The value at path '#/maxLength' in the R schema is less than its value in the W schema",
        ),
        (
            {"minLength": 1},
            {"minLength": 2},
            "The value at path '#/minLength' in the R schema is more than its value in the W schema",
        ),
        ({"pattern": "a"}, {"pattern": "b"}, "The value at path '#/pattern' is different between the R and W schema"),
        (
            {"type": "string"},
            {"pattern": "b"},
            "The keyword at path '#/pattern' in the R schema is not present in the W schema",
        ),
        (
            {"enum": [1, 2]},
            {"enum": [1]},
            "An array or combined type at path '#/enum' has fewer elements in the R schema than the W schema",
        ),
    ],
)
def test_messages(writer: Any, reader: Any, text: str) -> None:
    assert text in _only(writer, reader).describe("R", "W")


def _types(count: int, last: str) -> dict[str, Any]:
    """Return definitions of which each refers to all others."""
    names = [f"t{number}" for number in range(count)]
    any_type = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
    definitions = {
        name: {"type": "object", "properties": {name: {"type": "string"}, "next": any_type}, "required": [name]}
        for name in names
    }
    definitions[names[-1]]["properties"] = {names[-1]: {"type": last}, "next": any_type}
    return {"definitions": definitions, **any_type}


def test_definitions_that_all_refer_to_all_others() -> None:
    assert check(make(_types(20, "string")), make(_types(20, "string"))) == []
    found = _only(_types(20, "string"), _types(20, "number"))
    assert (found.kind, found.path) == ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#/")


def test_a_difference_after_a_cycle_is_found_by_a_second_walk() -> None:
    """The union refers to the roots while their comparison is open; assuming them compatible hides the change."""

    def schema(kind: str) -> dict[str, Any]:
        node = {
            "properties": {"next": {"oneOf": [{"$ref": "#/definitions/N"}, {"type": "null"}]}, "id": {"type": kind}}
        }
        return {"definitions": {"N": {"type": "object", **node}}, "$ref": "#/definitions/N"}

    assert _differences(schema("string"), schema("number")) == [
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/properties/next",
        "TYPE_CHANGED #/properties/id",
    ]


def test_long_chains_of_definitions_need_no_stack() -> None:
    def chain(last: str) -> dict[str, Any]:
        definitions: dict[str, Any] = {
            f"d{index}": {"properties": {"n": {"$ref": f"#/definitions/d{index + 1}"}}} for index in range(2000)
        }
        return {"definitions": {**definitions, "d2000": {"type": last}}, "$ref": "#/definitions/d0"}

    found = _only(chain("string"), chain("number"))
    assert found.kind == "TYPE_CHANGED"
    assert found.path.count("/n") == 2000


def test_very_many_paths_to_a_difference() -> None:
    def schema(last: str) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        for index in range(60):
            following = {"$ref": f"#/definitions/d{index + 1}"}
            definitions[f"d{index}"] = {"type": "object", "properties": {"a": following, "b": following}}
        return {"definitions": {**definitions, "d60": {"type": last}}, "$ref": "#/definitions/d0"}

    found = check(make(schema("number")), make(schema("string")))
    assert len(found) == len({each.path for each in found}) == INCOMPATIBILITIES_MAX
    assert found[0].path == "#" + "/properties/a" * 60
    assert check(make(schema("number")), make(schema("integer"))) == []


def _choices(names: Iterable[str], keyword: str = "oneOf", **others: Any) -> dict[str, Any]:
    return {
        keyword: [
            {
                "type": "object",
                "properties": {name: {"type": "string"}, **others},
                "required": [name],
                "additionalProperties": False,
            }
            for name in names
        ]
    }


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf", "allOf"])
def test_equal_parts_are_compared_first(keyword: str) -> None:
    """Comparing a thousand parts with a thousand parts takes too many steps."""
    names = [f"p{index}" for index in range(1_000)]
    schema = make(_choices(names, keyword))
    for changed in (
        _choices(names, keyword),
        _choices(names[::-1], keyword),
        _choices(names, keyword, more={"type": "string"}),
    ):
        assert check(make(changed), schema) == []
    found = check(make(_choices([*names[:-1], "other"], keyword)), schema)
    assert [each.kind for each in found] == ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]


def test_a_matched_part_can_be_moved_for_another() -> None:
    """The writer's first part matches both of the reader's, the second only the one that the first was matched with."""
    writer = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    assert check(make({"oneOf": [{"type": "number"}, {"type": "integer", "title": "I"}]}), make(writer)) == []


def test_a_comparison_with_too_many_steps_is_incompatible() -> None:
    writer, reader = ([f"{side}{index}" for index in range(count)] for side, count in (("w", 100), ("r", 50)))
    many: dict[str, Any] = {f"x{index}": {"type": "string"} for index in range(400)}
    assert [each.kind for each in check(make(_choices(reader)), make(_choices(writer)))] == [
        "SUM_TYPE_NARROWED",
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ]
    assert check(make(_choices(reader, **many)), make(_choices(writer, **many))) == [TOO_COMPLEX]


def test_many_patterns_for_many_properties_take_too_long() -> None:
    patterns = {f"^x{index}$": {"type": "string"} for index in range(1_000)}
    writer_tree, reader_tree = (
        {
            "type": "object",
            "patternProperties": patterns,
            "additionalProperties": False,
            "properties": {f"{side}{index}": {"type": "string"} for index in range(1_000)},
        }
        for side in ("w", "r")
    )
    assert check(make(reader_tree), make(writer_tree)) == [TOO_COMPLEX]


def test_long_chains_with_many_differences_at_their_end() -> None:
    """Full paths for each difference at each link of the chain would take hundreds of millions of steps."""

    def chain(last: str) -> dict[str, Any]:
        definitions: dict[str, Any] = {
            f"d{index}": {"properties": {"n": {"$ref": f"#/definitions/d{index + 1}"}}} for index in range(2_500)
        }
        end = {"type": "object", "properties": {f"p{index}": {"type": last} for index in range(200)}}
        return {"definitions": {**definitions, "d2500": end}, "$ref": "#/definitions/d0"}

    found = check(make(chain("string")), make(chain("number")))
    assert found
    assert sum(len(each.description) for each in found) <= 100_000
