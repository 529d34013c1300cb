"""Strategies for random schemas, typical changes of them, and matching data.

A type refers to an enclosing type only inside an array, a map or a union with null, so that data is finite.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from tests.schemas.avro.shapes import array, field, map_of

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 1 << 40,
    "float": 0.5,
    "double": 1e10,
    "bytes": "ÿ",
    "string": 'a "b"\n',
}
NAMESPACES = st.sampled_from([None, None, "a", "a.b", ""])
PROPERTIES = st.dictionaries(
    st.sampled_from(["zeta", "alpha", "connect.name"]),
    st.sampled_from([1, 1.5, 1e-9, "text", None, True, [1, {"b": 1, "a": 2}], {"y": 1, "x": None}]),
    max_size=2,
)
TEXTS = st.text(st.characters(max_codepoint=127, min_codepoint=32), max_size=5)
Draw = Callable[[st.SearchStrategy[Any]], Any]


class _Generator:
    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._count = 0
        self._closed: list[str] = []
        self._open: list[str] = []

    def any_type(self, namespace: str, depth: int, *, is_in_union: bool = False) -> Any:
        kinds = ["primitive"] * 3
        if depth > 0:
            kinds += ["record", "record", "enum", "fixed", "array", "map"] + ([] if is_in_union else ["union"] * 2)
        known = _reachable(self._closed, namespace)
        if known:
            kinds.append("name")
        match self._draw(st.sampled_from(kinds)):
            case "primitive":
                return self._primitive()
            case "name":
                return self._draw(st.sampled_from(known))
            case "array":
                return {**array(self._inner(namespace, depth)), **self._draw(PROPERTIES)}
            case "map":
                return {**map_of(self._inner(namespace, depth)), **self._draw(PROPERTIES)}
            case "union":
                return self._union(namespace, depth)
            case kind:
                return self._named(kind, namespace, depth)

    def _primitive(self) -> Any:
        type_ = self._draw(st.sampled_from(PRIMITIVES))
        properties = self._draw(PROPERTIES)
        return {"type": type_, **properties} if properties else type_

    def _inner(self, namespace: str, depth: int) -> Any:
        around = _reachable(self._open, namespace)
        if around and self._draw(st.booleans()):
            return self._draw(st.sampled_from(around))
        return self.any_type(namespace, depth - 1)

    def _union(self, namespace: str, depth: int) -> list[Any]:
        branches: dict[str, Any] = {"null": "null"}
        for _ in range(self._draw(st.integers(1, 3))):
            closed = list(self._closed)
            branch = self.any_type(namespace, depth - 1, is_in_union=True)
            kind = branch.rpartition(".")[2] if isinstance(branch, str) else branch.get("name", branch["type"])
            if kind in branches:
                self._closed = closed  # the names that the branch defined are dropped with it
            else:
                branches[kind] = branch
        around = _reachable(self._open, namespace)
        if around and self._draw(st.booleans()):
            name = self._draw(st.sampled_from(around))
            branches.setdefault(name.rpartition(".")[2], name)
        return list(branches.values())

    def _named(self, kind: str, namespace: str, depth: int) -> dict[str, Any]:
        self._count += 1
        space = self._draw(NAMESPACES)
        inner = namespace if space is None else space
        simple = f"{kind.capitalize()}{self._count}"
        full = f"{inner}.{simple}" if inner else simple
        described: dict[str, Any] = {"name": simple} if space is None else {"namespace": space, "name": simple}
        described |= {"type": kind, **self._draw(PROPERTIES)}
        if self._draw(st.booleans()):
            described |= {"doc": self._draw(TEXTS), "aliases": [f"{simple}Old", "old.Name"]}
        if kind == "record":
            self._open.append(full)
            described["fields"] = [self._field(f"f{i}", inner, depth) for i in range(self._draw(st.integers(0, 3)))]
            self._open.pop()
        elif kind == "enum":
            described["symbols"] = ["A", "B", "C"][: self._draw(st.integers(1, 3))]
            described |= self._draw(st.sampled_from([{}, {"default": "A"}]))
        else:
            described["size"] = self._draw(st.integers(1, 3))
        self._closed.append(full)
        return described

    def _field(self, name: str, namespace: str, depth: int) -> dict[str, Any]:
        described = field(name, self.any_type(namespace, depth - 1), **self._draw(PROPERTIES))
        if self._draw(st.booleans()):
            described |= default_for(described["type"])
        if self._draw(st.booleans()):
            described |= self._draw(st.sampled_from([{"doc": ""}, {"order": "ignore"}, {"aliases": [f"{name}_old"]}]))
        return described


def _reachable(names: list[str], namespace: str) -> list[str]:
    """Return the names that fastavro finds: inside a namespace, unlike Java, no names without namespace."""
    return [name for name in names if not namespace or "." in name]


def default_for(type_: Any) -> dict[str, Any]:
    """Return a default for types that have a simple one; nothing for the others."""
    match type_:
        case str() if type_ in DEFAULTS:
            return {"default": DEFAULTS[type_]}
        case [first, *_]:
            return default_for(first)
        case {"type": "array"}:
            return {"default": []}
        case {"type": "map"}:
            return {"default": {}}
        case {"type": "enum", "symbols": [first, *_]}:
            return {"default": first}
        case _:
            return {}


@st.composite
def schemas(draw: Draw) -> Any:
    return _Generator(draw).any_type("", 3)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all types and fields that are JSON objects."""
    if isinstance(schema, list):
        for each in schema:
            yield from _objects(each)
    elif isinstance(schema, dict):
        yield schema
        for key in ("fields", "items", "values", "type"):
            yield from _objects(schema.get(key))


