"""Changes of annotations, types, strings, numbers, enumerations and references."""

from tests.schemas.json_schema.case import MIDDLE, MODERN, OLDEST, Case, breaks, fits, modern

STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}

NOTES: list[Case] = [
    fits("equal schemas have no differences", STRING, STRING),
    fits("the id is an annotation", {"$id": "one", **STRING}, {"$id": "two", **STRING}, "ID_CHANGED"),
    fits(
        "the keyword is id in draft 04",
        {"$schema": OLDEST, "id": "one"},
        {"$schema": OLDEST, "id": "two"},
        "ID_CHANGED",
    ),
    fits("the title is an annotation", {"title": "one", **STRING}, {"title": "two", **STRING}, "TITLE_CHANGED"),
    fits("a title may be added", STRING, {"title": "two", **STRING}, "TITLE_CHANGED"),
    fits("a title may be removed", {"title": "one"}, {}, "TITLE_CHANGED"),
    fits("the description is an annotation", {"description": "one"}, {"description": "two"}, "DESCRIPTION_CHANGED"),
    fits("the default is an annotation", {"default": 1, **NUMBER}, {"default": 2, **NUMBER}, "DEFAULT_CHANGED"),
    fits("a default of 1 is not true", {"default": 1}, {"default": True}, "DEFAULT_CHANGED"),
    fits("defaults are compared by value", {"default": {"a": 1, "b": 2}}, {"default": {"b": 2, "a": 1}}),
    fits("unknown keywords are ignored", {"x-note": 1, **STRING}, {"x-note": 2, **STRING}),
    fits("examples are ignored", {"examples": [1]}, {"examples": [2]}),
]

TYPES: list[Case] = [
    breaks("another type", STRING, NUMBER, "TYPE_CHANGED"),
    breaks("another type in 2020-12", modern(type="string"), modern(type="number"), "TYPE_CHANGED"),
    breaks("null is a type", {"type": "null"}, {"type": "boolean"}, "TYPE_CHANGED"),
    breaks("an array is no object", {"type": "array"}, {"type": "object"}, "TYPE_CHANGED"),
    fits("every integer is a number", INTEGER, NUMBER, "TYPE_EXTENDED"),
    breaks("not every number is an integer", NUMBER, INTEGER, "TYPE_NARROWED"),
    fits("the empty schema accepts anything", STRING, {}),
    fits("true accepts anything", STRING, True),
    fits("true is the empty schema", {}, True),
    fits("the empty schema is true", True, {}),
    breaks("the empty schema accepts more than a type", {}, STRING, "TYPE_CHANGED"),
    breaks("true accepts more than a type", True, STRING, "TYPE_CHANGED"),
    fits("nothing matches false, so every reader accepts it", False, STRING),
    breaks("false accepts nothing", STRING, False, "TYPE_CHANGED"),
    fits("false is false", False, False),
    fits("a keyword of strings implies the type", {"maxLength": 3}, {"maxLength": 3, **STRING}),
    breaks("keywords of different types", {"maxLength": 3}, {"maximum": 3}, "TYPE_CHANGED"),
    fits("decimals of Connect", {"connect.type": "bytes", **STRING}, {"connect.type": "bytes", **NUMBER}),
    breaks(
        "other types of Connect", {"connect.type": "int8", **STRING}, {"connect.type": "int8", **NUMBER}, "TYPE_CHANGED"
    ),
    breaks("decimals on one side only", STRING, {"connect.type": "bytes", **NUMBER}, "TYPE_CHANGED"),
    fits("drafts may change", {"$schema": OLDEST, **STRING}, modern(type="string")),
    breaks(
        "drafts may change, types may not", {"$schema": OLDEST, **STRING}, {"$schema": MIDDLE, **NUMBER}, "TYPE_CHANGED"
    ),
]

