"""The kinds of differences between two JSON Schemas in Confluent's registry: which of them are compatible, and the
messages for the others.

The rule behind the table: a change is compatible if everything that matched the writer's schema matches the reader's.
The policy LENIENT also accepts changes of what an object may contain in addition to the properties that both schemas
declare: it trusts writers to use only property names that their schema declares.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from rookery.schemas.interface import Incompatibility, Policy

_COMPATIBLE_KINDS: Final = """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED
    SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED
    MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED
    COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
"""
COMPATIBLE_KINDS: Final = frozenset(_COMPATIBLE_KINDS.split())

_LENIENT_KINDS: Final = """
    ADDITIONAL_PROPERTIES_NARROWED ADDITIONAL_PROPERTIES_REMOVED
    UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_PROPERTIES_REMOVED
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
"""
# The kinds that LENIENT accepts and STRICT does not.
LENIENT_KINDS: Final = frozenset(_LENIENT_KINDS.split())

# The kinds that are incompatible under STRICT, by message.
_INCOMPATIBLE_KINDS: Final = {
    "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema": """
        SCHEMA_ADDED MAXIMUM_ADDED MINIMUM_ADDED EXCLUSIVE_MAXIMUM_ADDED EXCLUSIVE_MINIMUM_ADDED MULTIPLE_OF_ADDED
        MAX_LENGTH_ADDED MIN_LENGTH_ADDED PATTERN_ADDED REQUIRED_ATTRIBUTE_ADDED MAX_PROPERTIES_ADDED
        MIN_PROPERTIES_ADDED DEPENDENCY_ARRAY_ADDED DEPENDENCY_SCHEMA_ADDED MAX_ITEMS_ADDED MIN_ITEMS_ADDED
        MAX_CONTAINS_ADDED MIN_CONTAINS_ADDED UNIQUE_ITEMS_ADDED ADDITIONAL_ITEMS_REMOVED
        ADDITIONAL_PROPERTIES_REMOVED UNEVALUATED_PROPERTIES_REMOVED UNEVALUATED_ITEMS_REMOVED
        """,
    "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema": """
        MIN_LENGTH_INCREASED MINIMUM_INCREASED EXCLUSIVE_MINIMUM_INCREASED MIN_PROPERTIES_INCREASED
        MULTIPLE_OF_EXPANDED MIN_ITEMS_INCREASED MIN_CONTAINS_INCREASED
        """,
    "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema": """
        MAX_LENGTH_DECREASED MAXIMUM_DECREASED MAX_ITEMS_DECREASED MAX_CONTAINS_DECREASED
        EXCLUSIVE_MAXIMUM_DECREASED MAX_PROPERTIES_DECREASED
        """,
    "The value at path '{path}' is different between the {reader} and {writer} schema": """
        PATTERN_CHANGED MULTIPLE_OF_CHANGED DEPENDENCY_ARRAY_CHANGED
        """,
    "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the {writer} schema": """
        ADDITIONAL_ITEMS_NARROWED ENUM_ARRAY_NARROWED SUM_TYPE_NARROWED ADDITIONAL_PROPERTIES_NARROWED
        UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_ITEMS_NARROWED
        """,
    "An array or combined type at path '{path}' has more elements in the {reader} schema than the {writer} schema": """
        DEPENDENCY_ARRAY_EXTENDED PRODUCT_TYPE_EXTENDED NOT_TYPE_EXTENDED
        """,
    "A type at path '{path}' is different between the {reader} schema and the {writer} schema": """
        TYPE_CHANGED TYPE_NARROWED COMBINED_TYPE_CHANGED COMBINED_TYPE_SUBSCHEMAS_CHANGED ENUM_ARRAY_CHANGED
        """,
    "The {reader} schema has an open content model and has a property or item at path '{path}' which is missing in "
    "the {writer} schema": """
        REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL
        OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_OPEN_CONTENT_MODEL
        """,
    "The {reader} schema has an unopen content model and has a required property at path '{path}' which is missing in "
    "the {writer} schema": "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "The {reader} has a closed content model and is missing a property or item present at path '{path}' in the "
    "{writer} schema": "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} schema and is "
    "not covered by its partially open content model": """
        PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        """,
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema and is not "
    "covered by its partially open content model": """
        PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        """,
}
MESSAGES: Final = {kind: message for message, kinds in _INCOMPATIBLE_KINDS.items() for kind in kinds.split()}


# The weight of a difference: each policy accepts weights up to its limit.
_COMPATIBLE, _LENIENT, _INCOMPATIBLE = range(3)
_WEIGHTS: Final = dict.fromkeys(LENIENT_KINDS, _LENIENT) | dict.fromkeys(COMPATIBLE_KINDS, _COMPATIBLE)
_WEIGHT_MAX: Final[dict[Policy, int]] = {"STRICT": _COMPATIBLE, "LENIENT": _LENIENT}


class Difference(NamedTuple):
    """`path` leads from the roots of the schemas, through keywords, names and indexes."""

    kind: str
    path: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        return _WEIGHTS.get(self.kind, _INCOMPATIBLE)

    @property
    def pointer(self) -> str:
        return "#/" + "/".join(self.path)


class NestedDifferences(NamedTuple):
    """The differences of a part, at the path `steps`. They are shared and not copied with full paths, because very many
    paths may lead to the same part."""

    steps: tuple[str, ...]
    differences: "Differences"
    weight: int


Differences: TypeAlias = list[Difference | NestedDifferences]


class Found(NamedTuple):
    """The differences of two schemas, and whether the policy of the comparison accepts all of them."""

    differences: Differences
    is_compatible: bool


def is_compatible(differences: Differences, policy: Policy) -> bool:
    return _weigh(differences) <= _WEIGHT_MAX[policy]


def nest(differences: Differences, *steps: str) -> Differences:
    return [NestedDifferences(steps, differences, _weigh(differences))] if differences else []


def _weigh(differences: Differences) -> int:
    return max([difference.weight for difference in differences], default=_COMPATIBLE)


def compare_limit(keyword: str, stem: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """Compare a keyword whose value is a limit. The kinds of the differences begin with `stem`."""
    before, after = old.get(keyword), new.get(keyword)
    if before == after:
        return []
    if before is None or after is None:
        change = "ADDED" if before is None else "REMOVED"
    else:
        change = "INCREASED" if before < after else "DECREASED"
    return [Difference(f"{stem}_{change}", (keyword,))]


def flatten(differences: Differences, policy: Policy | None) -> Iterator[Difference]:
    """Yield the differences that the policy does not accept, each with its full path; without a policy all of them."""
    weight_max = -1 if policy is None else _WEIGHT_MAX[policy]
    levels = [iter(differences)]
    path: list[tuple[str, ...]] = []
    while levels:
        each = next(levels[-1], None)
        if each is None:
            levels.pop()
            del path[-1:]
        elif each.weight <= weight_max:
            continue
        elif isinstance(each, NestedDifferences):
            levels.append(iter(each.differences))
            path.append(each.steps)
        else:
            yield Difference(each.kind, (*chain.from_iterable(path), *each.path))


class JSONIncompatibility(Incompatibility):
    """Confluent's registry formats the messages for JSON Schema with other quotes than those for other formats."""

    def describe(self, reader: str, writer: str) -> str:
        text = self.description.replace("{reader}", reader).replace("{writer}", writer)
        return f'{{errorType:"{self.kind}", description:"{text}\'}}'


def describe(difference: Difference) -> Incompatibility:
    pointer = difference.pointer
    return JSONIncompatibility(difference.kind, MESSAGES[difference.kind].replace("{path}", pointer), pointer)
