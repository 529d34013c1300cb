"""Changes of objects: content models, required properties, dependencies, limits."""

from typing import Any

from tests.schemas.json_schema.case import Case, breaks, fits, modern

STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
WITH_DEFAULT = {"type": "string", "default": ""}
A = {"a": STRING}
AB = {"a": STRING, "b": NUMBER}


def opened(properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **keywords}


def closed(properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    return opened(properties, additionalProperties=False, **keywords)


def partial(additional: Any, properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    return opened(properties, additionalProperties=additional, **keywords)


def object_of(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


OPEN: list[Case] = [
    fits("a property may go", opened(AB), opened(A), "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b"),
    breaks(
        "a writer may have had it, as anything",
        opened(A),
        opened(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "and now it must be there",
        opened(A),
        opened(AB, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a default does not help what was there",
        opened(A),
        opened({**A, "b": WITH_DEFAULT}, required=["b"]),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "it may still be anything",
        opened(A),
        opened({**A, "b": {}}),
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "true is anything",
        opened(A),
        opened({**A, "b": True}),
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a property that must not be there",
        opened(A),
        opened({**A, "b": False}),
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "open in so many words", opened(AB), partial(True, A), "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b"
    ),
    fits(
        "open in so many words, in 2020-12",
        modern(**opened(AB)),
        modern(**partial(True, A)),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks("a property changes", opened({"a": STRING}), opened({"a": NUMBER}), "TYPE_CHANGED #/properties/a"),
    fits("a property widens", opened({"a": INTEGER}), opened({"a": NUMBER}), "TYPE_EXTENDED #/properties/a"),
    breaks(
        "deep inside",
        opened({"a": opened({"b": opened({"c": STRING})})}),
        opened({"a": opened({"b": opened({"c": NUMBER})})}),
        "TYPE_CHANGED #/properties/a/properties/b/properties/c",
    ),
    fits("another order of properties", opened({"a": STRING, "b": NUMBER}), opened({"b": NUMBER, "a": STRING})),
    breaks(
        "a property is renamed",
        opened({"a": STRING}),
        opened({"b": STRING}),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
]

CLOSED: list[Case] = [
    fits(
        "nobody wrote it before",
        closed(A),
        closed(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "nobody wrote it, but it is needed",
        closed(A),
        closed(AB, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "nobody wrote it, but there is a default",
        closed(A),
        closed({**A, "b": WITH_DEFAULT}, required=["b"]),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "there is no place for it", closed(AB), closed(A), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"
    ),
    fits(
        "there was none before",
        closed({**A, "b": False}),
        closed(A),
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b",
    ),
    fits("a model opens", closed(A), opened(A), "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"),
    breaks("a model closes", opened(A), closed(A), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    breaks(
        "a model closes, in 2020-12",
        modern(**opened(A)),
        modern(**closed(A)),
        "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties",
    ),
    fits(
        "it opens and a property goes",
        closed(AB),
        opened(A),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b",
        "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
    ),
    fits(
        "it opens and a property comes",
        closed(A),
        opened(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
        "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
    ),
]

PARTIALLY_OPEN: list[Case] = [
    fits(
        "the model has a schema now",
        closed(A),
        partial(STRING, A),
        "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
    ),
    breaks(
        "the model had no schema",
        opened(A),
        partial(STRING, A),
        "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties",
    ),
    fits(
        "the model has no schema any more",
        partial(STRING, A),
        opened(A),
        "ADDITIONAL_PROPERTIES_EXTENDED #/additionalProperties",
    ),
    breaks("the model closes", partial(STRING, A), closed(A), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    fits("the schema widens", partial(INTEGER), partial(NUMBER), "TYPE_EXTENDED #/additionalProperties"),
    breaks("the schema changes", partial(STRING), partial(NUMBER), "TYPE_CHANGED #/additionalProperties"),
    fits(
        "a property is what the others were",
        partial(STRING),
        partial(STRING, A),
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "a property is not what the others were",
        partial(NUMBER),
        partial(NUMBER, A),
        "TYPE_CHANGED #/properties/a",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "it is, but it is needed",
        partial(STRING),
        partial(STRING, A, required=["a"]),
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    fits(
        "it is needed and has a default",
        partial(STRING),
        partial(STRING, {"a": WITH_DEFAULT}, required=["a"]),
        "DEFAULT_CHANGED #/properties/a",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    fits(
        "a property is one of the others now",
        partial(STRING, A),
        partial(STRING),
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "a property does not fit the others",
        partial(NUMBER, A),
        partial(NUMBER),
        "TYPE_CHANGED #/properties/a",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    fits(
        "a pattern has the name",
        closed({"a1": STRING}, patternProperties={"^a": STRING}),
        closed(patternProperties={"^a": STRING}),
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a1",
    ),
    breaks(
        "no pattern has the name",
        closed({"b1": STRING}, patternProperties={"^a": STRING}),
        closed(patternProperties={"^a": STRING}),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b1",
    ),
    breaks(
        "the pattern's schema is another",
        closed(patternProperties={"a": NUMBER}),
        closed({"bar": STRING}, patternProperties={"a": NUMBER}),
        "TYPE_CHANGED #/properties/bar",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/bar",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/bar",
    ),
    fits(
        "what patterns want is not compared",
        opened(patternProperties={"a": NUMBER}),
        opened(patternProperties={"a": STRING}),
    ),
    fits(
        "what names must be is not compared",
        object_of(propertyNames={"maxLength": 9}),
        object_of(propertyNames={"maxLength": 1}),
    ),
]

UNEVALUATED: list[Case] = [
    breaks(
        "closed by the other keyword",
        modern(**opened(A)),
        modern(**opened(A, unevaluatedProperties=False)),
        "UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties",
    ),
    fits(
        "opened by the other keyword",
        modern(**opened(A, unevaluatedProperties=False)),
        modern(**opened(A)),
        "UNEVALUATED_PROPERTIES_ADDED #/unevaluatedProperties",
    ),
    fits(
        "false becomes true",
        modern(**opened(A, unevaluatedProperties=False)),
        modern(**opened(A, unevaluatedProperties=True)),
        "UNEVALUATED_PROPERTIES_ADDED #/unevaluatedProperties",
    ),
    breaks(
        "true becomes false",
        modern(**opened(A, unevaluatedProperties=True)),
        modern(**opened(A, unevaluatedProperties=False)),
        "UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties",
    ),
    breaks(
        "a schema for the rest",
        modern(**opened(A)),
        modern(**opened(A, unevaluatedProperties=STRING)),
        "UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties",
    ),
    breaks(
        "true becomes a schema",
        modern(**opened(A, unevaluatedProperties=True)),
        modern(**opened(A, unevaluatedProperties=STRING)),
        "UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties",
    ),
    fits(
        "no schema for the rest",
        modern(**opened(A, unevaluatedProperties=STRING)),
        modern(**opened(A)),
        "UNEVALUATED_PROPERTIES_EXTENDED #/unevaluatedProperties",
    ),
    fits(
        "the schema for the rest widens",
        modern(**opened(A, unevaluatedProperties=INTEGER)),
        modern(**opened(A, unevaluatedProperties=NUMBER)),
        "TYPE_EXTENDED #/unevaluatedProperties",
    ),
    fits(
        "a property was part of the rest",
        modern(**opened(unevaluatedProperties=STRING)),
        modern(**opened(A, unevaluatedProperties=STRING)),
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "there is no rest",
        modern(**opened(A, unevaluatedProperties=False)),
        modern(**opened(unevaluatedProperties=False)),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a",
    ),
    fits("draft 07 does not know the keyword", opened(A), opened(A, unevaluatedProperties=False)),
]

REQUIRED: list[Case] = [
    breaks(
        "what was optional is needed", opened(A), opened(A, required=["a"]), "REQUIRED_ATTRIBUTE_ADDED #/required/a"
    ),
    fits(
        "what was needed is optional", opened(A, required=["a"]), opened(A), "REQUIRED_ATTRIBUTE_REMOVED #/required/a"
    ),
    fits(
        "a default helps",
        opened({"a": WITH_DEFAULT}),
        opened({"a": WITH_DEFAULT}, required=["a"]),
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    fits(
        "a default of null, too",
        opened({"a": {"default": None}}),
        opened({"a": {"default": None}}, required=["a"]),
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    fits(
        "a default where a reference leads to helps",
        opened({"a": {"$ref": "#/definitions/S"}}, definitions={"S": WITH_DEFAULT}),
        opened({"a": {"$ref": "#/definitions/S"}}, definitions={"S": WITH_DEFAULT}, required=["a"]),
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    breaks(
        "one beside it is hidden",
        opened({"a": {"$ref": "#/definitions/S"}}, definitions={"S": STRING}),
        opened({"a": {"$ref": "#/definitions/S", "default": ""}}, definitions={"S": STRING}, required=["a"]),
        "REQUIRED_ATTRIBUTE_ADDED #/required/a",
    ),
    fits("another order of names", opened(AB, required=["a", "b"]), opened(AB, required=["b", "a"])),
    fits("a name without a property is not compared", opened(A), opened(A, required=["z"])),
    breaks(
        "one goes, one comes",
        opened(AB, required=["a"]),
        opened(AB, required=["b"]),
        "REQUIRED_ATTRIBUTE_REMOVED #/required/a",
        "REQUIRED_ATTRIBUTE_ADDED #/required/b",
    ),
]


def depending(**dependencies: Any) -> dict[str, Any]:
    return object_of(dependencies=dependencies)


DEPENDENCIES: list[Case] = [
    breaks(
        "a new dependency",
        object_of(minProperties=0),
        object_of(minProperties=0, dependencies={"a": ["b"]}),
        "DEPENDENCY_ARRAY_ADDED #/dependencies/a",
    ),
    fits("no dependency", depending(a=["b"]), object_of(dependencies={}), "DEPENDENCY_ARRAY_REMOVED #/dependencies/a"),
    breaks("one more name", depending(a=["b"]), depending(a=["b", "c"]), "DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"),
    fits("one name less", depending(a=["b", "c"]), depending(a=["c"]), "DEPENDENCY_ARRAY_NARROWED #/dependencies/a"),
    breaks("another name", depending(a=["b"]), depending(a=["c"]), "DEPENDENCY_ARRAY_CHANGED #/dependencies/a"),
    fits("another order of needed names", depending(a=["b", "c"]), depending(a=["c", "b"])),
    fits("an empty list is no dependency", depending(), depending(a=[])),
    breaks("a new schema", depending(), depending(a=STRING), "DEPENDENCY_SCHEMA_ADDED #/dependencies/a"),
    fits("no schema", depending(a=STRING), depending(), "DEPENDENCY_SCHEMA_REMOVED #/dependencies/a"),
    breaks("another schema", depending(a=STRING), depending(a=NUMBER), "TYPE_CHANGED #/dependencies/a"),
    breaks(
        "a schema for a list",
        depending(a=["b"]),
        depending(a=STRING),
        "DEPENDENCY_ARRAY_REMOVED #/dependencies/a",
        "DEPENDENCY_SCHEMA_ADDED #/dependencies/a",
    ),
    breaks(
        "a name of its own in 2020-12",
        modern(dependentRequired={"a": ["b"]}),
        modern(dependentRequired={"a": ["b", "c"]}),
        "DEPENDENCY_ARRAY_EXTENDED #/dependencies/a",
    ),
    breaks(
        "and one for schemas",
        modern(dependentSchemas={"a": STRING}),
        modern(dependentSchemas={"a": NUMBER}),
        "TYPE_CHANGED #/dependencies/a",
    ),
    fits(
        "a dependency from draft 07 to 2020-12", {"dependencies": {"a": ["b"]}}, modern(dependentRequired={"a": ["b"]})
    ),
]

LIMITS: list[Case] = [
    breaks("a new limit", object_of(), object_of(maxProperties=5), "MAX_PROPERTIES_ADDED #/maxProperties"),
    fits("no limit", object_of(maxProperties=5), object_of(), "MAX_PROPERTIES_REMOVED #/maxProperties"),
    fits(
        "a wider limit",
        object_of(maxProperties=5),
        object_of(maxProperties=6),
        "MAX_PROPERTIES_INCREASED #/maxProperties",
    ),
    breaks(
        "a closer limit",
        object_of(maxProperties=5),
        object_of(maxProperties=4),
        "MAX_PROPERTIES_DECREASED #/maxProperties",
    ),
    breaks("a new lower limit", object_of(), object_of(minProperties=5), "MIN_PROPERTIES_ADDED #/minProperties"),
    fits("no lower limit", object_of(minProperties=5), object_of(), "MIN_PROPERTIES_REMOVED #/minProperties"),
    breaks(
        "more are needed",
        object_of(minProperties=5),
        object_of(minProperties=6),
        "MIN_PROPERTIES_INCREASED #/minProperties",
    ),
    fits(
        "fewer are needed",
        object_of(minProperties=5),
        object_of(minProperties=4),
        "MIN_PROPERTIES_DECREASED #/minProperties",
    ),
]

CASES = [*OPEN, *CLOSED, *PARTIALLY_OPEN, *UNEVALUATED, *REQUIRED, *DEPENDENCIES, *LIMITS]