STRINGS: list[Case] = [
    breaks("a new limit", STRING, {"maxLength": 5, **STRING}, "MAX_LENGTH_ADDED #/maxLength"),
    fits("no limit any more", {"maxLength": 5, **STRING}, STRING, "MAX_LENGTH_REMOVED #/maxLength"),
    fits("a wider limit", {"maxLength": 5, **STRING}, {"maxLength": 6, **STRING}, "MAX_LENGTH_INCREASED #/maxLength"),
    breaks(
        "a closer limit", {"maxLength": 5, **STRING}, {"maxLength": 4, **STRING}, "MAX_LENGTH_DECREASED #/maxLength"
    ),
    breaks("a new lower limit", STRING, {"minLength": 5, **STRING}, "MIN_LENGTH_ADDED #/minLength"),
    fits("no lower limit", {"minLength": 5, **STRING}, STRING, "MIN_LENGTH_REMOVED #/minLength"),
    breaks("longer texts", {"minLength": 5, **STRING}, {"minLength": 6, **STRING}, "MIN_LENGTH_INCREASED #/minLength"),
    fits("shorter texts", {"minLength": 5, **STRING}, {"minLength": 4, **STRING}, "MIN_LENGTH_DECREASED #/minLength"),
    breaks("a limit of zero is a limit", STRING, {"minLength": 0, **STRING}, "MIN_LENGTH_ADDED #/minLength"),
    breaks("a new pattern", STRING, {"pattern": "a", **STRING}, "PATTERN_ADDED #/pattern"),
    fits("no pattern", {"pattern": "a", **STRING}, STRING, "PATTERN_REMOVED #/pattern"),
    breaks("another pattern", {"pattern": "a", **STRING}, {"pattern": "a|b", **STRING}, "PATTERN_CHANGED #/pattern"),
    fits("formats are annotations", {"format": "date", **STRING}, {"format": "time", **STRING}),
    breaks("a format implies the type in draft 07", {}, {"format": "date"}, "TYPE_CHANGED"),
    fits("a format implies no type in 2020-12", modern(), modern(format="date")),
]

