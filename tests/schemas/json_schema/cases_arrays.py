"""Changes of arrays: a schema for all items, schemas for the first ones, content models, limits."""

from typing import Any

from tests.schemas.json_schema.case import MIDDLE, Case, breaks, fits, modern

STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}


def array(items: Any = None, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", **({} if items is None else {"items": items}), **keywords}


def tuple_of(*schemas: Any, more: Any = True) -> dict[str, Any]:
    return array(list(schemas), additionalItems=more)


def modern_tuple(*schemas: Any, **keywords: Any) -> dict[str, Any]:
    return modern(type="array", prefixItems=list(schemas), **keywords)


ITEMS: list[Case] = [
    breaks("the items change", array(STRING), array(NUMBER), "TYPE_CHANGED #/items"),
    fits("the items widen", array(INTEGER), array(NUMBER), "TYPE_EXTENDED #/items"),
    breaks("a schema for the items", array(), array(STRING), "SCHEMA_ADDED #/items"),
    fits("no schema for the items", array(STRING), array(), "SCHEMA_REMOVED #/items"),
    breaks("a schema for the items, in 2020-12", modern(type="array"), modern(**array(STRING)), "SCHEMA_ADDED #/items"),
    breaks(
        "items become false, in 2020-12",
        modern(type="array"),
        modern(**array(False)),
        "ADDITIONAL_ITEMS_REMOVED #/additionalItems",
    ),
    fits("items become true, in 2020-12", modern(type="array"), modern(**array(True))),
    fits(
        "additionalItems is ignored with one schema for all items", array(STRING), array(STRING, additionalItems=False)
    ),
    fits("contains is not compared", array(contains=STRING), array(contains=NUMBER)),
]

TUPLES: list[Case] = [
    breaks("an item changes", tuple_of(STRING, STRING), tuple_of(STRING, NUMBER), "TYPE_CHANGED #/items/1"),
    fits("an item widens", tuple_of(INTEGER), tuple_of(NUMBER), "TYPE_EXTENDED #/items/0"),
    breaks(
        "two items are swapped",
        tuple_of(STRING, NUMBER),
        tuple_of(NUMBER, STRING),
        "TYPE_CHANGED #/items/0",
        "TYPE_CHANGED #/items/1",
    ),
    fits(
        "an item is removed from an open model",
        tuple_of(STRING, NUMBER),
        tuple_of(STRING),
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/1",
    ),
    breaks(
        "an item is added to an open model",
        tuple_of(STRING),
        tuple_of(STRING, NUMBER),
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1",
    ),
    fits(
        "an item that accepts anything is added to an open model",
        tuple_of(STRING),
        tuple_of(STRING, {}),
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/items/1",
    ),
    fits(
        "an item is added to a closed model",
        tuple_of(STRING, more=False),
        tuple_of(STRING, NUMBER, more=False),
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1",
    ),
    breaks(
        "an item is removed from a closed model",
        tuple_of(STRING, NUMBER, more=False),
        tuple_of(STRING, more=False),
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",
    ),
    fits(
        "an item that accepts nothing is removed from a closed model",
        tuple_of(STRING, False, more=False),
        tuple_of(STRING, more=False),
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",
    ),
    fits("the model opens", tuple_of(STRING, more=False), tuple_of(STRING), "ADDITIONAL_ITEMS_ADDED #/additionalItems"),
    breaks(
        "the model closes", tuple_of(STRING), tuple_of(STRING, more=False), "ADDITIONAL_ITEMS_REMOVED #/additionalItems"
    ),
    breaks(
        "the model gets a schema",
        tuple_of(STRING),
        tuple_of(STRING, more=STRING),
        "ADDITIONAL_ITEMS_NARROWED #/additionalItems",
    ),
    fits(
        "the model loses its schema",
        tuple_of(STRING, more=STRING),
        tuple_of(STRING),
        "ADDITIONAL_ITEMS_EXTENDED #/additionalItems",
    ),
    fits(
        "the model's schema widens",
        tuple_of(STRING, more=INTEGER),
        tuple_of(STRING, more=NUMBER),
        "TYPE_EXTENDED #/additionalItems",
    ),
    fits(
        "an added item matches the additional items",
        tuple_of(STRING, more=NUMBER),
        tuple_of(STRING, NUMBER, more=NUMBER),
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    breaks(
        "an added item does not match the additional items",
        tuple_of(STRING, more=NUMBER),
        tuple_of(STRING, STRING, more=NUMBER),
        "TYPE_CHANGED #/items/1",
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    fits(
        "a removed item matches the additional items",
        tuple_of(STRING, INTEGER, more=NUMBER),
        tuple_of(STRING, more=NUMBER),
        "TYPE_EXTENDED #/items/1",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    breaks(
        "a removed item does not match the additional items",
        tuple_of(STRING, STRING, more=NUMBER),
        tuple_of(STRING, more=NUMBER),
        "TYPE_CHANGED #/items/1",
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
]

MODERN_TUPLES: list[Case] = [
    breaks("an item changes", modern_tuple(STRING), modern_tuple(NUMBER), "TYPE_CHANGED #/items/0"),
    fits(
        "an item is added to a closed model",
        modern_tuple(STRING, items=False),
        modern_tuple(STRING, NUMBER, items=False),
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1",
    ),
    breaks(
        "the model closes",
        modern_tuple(STRING),
        modern_tuple(STRING, items=False),
        "ADDITIONAL_ITEMS_REMOVED #/additionalItems",
    ),
    breaks(
        "the model gets a schema",
        modern_tuple(STRING),
        modern_tuple(STRING, items=STRING),
        "ADDITIONAL_ITEMS_NARROWED #/additionalItems",
    ),
    fits("a tuple from draft 07 to 2020-12", tuple_of(STRING, more=False), modern_tuple(STRING, items=False)),
    fits(
        "a tuple from 2019-09 to 2020-12",
        {"$schema": MIDDLE, **tuple_of(STRING, more=NUMBER)},
        modern_tuple(STRING, items=NUMBER),
    ),
    breaks(
        "unevaluatedItems: false is added",
        modern_tuple(STRING),
        modern_tuple(STRING, unevaluatedItems=False),
        "UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems",
    ),
    fits(
        "unevaluatedItems: false is removed",
        modern_tuple(STRING, unevaluatedItems=False),
        modern_tuple(STRING),
        "UNEVALUATED_ITEMS_ADDED #/unevaluatedItems",
    ),
    breaks(
        "unevaluated items get a schema",
        modern_tuple(STRING),
        modern_tuple(STRING, unevaluatedItems=STRING),
        "UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems",
    ),
    fits(
        "unevaluated items lose their schema",
        modern_tuple(STRING, unevaluatedItems=STRING),
        modern_tuple(STRING),
        "UNEVALUATED_ITEMS_EXTENDED #/unevaluatedItems",
    ),
    fits(
        "an added item matches the unevaluated items",
        modern_tuple(STRING, unevaluatedItems=NUMBER),
        modern_tuple(STRING, NUMBER, unevaluatedItems=NUMBER),
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
]

LIMITS: list[Case] = [
    breaks("a new limit", array(), array(maxItems=5), "MAX_ITEMS_ADDED #/maxItems"),
    fits("no limit", array(maxItems=5), array(), "MAX_ITEMS_REMOVED #/maxItems"),
    fits("a wider limit", array(maxItems=5), array(maxItems=6), "MAX_ITEMS_INCREASED #/maxItems"),
    breaks("a closer limit", array(maxItems=5), array(maxItems=4), "MAX_ITEMS_DECREASED #/maxItems"),
    breaks("a new lower limit", array(), array(minItems=5), "MIN_ITEMS_ADDED #/minItems"),
    fits("no lower limit", array(minItems=5), array(), "MIN_ITEMS_REMOVED #/minItems"),
    breaks("more are needed", array(minItems=5), array(minItems=6), "MIN_ITEMS_INCREASED #/minItems"),
    fits("fewer are needed", array(minItems=5), array(minItems=4), "MIN_ITEMS_DECREASED #/minItems"),
    breaks("items must be unique", array(), array(uniqueItems=True), "UNIQUE_ITEMS_ADDED #/uniqueItems"),
    fits("items need not be unique any more", array(uniqueItems=True), array(), "UNIQUE_ITEMS_REMOVED #/uniqueItems"),
    fits("a flag that is off", array(), array(uniqueItems=False)),
    breaks(
        "contains is added, in 2020-12",
        modern(type="array"),
        modern(type="array", contains=STRING),
        "MIN_CONTAINS_ADDED #/minContains",
    ),
    fits(
        "contains is removed",
        modern(type="array", contains=STRING),
        modern(type="array"),
        "MIN_CONTAINS_REMOVED #/minContains",
    ),
    breaks(
        "minContains is higher than its default of 1",
        modern(contains=STRING),
        modern(contains=STRING, minContains=2),
        "MIN_CONTAINS_INCREASED #/minContains",
    ),
    fits(
        "a lower minContains",
        modern(contains=STRING, minContains=3),
        modern(contains=STRING, minContains=2),
        "MIN_CONTAINS_DECREASED #/minContains",
    ),
    breaks(
        "a lower maxContains",
        modern(contains=STRING, maxContains=3),
        modern(contains=STRING, maxContains=2),
        "MAX_CONTAINS_DECREASED #/maxContains",
    ),
    fits(
        "a higher maxContains",
        modern(contains=STRING, maxContains=3),
        modern(contains=STRING, maxContains=4),
        "MAX_CONTAINS_INCREASED #/maxContains",
    ),
    breaks(
        "maxContains is added",
        modern(contains=STRING),
        modern(contains=STRING, maxContains=4),
        "MAX_CONTAINS_ADDED #/maxContains",
    ),
    fits(
        "maxContains is removed",
        modern(contains=STRING, maxContains=3),
        modern(contains=STRING),
        "MAX_CONTAINS_REMOVED #/maxContains",
    ),
]

CASES = [*ITEMS, *TUPLES, *MODERN_TUPLES, *LIMITS]
