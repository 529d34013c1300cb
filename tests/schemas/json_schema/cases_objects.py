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
    fits(
        "a property is removed from an open model",
        opened(AB),
        opened(A),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "an optional property is added to an open model",
        opened(A),
        opened(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a required property is added to an open model",
        opened(A),
        opened(AB, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a required property with a default is added to an open model",
        opened(A),
        opened({**A, "b": WITH_DEFAULT}, required=["b"]),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "a property that accepts anything is added to an open model",
        opened(A),
        opened({**A, "b": {}}),
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "a property with the schema true is added to an open model",
        opened(A),
        opened({**A, "b": True}),
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a property with the schema false is added to an open model",
        opened(A),
        opened({**A, "b": False}),
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "an explicitly open model",
        opened(AB),
        partial(True, A),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "an explicitly open model, in 2020-12",
        modern(**opened(AB)),
        modern(**partial(True, A)),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks("a property changes", opened({"a": STRING}), opened({"a": NUMBER}), "TYPE_CHANGED #/properties/a"),
    fits("a property widens", opened({"a": INTEGER}), opened({"a": NUMBER}), "TYPE_EXTENDED #/properties/a"),
    breaks(
        "a deeply nested property changes",
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
        "an optional property is added to a closed model",
        closed(A),
        closed(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a required property is added to a closed model",
        closed(A),
        closed(AB, required=["b"]),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "a required property with a default is added to a closed model",
        closed(A),
        closed({**A, "b": WITH_DEFAULT}, required=["b"]),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
    ),
    breaks(
        "a property is removed from a closed model",
        closed(AB),
        closed(A),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b",
    ),
    fits(
        "a property with the schema false is removed from a closed model",
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
        "the model opens and a property is removed",
        closed(AB),
        opened(A),
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b",
        "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
    ),
    fits(
        "the model opens and a property is added",
        closed(A),
        opened(AB),
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b",
        "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
    ),
]

PARTIALLY_OPEN: list[Case] = [
    fits(
        "a closed model gets a schema",
        closed(A),
        partial(STRING, A),
        "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties",
    ),
    breaks(
        "an open model gets a schema",
        opened(A),
        partial(STRING, A),
        "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties",
    ),
    fits(
        "the model loses its schema",
        partial(STRING, A),
        opened(A),
        "ADDITIONAL_PROPERTIES_EXTENDED #/additionalProperties",
    ),
    breaks("the model closes", partial(STRING, A), closed(A), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    fits("the schema widens", partial(INTEGER), partial(NUMBER), "TYPE_EXTENDED #/additionalProperties"),
    breaks("the schema changes", partial(STRING), partial(NUMBER), "TYPE_CHANGED #/additionalProperties"),
    fits(
        "an added property matches the additional properties",
        partial(STRING),
        partial(STRING, A),
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "an added property does not match the additional properties",
        partial(NUMBER),
        partial(NUMBER, A),
        "TYPE_CHANGED #/properties/a",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "a required added property matches the additional properties",
        partial(STRING),
        partial(STRING, A, required=["a"]),
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    fits(
        "a required added property with a default matches the additional properties",
        partial(STRING),
        partial(STRING, {"a": WITH_DEFAULT}, required=["a"]),
        "DEFAULT_CHANGED #/properties/a",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    fits(
        "a removed property matches the additional properties",
        partial(STRING, A),
        partial(STRING),
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "a removed property does not match the additional properties",
        partial(NUMBER, A),
        partial(NUMBER),
        "TYPE_CHANGED #/properties/a",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    fits(
        "a pattern matches the removed name",
        closed({"a1": STRING}, patternProperties={"^a": STRING}),
        closed(patternProperties={"^a": STRING}),
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a1",
    ),
    breaks(
        "no pattern matches the removed name",
        closed({"b1": STRING}, patternProperties={"^a": STRING}),
        closed(patternProperties={"^a": STRING}),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b1",
    ),
    breaks(
        "a pattern matches the added name, with another schema",
        closed(patternProperties={"a": NUMBER}),
        closed({"bar": STRING}, patternProperties={"a": NUMBER}),
        "TYPE_CHANGED #/properties/bar",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/bar",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/bar",
    ),
    fits(
        "schemas of patterns are not compared",
        opened(patternProperties={"a": NUMBER}),
        opened(patternProperties={"a": STRING}),
    ),
    fits(
        "propertyNames is not compared",
        object_of(propertyNames={"maxLength": 9}),
        object_of(propertyNames={"maxLength": 1}),
    ),
]

UNEVALUATED: list[Case] = [
    breaks(
        "unevaluatedProperties: false is added",
        modern(**opened(A)),
        modern(**opened(A, unevaluatedProperties=False)),
        "UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties",
    ),
    fits(
        "unevaluatedProperties: false is removed",
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
        "unevaluated properties get a schema",
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
        "unevaluated properties lose their schema",
        modern(**opened(A, unevaluatedProperties=STRING)),
        modern(**opened(A)),
        "UNEVALUATED_PROPERTIES_EXTENDED #/unevaluatedProperties",
    ),
    fits(
        "the schema of unevaluated properties widens",
        modern(**opened(A, unevaluatedProperties=INTEGER)),
        modern(**opened(A, unevaluatedProperties=NUMBER)),
        "TYPE_EXTENDED #/unevaluatedProperties",
    ),
    fits(
        "an added property matches the unevaluated properties",
        modern(**opened(unevaluatedProperties=STRING)),
        modern(**opened(A, unevaluatedProperties=STRING)),
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    breaks(
        "a property is removed, and none may be unevaluated",
        modern(**opened(A, unevaluatedProperties=False)),
        modern(**opened(unevaluatedProperties=False)),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a",
    ),
    fits("draft 07 does not know the keyword", opened(A), opened(A, unevaluatedProperties=False)),
]

REQUIRED: list[Case] = [
    breaks(
        "an optional property becomes required",
        opened(A),
        opened(A, required=["a"]),
        "REQUIRED_ATTRIBUTE_ADDED #/required/a",
    ),
    fits(
        "a required property becomes optional",
        opened(A, required=["a"]),
        opened(A),
        "REQUIRED_ATTRIBUTE_REMOVED #/required/a",
    ),
    fits(
        "a property with a default becomes required",
        opened({"a": WITH_DEFAULT}),
        opened({"a": WITH_DEFAULT}, required=["a"]),
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    fits(
        "a property with the default null becomes required",
        opened({"a": {"default": None}}),
        opened({"a": {"default": None}}, required=["a"]),
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    fits(
        "a property whose reference has a default becomes required",
        opened({"a": {"$ref": "#/definitions/S"}}, definitions={"S": WITH_DEFAULT}),
        opened({"a": {"$ref": "#/definitions/S"}}, definitions={"S": WITH_DEFAULT}, required=["a"]),
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    breaks(
        "a default next to a reference is ignored",
        opened({"a": {"$ref": "#/definitions/S"}}, definitions={"S": STRING}),
        opened({"a": {"$ref": "#/definitions/S", "default": ""}}, definitions={"S": STRING}, required=["a"]),
        "REQUIRED_ATTRIBUTE_ADDED #/required/a",
    ),
    fits("another order of required names", opened(AB, required=["a", "b"]), opened(AB, required=["b", "a"])),
    fits("a name without a property is not compared", opened(A), opened(A, required=["z"])),
    breaks(
        "one property becomes optional, another required",
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
        "dependentRequired in 2020-12",
        modern(dependentRequired={"a": ["b"]}),
        modern(dependentRequired={"a": ["b", "c"]}),
        "DEPENDENCY_ARRAY_EXTENDED #/dependencies/a",
    ),
    breaks(
        "dependentSchemas in 2020-12",
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