NUMBERS: list[Case] = [
    breaks("a new maximum", NUMBER, {"maximum": 5, **NUMBER}, "MAXIMUM_ADDED #/maximum"),
    fits("no maximum", {"maximum": 5, **NUMBER}, NUMBER, "MAXIMUM_REMOVED #/maximum"),
    fits("a higher maximum", {"maximum": 5, **NUMBER}, {"maximum": 5.5, **NUMBER}, "MAXIMUM_INCREASED #/maximum"),
    breaks("a lower maximum", {"maximum": 5, **NUMBER}, {"maximum": -5, **NUMBER}, "MAXIMUM_DECREASED #/maximum"),
    fits("5 is 5.0", {"maximum": 5, **NUMBER}, {"maximum": 5.0, **NUMBER}),
    breaks("a new minimum", NUMBER, {"minimum": 5, **NUMBER}, "MINIMUM_ADDED #/minimum"),
    fits("no minimum", {"minimum": 5, **NUMBER}, NUMBER, "MINIMUM_REMOVED #/minimum"),
    breaks("a higher minimum", {"minimum": 5, **NUMBER}, {"minimum": 6, **NUMBER}, "MINIMUM_INCREASED #/minimum"),
    fits("a lower minimum", {"minimum": 5, **NUMBER}, {"minimum": 0, **NUMBER}, "MINIMUM_DECREASED #/minimum"),
    breaks(
        "a maximum in a type that narrows",
        {"maximum": 5, **NUMBER},
        {"maximum": 4, **INTEGER},
        "MAXIMUM_DECREASED #/maximum",
        "TYPE_NARROWED",
    ),
    breaks(
        "a new excluded maximum",
        NUMBER,
        {"exclusiveMaximum": 5, **NUMBER},
        "EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum",
    ),
    fits(
        "no excluded maximum", {"exclusiveMaximum": 5, **NUMBER}, NUMBER, "EXCLUSIVE_MAXIMUM_REMOVED #/exclusiveMaximum"
    ),
    fits(
        "a higher excluded maximum",
        {"exclusiveMaximum": 5},
        {"exclusiveMaximum": 6},
        "EXCLUSIVE_MAXIMUM_INCREASED #/exclusiveMaximum",
    ),
    breaks(
        "a lower excluded maximum",
        {"exclusiveMaximum": 5},
        {"exclusiveMaximum": 4},
        "EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum",
    ),
    breaks(
        "a new excluded minimum",
        NUMBER,
        {"exclusiveMinimum": 5, **NUMBER},
        "EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum",
    ),
    fits(
        "no excluded minimum", {"exclusiveMinimum": 5, **NUMBER}, NUMBER, "EXCLUSIVE_MINIMUM_REMOVED #/exclusiveMinimum"
    ),
    breaks(
        "a higher excluded minimum",
        {"exclusiveMinimum": 5},
        {"exclusiveMinimum": 6},
        "EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum",
    ),
    fits(
        "a lower excluded minimum",
        {"exclusiveMinimum": 5},
        {"exclusiveMinimum": 4},
        "EXCLUSIVE_MINIMUM_DECREASED #/exclusiveMinimum",
    ),
    breaks(
        "draft 04 excludes a limit by a flag",
        {"$schema": OLDEST, "minimum": 5},
        {"$schema": OLDEST, "minimum": 5, "exclusiveMinimum": True},
        "MINIMUM_REMOVED #/minimum",
        "EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum",
    ),
    fits(
        "a flag that is off",
        {"$schema": OLDEST, "minimum": 5},
        {"$schema": OLDEST, "minimum": 5, "exclusiveMinimum": False},
    ),
    fits(
        "the flag and the limit are the same",
        {"$schema": OLDEST, "maximum": 5, "exclusiveMaximum": True},
        {"exclusiveMaximum": 5},
    ),
    breaks("a new divisor", NUMBER, {"multipleOf": 2, **NUMBER}, "MULTIPLE_OF_ADDED #/multipleOf"),
    fits("no divisor", {"multipleOf": 2, **NUMBER}, NUMBER, "MULTIPLE_OF_REMOVED #/multipleOf"),
    fits(
        "a divisor of the divisor",
        {"multipleOf": 6, **NUMBER},
        {"multipleOf": 3, **NUMBER},
        "MULTIPLE_OF_REDUCED #/multipleOf",
    ),
    breaks(
        "a multiple of the divisor",
        {"multipleOf": 3, **NUMBER},
        {"multipleOf": 6, **NUMBER},
        "MULTIPLE_OF_EXPANDED #/multipleOf",
    ),
    breaks(
        "another divisor", {"multipleOf": 4, **NUMBER}, {"multipleOf": 6, **NUMBER}, "MULTIPLE_OF_CHANGED #/multipleOf"
    ),
    fits(
        "fractions divide exactly",
        {"multipleOf": 0.3, **NUMBER},
        {"multipleOf": 0.1, **NUMBER},
        "MULTIPLE_OF_REDUCED #/multipleOf",
    ),
]

