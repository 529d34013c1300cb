"""The changes that the policy LENIENT accepts and STRICT does not: changes of what an object may contain in addition to
the properties that both schemas declare."""

from typing import Any, NamedTuple

import pytest

from rookery.schemas.interface import Policy
from rookery.schemas.json_schema import check
from rookery.schemas.json_schema.differences import COMPATIBLE_KINDS, LENIENT_KINDS, MESSAGES
from tests.schemas.json_schema import cases_arrays, cases_objects, cases_values
from tests.schemas.json_schema.case import Case, modern
from tests.schemas.json_schema.cases_objects import AB, NUMBER, STRING, WITH_DEFAULT, A, closed, opened, partial
from tests.schemas.json_schema.test_comparison import CASES, make


class Change(NamedTuple):
    """`strict` and `lenient` are the kinds that each policy rejects; an empty set means that it accepts the change."""

    rule: str
    writer: Any
    reader: Any
    strict: str
    lenient: str = ""


def in_array(tree: Any) -> Any:
    return {"type": "array", "items": tree}


def in_union(tree: Any) -> Any:
    return {"oneOf": [{"type": "null"}, tree]}


def in_product(tree: Any) -> Any:
    return {"allOf": [opened(A, required=["a"]), tree]}


def through_reference(tree: Any) -> Any:
    return {"definitions": {"d": tree}, "type": "object", "properties": {"p": {"$ref": "#/definitions/d"}}}


def negated(tree: Any) -> Any:
    return {"not": tree}


PROPERTIES = [
    Change(
        "an optional property is added to an open object",
        opened(A),
        opened(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    Change(
        "a required property with a default is added to an open object",
        opened(A),
        opened({**A, "b": WITH_DEFAULT}, required=["b"]),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    Change(
        "a required property is added to an open object",
        opened(A),
        opened(AB, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    Change("an optional property is added to a closed object", closed(A), closed(AB), ""),
    Change(
        "a required property is added to a closed object",
        closed(A),
        closed(AB, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    ),
    Change("a property is removed from an open object", opened(AB), opened(A), ""),
    Change(
        "a property is removed from a closed object",
        closed(AB),
        closed(A),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Change(
        "a required property is removed from a closed object",
        closed(AB, required=["a", "b"]),
        closed(A, required=["a"]),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Change(
        "a property is renamed in a closed object",
        closed({"a": STRING}),
        closed({"b": STRING}),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Change(
        "a property becomes required",
        opened(AB),
        opened(AB, required=["b"]),
        "REQUIRED_ATTRIBUTE_ADDED",
        "REQUIRED_ATTRIBUTE_ADDED",
    ),
    Change("a property changes its type", opened({"a": STRING}), opened({"a": NUMBER}), "TYPE_CHANGED", "TYPE_CHANGED"),
]

MODELS = [
    Change("a model closes", opened(A), closed(A), "ADDITIONAL_PROPERTIES_REMOVED"),
    Change("a model gets a schema", opened(A), partial(STRING, A), "ADDITIONAL_PROPERTIES_NARROWED"),
    Change("a model's schema changes", partial(STRING, A), partial(NUMBER, A), "TYPE_CHANGED", "TYPE_CHANGED"),
    Change(
        "unevaluatedProperties: false is added",
        modern(**opened(A)),
        modern(**opened(A, unevaluatedProperties=False)),
        "UNEVALUATED_PROPERTIES_REMOVED",
    ),
    Change(
        "unevaluated properties get a schema",
        modern(**opened(A)),
        modern(**opened(A, unevaluatedProperties=STRING)),
        "UNEVALUATED_PROPERTIES_NARROWED",
    ),
    Change(
        "an added property is not covered by the model: the differences of its type count",
        partial(STRING, A),
        partial(STRING, AB),
        "TYPE_CHANGED PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "TYPE_CHANGED",
    ),
    Change(
        "a removed property is not covered by the model: the differences of its type count",
        partial(STRING, AB),
        partial(STRING, A),
        "TYPE_CHANGED PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "TYPE_CHANGED",
    ),
    Change(
        "an added property is covered by the model except for a nested property",
        partial(opened(A)),
        partial(opened(A), {"p": opened(AB)}),
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    Change(
        "items of an array are not properties",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING], "additionalItems": False},
        "ADDITIONAL_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_REMOVED",
    ),
]

_ADDED = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
NESTED = [
    Change("in an array", in_array(opened(A)), in_array(opened(AB)), _ADDED),
    Change("in a union", in_union(opened(A)), in_union(opened(AB)), "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    Change("in a product", in_product(opened(A)), in_product(opened(AB)), "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    Change("through a reference", through_reference(opened(A)), through_reference(opened(AB)), _ADDED),
    Change("a union accepts it", opened(A), in_union(opened(AB)), "TYPE_CHANGED"),
    Change(
        "a product is replaced by it",
        in_product(opened(A)),
        opened({"b": STRING}, required=["b"]),
        "TYPE_CHANGED",
        "TYPE_CHANGED",
    ),
    Change(
        "inside a negation, in the opposite direction", negated(opened(AB)), negated(opened(A)), "NOT_TYPE_EXTENDED"
    ),
    Change("deep inside", opened({"p": opened({"q": opened(A)})}), opened({"p": opened({"q": opened(AB)})}), _ADDED),
]

CHANGES = [*PROPERTIES, *MODELS, *NESTED]


def _rejected(change: Change, policy: Policy) -> set[str]:
    return {each.kind for each in check(make(change.reader), make(change.writer), policy)}


@pytest.mark.parametrize("change", CHANGES, ids=[change.rule for change in CHANGES])
def test_the_kinds_that_each_policy_rejects(change: Change) -> None:
    assert _rejected(change, "STRICT") == set(change.strict.split())
    assert _rejected(change, "LENIENT") == set(change.lenient.split())


def test_every_lenient_kind_has_a_change() -> None:
    assert {kind for change in CHANGES for kind in change.strict.split()} >= LENIENT_KINDS
    assert not LENIENT_KINDS & COMPATIBLE_KINDS
    assert MESSAGES.keys() >= LENIENT_KINDS, "STRICT has to say something about them"


def test_strict_is_the_default() -> None:
    assert check(make(opened(AB)), make(opened(A))) == check(make(opened(AB)), make(opened(A)), "STRICT") != []


@pytest.mark.parametrize(
    "case", [*cases_objects.CASES, *cases_arrays.CASES, *cases_values.CASES], ids=lambda case: str(case.rule)
)
def test_lenient_rejects_the_kinds_that_are_not_lenient(case: Case) -> None:
    kinds = {each.split(" ")[0] for each in case.differences}
    found = check(make(case.reader), make(case.writer), "LENIENT")
    assert (found == []) is (kinds <= COMPATIBLE_KINDS | LENIENT_KINDS)
    assert not {each.kind for each in found} & LENIENT_KINDS


def test_lenient_accepts_what_strict_accepts() -> None:
    for case in CASES:
        if case.is_compatible:
            assert check(make(case.reader), make(case.writer), "LENIENT") == [], case.rule