@st.composite
def mutations(draw: Draw, schema: Any) -> Any:
    changed = deepcopy(schema)
    for _ in range(draw(st.integers(1, 3))):
        objects = list(_objects(changed))
        if not objects:
            return draw(st.sampled_from(PRIMITIVES))
        _mutate(draw, draw(st.sampled_from(objects)))
    return changed


def _mutate(draw: Draw, described: dict[str, Any]) -> None:
    match described:
        case {"type": "record", "fields": list()}:
            _mutate_record(draw, described)
        case {"type": "enum"}:
            described["symbols"] = draw(st.sampled_from([["A"], ["B", "A"], ["A", "B", "C", "D"]]))
            described.pop("default", None)
        case {"type": "fixed"}:
            described["size"] = draw(st.integers(1, 3))
        case {"type": "array" | "map"} if "name" not in described:
            pass
        case {"type": str() | list() as type_} if "name" in described:
            described["type"] = _mutate_type(draw, type_)
            if "default" in described:
                described.pop("default")
                described |= default_for(described["type"])


def _mutate_type(draw: Draw, type_: Any) -> Any:
    if isinstance(type_, list):
        kept = [each for each in type_ if (each["type"] if isinstance(each, dict) else each) not in PRIMITIVES]
        return ["null", *kept, *draw(st.lists(st.sampled_from(PRIMITIVES[1:]), unique=True, max_size=2))]
    if type_ in PRIMITIVES:
        return draw(st.sampled_from([*PRIMITIVES, ["null", type_] if type_ != "null" else "null"]))
    return type_


def _mutate_record(draw: Draw, described: dict[str, Any]) -> None:
    fields = described["fields"]
    match draw(st.sampled_from(["add", "add", "turn", "alias", "move"])):
        case "add":
            added = field(f"g{len(fields)}", draw(st.sampled_from(PRIMITIVES)))
            fields.append(added | draw(st.sampled_from([{}, default_for(added["type"])])))
        case "turn":
            fields[:] = (
                fields[::-1] if not any("name" in each for each in _objects([f["type"] for f in fields])) else fields
            )
        case "alias" if fields:
            renamed = draw(st.sampled_from(fields))
            renamed |= {"aliases": [renamed["name"]], "name": f"{renamed['name']}_new"}
        case _:
            described["doc"] = "changed"


class Values:
    """Draws data for a schema. Values of named union branches carry the name, so that the writer does not guess."""

    def __init__(self, draw: Draw, schema: Any) -> None:
        self._draw = draw
        self._named: dict[str, Any] = {}
        self._collect(schema, "")
        self._schema = schema

    def draw(self) -> Any:
        return self._value(self._schema, "", 6)

    def _collect(self, type_: Any, namespace: str) -> None:
        if isinstance(type_, list):
            for each in type_:
                self._collect(each, namespace)
        elif isinstance(type_, dict):
            space = type_.get("namespace", namespace) if "name" in type_ else namespace
            if "name" in type_:
                self._named[f"{space}.{type_['name']}" if space else type_["name"]] = {**type_, "namespace": space}
            for each in (*(each["type"] for each in type_.get("fields", [])), type_.get("items"), type_.get("values")):
                self._collect(each, space)

    def _value(self, type_: Any, namespace: str, depth: int) -> Any:
        match type_:
            case list():
                return self._branch(type_, namespace, depth)
            case {"type": "array", "items": items}:
                return [self._value(items, namespace, depth - 1) for _ in range(self._size(depth))]
            case {"type": "map", "values": values}:
                return {f"k{i}": self._value(values, namespace, depth - 1) for i in range(self._size(depth))}
            case {"type": "record", "fields": fields}:
                space = type_.get("namespace", namespace)
                return {each["name"]: self._value(each["type"], space, depth - 1) for each in fields}
            case {"type": "enum", "symbols": symbols}:
                return self._draw(st.sampled_from(symbols))
            case {"type": "fixed", "size": size}:
                return b"f" * size
            case {"type": inner}:
                return self._value(inner, namespace, depth)
            case _:
                return DATA[type_] if type_ in DATA else self._value(self._named[type_], namespace, depth)

    def _size(self, depth: int) -> int:
        return int(self._draw(st.integers(0, 2))) if depth > 0 else 0

    def _branch(self, branches: list[Any], namespace: str, depth: int) -> Any:
        if depth <= 0 and "null" in branches:
            return None
        branch = self._draw(st.sampled_from(branches))
        value = self._value(branch, namespace, depth - 1)
        named = self._named.get(branch) if isinstance(branch, str) else branch
        if isinstance(named, dict) and "name" in named:
            space = named.get("namespace", namespace)
            return f"{space}.{named['name']}" if space else named["name"], value
        return value


DATA: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 3,
    "long": 1 << 33,
    "float": 0.5,
    "double": 2.5,
    "bytes": b"bytes",
    "string": "text",
}