ENUMERATIONS: list[Case] = [
    fits("one more value", {"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_EXTENDED #/enum"),
    breaks("one value less", {"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED #/enum"),
    breaks("other values", {"enum": ["a", "b"]}, {"enum": ["b", "c"]}, "ENUM_ARRAY_CHANGED #/enum"),
    fits("another order", {"enum": ["a", "b"]}, {"enum": ["b", "a"]}),
    fits("values are compared in depth", {"enum": [{"x": [1], "y": 2}]}, {"enum": [{"y": 2, "x": [1]}]}),
    breaks("1 is not true", {"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_CHANGED #/enum"),
    breaks("another constant", {"const": "a"}, {"const": "b"}, "ENUM_ARRAY_CHANGED #/const"),
    fits("the same constant", {"const": {"a": None}}, {"const": {"a": None}}),
    breaks("a constant is no enumeration", {"const": "a"}, {"enum": ["a", "b"]}, "TYPE_CHANGED"),
    fits("draft 04 has no constants", {"$schema": OLDEST, "const": 1}, {"$schema": OLDEST, "const": 2}),
    fits(
        "a type and an enumeration",
        {"enum": ["a"], **STRING},
        {"enum": ["a", "b"], **STRING},
        "ENUM_ARRAY_EXTENDED #/allOf/0/enum",
    ),
    fits("one of the two may be removed", {"enum": ["a"], **STRING}, STRING, "PRODUCT_TYPE_NARROWED"),
    breaks("an enumeration for a type", STRING, {"enum": ["a"], **STRING}, "TYPE_CHANGED"),
]


def _with(name: str, schema: object, **keywords: object) -> dict[str, object]:
    return {"definitions": {name: schema}, **keywords}


_TREE = {"properties": {"next": {"$ref": "#/definitions/Tree"}, "id": STRING}, "type": "object"}
_CHANGED = {"properties": {"next": {"$ref": "#/definitions/Tree"}, "id": NUMBER}, "type": "object"}

REFERENCES: list[Case] = [
    fits("a reference equals its target", _with("S", STRING, **{"$ref": "#/definitions/S"}), STRING),
    fits("a definition may be introduced", STRING, _with("S", STRING, **{"$ref": "#/definitions/S"})),
    fits(
        "the name of a definition does not count",
        _with("S", STRING, **{"$ref": "#/definitions/S"}),
        _with("T", STRING, **{"$ref": "#/definitions/T"}),
    ),
    breaks(
        "the definition changes",
        _with("S", STRING, **{"$ref": "#/definitions/S"}),
        _with("S", NUMBER, **{"$ref": "#/definitions/S"}),
        "TYPE_CHANGED",
    ),
    fits(
        "a chain of references",
        {"definitions": {"S": STRING, "T": {"$ref": "#/definitions/S"}}, "$ref": "#/definitions/T"},
        STRING,
    ),
    fits("an unreferenced definition may change", _with("S", STRING, type="null"), _with("S", NUMBER, type="null")),
    fits(
        "draft 07 ignores keywords next to a reference",
        _with("S", STRING, **{"$ref": "#/definitions/S", "maxLength": 9}),
        _with("S", STRING, **{"$ref": "#/definitions/S", "maxLength": 1}),
    ),
    breaks(
        "2020-12 does not",
        modern(**{"$defs": {"S": STRING}, "$ref": "#/$defs/S", "maxLength": 9}),
        modern(**{"$defs": {"S": STRING}, "$ref": "#/$defs/S", "maxLength": 1}),
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    fits(
        "by anchor", modern(**{"$defs": {"S": {"$anchor": "s", **STRING}}, "$ref": "#s"}), {"$schema": MODERN, **STRING}
    ),
    fits(
        "by an id inside",
        {"$id": "http://here/", "definitions": {"S": {"$id": "s.json", **STRING}}, "$ref": "s.json"},
        STRING,
        "ID_CHANGED",
    ),
    fits("definitions are found under $defs", {"definitions": {"S": STRING}, "$ref": "#/$defs/S"}, STRING),
    fits(
        "a recursive schema equals itself",
        _with("Tree", _TREE, **{"$ref": "#/definitions/Tree"}),
        _with("Tree", _TREE, **{"$ref": "#/definitions/Tree"}),
    ),
    breaks(
        "a recursive schema changes once",
        _with("Tree", _TREE, **{"$ref": "#/definitions/Tree"}),
        _with("Tree", _CHANGED, **{"$ref": "#/definitions/Tree"}),
        "TYPE_CHANGED #/properties/id",
        "TYPE_CHANGED #/properties/next/properties/id",
    ),
    fits(
        "recursion in 2019-09",
        {"$schema": MIDDLE, "properties": {"a": {"$recursiveRef": "#"}}},
        {"$schema": MIDDLE, "properties": {"a": {"$recursiveRef": "#"}}},
    ),
    fits(
        "dynamic references",
        modern(**{"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}}),
        modern(**{"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}}),
    ),
]

CASES = [*NOTES, *TYPES, *STRINGS, *NUMBERS, *ENUMERATIONS, *REFERENCES]
