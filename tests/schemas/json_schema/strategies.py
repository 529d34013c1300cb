"""Random schemas, changes of them, and instances, for the property tests.

The schemas contain only keywords for which Confluent's rules are exact. They omit those for which the rules are coarse:
`if`, `oneOf`, `contains`, `propertyNames`, `patternProperties`, the unevaluated keywords, schemas without a `type`,
required names that are not properties, `additionalItems` with one schema for all items, and defaults, which a reader
fills in.
"""

from random import Random
from typing import Any

from hypothesis import strategies as st

NAMES = "abc"
SCALARS: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "integer", "number", "boolean", "null")]
VALUES: list[Any] = [None, True, 0, 1, 2, 3, 4, 6, 1.5, "", "a", "ab", "abcd"]
BY_TYPE: dict[str, list[Any]] = {
    "string": ["", "a", "ab", "abc", "abcd"],
    "integer": [0, 1, 2, 3, 4, 6],
    "number": [0, 1, 1.5, 2, 3, 4, 6],
}
LIMITS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": ("minProperties", "maxProperties"),
    "array": ("minItems", "maxItems"),
}


@st.composite
def limits(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(LIMITS[kind]), max_size=1))
    return {keyword: draw(st.integers(1, 4)) for keyword in chosen}


@st.composite
def scalars(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["string", "integer", "number"]))
    return {"type": kind, **draw(limits(kind))}


@st.composite
def objects(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> Any:
    properties = draw(st.dictionaries(st.sampled_from(NAMES), children, max_size=3))
    schema = {"type": "object", "properties": properties, **draw(limits("object"))}
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    additional = draw(st.none() | st.booleans() | children)
    schema |= {"required": required} if required else {}
    return schema | ({} if additional is None else {"additionalProperties": additional})


@st.composite
def arrays(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> Any:
    schema = {"type": "array", **draw(limits("array")), **draw(st.sampled_from([{}, {"uniqueItems": True}]))}
    if draw(st.booleans()):
        return schema | {"items": draw(children)}
    schema["items"] = draw(st.lists(children, min_size=1, max_size=3))
    additional = draw(st.none() | st.booleans() | children)
    return schema if additional is None else schema | {"additionalItems": additional}


def combinations(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(children, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda parts: {"anyOf": parts}),
        several.map(lambda parts: {"allOf": parts}),
        children.map(lambda part: {"not": part}),
    )


_leaves = st.one_of(
    st.sampled_from([True, False, {}, *SCALARS, {"type": ["string", "null"], "maxLength": 2}]),
    scalars(),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3, unique_by=repr).map(lambda values: {"enum": values}),
)
# Only inside another schema: a reference to itself alone has no meaning.
_recursions = st.just({"$ref": "#"})
schemas = st.recursive(
    _leaves,
    lambda children: objects(children | _recursions) | arrays(children | _recursions) | combinations(children),
    max_leaves=6,
)
roots = st.one_of(scalars(), objects(_leaves), arrays(_leaves), objects(schemas), arrays(schemas), schemas)


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> Any:
    """Return the schema with a few changes."""
    if not isinstance(tree, dict) or draw(st.integers(0, 9)) == 0:
        return draw(schemas | st.just(tree))
    result: dict[str, Any] = {}
    for keyword, value in tree.items():
        if keyword not in ("type", "$ref", "properties") and draw(st.integers(0, 5)) == 0:
            continue
        result[keyword] = draw(_changed_value(keyword, value))
    if "properties" in result:
        required = result.get("required", []) + draw(st.lists(st.sampled_from(NAMES), max_size=1))
        result["required"] = sorted({name for name in required if name in result["properties"]})
    return result


@st.composite
def _changed_value(draw: st.DrawFn, keyword: str, value: Any) -> Any:
    if keyword == "properties":
        kept = {name: draw(changed(child)) for name, child in value.items() if draw(st.integers(0, 5))}
        return draw(st.dictionaries(st.sampled_from(NAMES), schemas, max_size=1)) | kept
    if keyword in ("not", "additionalProperties", "additionalItems") or (
        keyword == "items" and isinstance(value, dict)
    ):
        return draw(changed(value))
    if keyword in ("anyOf", "allOf", "items") and isinstance(value, list):
        parts = [draw(changed(part)) for part in value] + draw(st.lists(schemas, max_size=1))
        return parts[draw(st.integers(0, 1 if len(parts) > 1 else 0)) :]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(1, value + draw(st.integers(-1, 1)))
    return value


def make_instance(random: Random, schema: Any, root: Any, depth: int = 4) -> Any:
    """Return a value that matches with a fair probability."""
    if not isinstance(schema, dict) or depth == 0 or random.random() < 0.05:
        return random.choice([*VALUES, {}, [], {"a": 1}, ["a"]])
    if "$ref" in schema:
        return make_instance(random, root, root, depth - 1)
    for keyword in ("anyOf", "allOf"):
        if keyword in schema:
            return make_instance(random, random.choice(schema[keyword]), root, depth - 1)
    kind = schema.get("type")
    if kind == "object":
        return _make_object(random, schema, root, depth - 1)
    if kind == "array":
        return _make_array(random, schema, root, depth - 1)
    return random.choice(schema.get("enum") or BY_TYPE.get(str(kind), VALUES))


def _make_object(random: Random, schema: Any, root: Any, depth: int) -> Any:
    children = dict.fromkeys(NAMES, schema.get("additionalProperties", True)) | schema.get("properties", {})
    names = {*schema.get("required", []), *random.sample(NAMES, random.randint(0, len(NAMES)))}
    return {name: make_instance(random, children[name], root, depth) for name in names if children[name] is not False}


def _make_array(random: Random, schema: Any, root: Any, depth: int) -> Any:
    items, more = schema.get("items", True), schema.get("additionalItems", True)
    first = items if isinstance(items, list) else []
    children = [*first, *([more if first else items] * 3)][: random.randint(0, 4)]
    return [make_instance(random, child, root, depth) for child in children]
