"""Changes of sums (`anyOf`, `oneOf`, lists of types), products (`allOf`, several assertions), negations, conditions."""

from typing import Any

from tests.schemas.json_schema.case import Case, breaks, fits, modern

STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}
SHORT = {"type": "string", "maxLength": 3}
LONG = {"type": "string", "maxLength": 9}


def some(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": list(schemas)}


def one(*schemas: Any) -> dict[str, Any]:
    return {"oneOf": list(schemas)}


def every(*schemas: Any) -> dict[str, Any]:
    return {"allOf": list(schemas)}


SUMS: list[Case] = [
    fits("one more alternative", one(STRING), one(STRING, NUMBER), "SUM_TYPE_EXTENDED"),
    fits("one more alternative of any", some(STRING), some(STRING, NUMBER), "SUM_TYPE_EXTENDED"),
    breaks("one alternative less", one(STRING, NUMBER), one(STRING), "SUM_TYPE_NARROWED"),
    breaks("one alternative less of any", some(STRING, NUMBER), some(NUMBER), "SUM_TYPE_NARROWED"),
    fits("another order", one(STRING, NUMBER), one(NUMBER, STRING)),
    fits("a wider alternative", one(SHORT, NUMBER), one(NUMBER, LONG), "MAX_LENGTH_INCREASED #/oneOf/0/maxLength"),
    breaks("a closer alternative", one(LONG, NUMBER), one(SHORT, NUMBER), "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    breaks("another alternative", one(STRING, NUMBER), one(STRING, NULL), "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    breaks(
        "more, but not those",
        one(STRING, NUMBER),
        one(STRING, NULL, {"type": "array"}),
        "SUM_TYPE_EXTENDED",
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    fits("each alternative is matched with its own", some(INTEGER, NUMBER), some(NUMBER, INTEGER)),
    fits(
        "the first alternative is matched with another one",
        some(SHORT, {"type": "string", "maxLength": 5}),
        some(LONG, {"type": "string", "maxLength": 4}),
        "MAX_LENGTH_INCREASED #/anyOf/0/maxLength",
        "MAX_LENGTH_INCREASED #/anyOf/1/maxLength",
    ),
    fits("a repetition is no alternative", one(STRING, NUMBER), one(STRING, STRING, NUMBER)),
    fits("a schema becomes an alternative", STRING, one(NUMBER, STRING), "SUM_TYPE_EXTENDED"),
    fits(
        "a schema becomes a wider alternative",
        SHORT,
        some(NULL, LONG),
        "MAX_LENGTH_INCREASED #/maxLength",
        "SUM_TYPE_EXTENDED",
    ),
    breaks("a schema is none of the alternatives", STRING, one(NUMBER, NULL), "TYPE_CHANGED"),
    fits("a sum of one is that one", STRING, one(STRING)),
    fits("and the other way round", some(STRING), STRING),
    breaks("a sum of one that is another", STRING, one(NUMBER), "TYPE_CHANGED"),
    breaks("only one alternative remains", one(STRING, NUMBER), STRING, "TYPE_CHANGED"),
    fits("anything takes a sum", one(STRING, NUMBER), {}),
    breaks("a sum does not take anything", {}, one(STRING, NUMBER), "TYPE_CHANGED"),
    fits("optional, in 2020-12", modern(type="null"), modern(oneOf=[NULL, STRING]), "SUM_TYPE_EXTENDED"),
]

TYPE_LISTS: list[Case] = [
    fits("one more type", {"type": ["string"]}, {"type": ["string", "null"]}, "SUM_TYPE_EXTENDED"),
    breaks("one type less", {"type": ["string", "null"]}, {"type": ["string"]}, "SUM_TYPE_NARROWED"),
    fits("another order of types", {"type": ["string", "null"]}, {"type": ["null", "string"]}),
    fits("a type in a list", STRING, {"type": ["string", "null"]}, "SUM_TYPE_EXTENDED"),
    fits("a list is a sum", {"type": ["string", "null"]}, some(STRING, NULL)),
    breaks(
        "each type has its own keywords",
        {"type": ["string", "null"]},
        {"type": ["string", "null"], "maxLength": 1},
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    fits(
        "each type has its own keywords, in 2020-12",
        modern(type=["string", "null"], maxLength=1),
        modern(type=["string", "null"], maxLength=2),
        "MAX_LENGTH_INCREASED #/anyOf/0/maxLength",
    ),
    breaks(
        "keywords of a type that is not listed",
        {"type": ["string", "null"]},
        {"type": ["string", "null"], "minimum": 1},
        "COMBINED_TYPE_CHANGED",
    ),
]

PRODUCTS: list[Case] = [
    breaks("one more condition", every(STRING), every(STRING, {"minLength": 1}), "PRODUCT_TYPE_EXTENDED"),
    fits("one condition less", every(STRING, {"enum": ["a"]}), every(STRING), "PRODUCT_TYPE_NARROWED"),
    fits("another order of conditions", every(STRING, {"enum": ["a"]}), every({"enum": ["a"]}, STRING)),
    fits(
        "a wider condition",
        every(SHORT, {"enum": ["a"]}),
        every({"enum": ["a"]}, LONG),
        "MAX_LENGTH_INCREASED #/allOf/0/maxLength",
    ),
    breaks(
        "a closer condition",
        every(LONG, {"enum": ["a"]}),
        every({"enum": ["a"]}, SHORT),
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    fits("one condition is enough", every(STRING, {"enum": ["a"]}), STRING, "PRODUCT_TYPE_NARROWED"),
    breaks("none of them is enough", every(STRING, {"enum": ["a"]}), NUMBER, "TYPE_CHANGED"),
    breaks("a schema and more", STRING, every(STRING, {"enum": ["a"]}), "TYPE_CHANGED"),
    fits("a product of one is that one", STRING, every(STRING)),
    fits("several assertions are a product", {"enum": ["a"], **STRING}, every({"enum": ["a"]}, STRING)),
    breaks(
        "several assertions, one more",
        {"anyOf": [STRING, NUMBER]},
        {"anyOf": [STRING, NUMBER], "not": NULL},
        "COMBINED_TYPE_CHANGED",
    ),
]

CRITERIA: list[Case] = [
    fits("exactly one is any", one(STRING, NUMBER), some(STRING, NUMBER), "COMBINED_TYPE_EXTENDED"),
    fits("all are any", every(STRING, {"minLength": 1}), some(STRING, {"minLength": 1}), "COMBINED_TYPE_EXTENDED"),
    breaks("any is not exactly one", some(STRING, NUMBER), one(STRING, NUMBER), "COMBINED_TYPE_CHANGED"),
    breaks("any is not all", some(STRING, NUMBER), every(STRING, NUMBER), "COMBINED_TYPE_CHANGED"),
    breaks("exactly one is not all", one(STRING, NUMBER), every(STRING, NUMBER), "COMBINED_TYPE_CHANGED"),
    breaks(
        "all are not exactly one",
        every(STRING, {"minLength": 1}),
        one(STRING, {"minLength": 1}),
        "COMBINED_TYPE_CHANGED",
    ),
    fits("one of one", some(STRING), one(STRING), "COMBINED_TYPE_EXTENDED"),
    fits("all of one", some(STRING), every(STRING), "COMBINED_TYPE_EXTENDED"),
    fits(
        "one becomes exactly one of two",
        every(STRING),
        one(STRING, NUMBER),
        "COMBINED_TYPE_EXTENDED",
        "SUM_TYPE_EXTENDED",
    ),
    fits(
        "one of all is left",
        every(STRING, {"enum": ["a"]}),
        one(STRING),
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
    ),
]

NEGATIONS: list[Case] = [
    fits("the same is excluded", {"not": STRING}, {"not": STRING}, "NOT_TYPE_NARROWED #/not"),
    fits("less is excluded", {"not": LONG}, {"not": SHORT}, "NOT_TYPE_NARROWED #/not"),
    breaks("more is excluded", {"not": SHORT}, {"not": LONG}, "NOT_TYPE_EXTENDED #/not"),
    breaks("something else is excluded", {"not": STRING}, {"not": NUMBER}, "NOT_TYPE_EXTENDED #/not"),
    breaks("a new exclusion", {}, {"not": STRING}, "TYPE_CHANGED"),
    fits("no exclusion", {"not": STRING}, {}),
    breaks("an exclusion is no type", {"not": STRING}, NUMBER, "TYPE_CHANGED"),
    fits("an exclusion of an exclusion", {"not": {"not": SHORT}}, {"not": {"not": LONG}}, "NOT_TYPE_NARROWED #/not"),
]

CONDITIONS: list[Case] = [
    fits("conditions are not compared", {"if": STRING, "then": SHORT}, {"if": STRING, "then": LONG}),
    breaks("a new condition", STRING, {"if": STRING, "then": SHORT, **STRING}, "TYPE_CHANGED"),
    fits("no condition", {"if": STRING, "then": SHORT, **STRING}, STRING, "PRODUCT_TYPE_NARROWED"),
    breaks("a part of a condition is one", {}, {"then": SHORT}, "TYPE_CHANGED"),
]

CASES = [*SUMS, *TYPE_LISTS, *PRODUCTS, *CRITERIA, *NEGATIONS, *CONDITIONS]
