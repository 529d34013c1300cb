"""Strategies for Avro schemas, values of them, and readers' schemas that differ from the writers'.

The branches of a union have different kinds of Python values, so that a value determines its branch, and with it the
expected value of the column.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

Draw = st.DrawFn

SCALARS: list[Any] = [
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "string", "logicalType": "uuid"},
]
# The kind of Python values of a type; the branches of a union have different kinds.
_PYTHON_KINDS = {
    "int": "number",
    "long": "number",
    "float": "fraction",
    "double": "fraction",
    "enum": "text",
    "string": "text",
    # Records and maps are both dictionaries, and fastavro's writer tries the name of a record as a value of the map.
    "record": "map",
}
_DIGITS = st.integers(-(10**9) + 1, 10**9 - 1)


def type_of(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema if isinstance(schema, str) else schema["type"])


def python_kind_of(schema: Any) -> str:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical is not None:
        return str(logical).replace("local-", "").replace("-micros", "").replace("-millis", "")
    kind = type_of(schema)
    return _PYTHON_KINDS.get(kind, "bytes" if kind == "fixed" else kind)


def name_of(schema: Any) -> str:
    """Return the name by which the branches of a union must differ."""
    return str(schema["name"] if isinstance(schema, dict) and "name" in schema else type_of(schema))


def family_of(schema: Any) -> str:
    """Return a group of types between which a reader's union is ambiguous: fastavro uses the first branch of the group,
    Rookery the branch of the same type."""
    kind = type_of(schema)
    return (
        "number"
        if kind in ("int", "long", "float", "double")
        else "text"
        if kind in ("string", "bytes")
        else str(schema)
    )


@st.composite
def schemas(draw: Draw, depth: int = 3, names: Any = None) -> Any:
    names = names or count(1)
    kinds = ["scalar"] * 4 + ["fixed", "enum"] + (["record", "array", "map", "union", "optional"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "fixed":
            size = draw(st.integers(0, 20))
            made: dict[str, Any] = {"type": "fixed", "name": f"Fixed{next(names)}", "size": size}
            if size >= 8 and draw(st.booleans()):
                made |= {"logicalType": "decimal", "precision": 18, "scale": 3}
            return made
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, unique=True))
            return {"type": "enum", "name": f"Enum{next(names)}", "symbols": symbols}
        case "record":
            return draw(records(depth, names))
        case "array":
            return {"type": "array", "items": draw(schemas(depth - 1, names))}
        case "map":
            return {"type": "map", "values": draw(schemas(depth - 1, names))}
        case "optional":
            other = draw(schemas(depth - 1, names).filter(lambda each: type_of(each) not in ("null", "union")))
            return draw(st.permutations(["null", other]))
        case "union":
            branches = draw(
                st.lists(
                    schemas(depth - 1, names), min_size=1, max_size=4, unique_by=(python_kind_of, name_of, family_of)
                )
            )
            # If dates or decimals are branches, fastavro's writer accepts texts for them.
            return [each for each in branches if type_of(each) != "union" and "logicalType" not in each] or ["null"]
    return draw(st.sampled_from(SCALARS))


@st.composite
def records(draw: Draw, depth: int = 3, names: Any = None) -> Any:
    names = names or count(1)
    fields = draw(st.lists(schemas(depth - 1, names), min_size=0 if depth < 3 else 1, max_size=5))
    return {
        "type": "record",
        "name": f"Record{next(names)}",
        "fields": [{"name": f"f{index}", "type": each} for index, each in enumerate(fields)],
    }


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp-millis": st.integers(-(10**11), 10**12).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC)),
    "timestamp-micros": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    "local-timestamp-micros": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    "uuid": st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
}


def values(schema: Any) -> st.SearchStrategy[Any]:
    kind = type_of(schema)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal":
        return _DIGITS.map(lambda number: Decimal(number).scaleb(-schema["scale"]))
    match kind:
        case "union":
            return st.one_of([values(each) for each in schema])
        case "record":
            return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in schema["fields"]}).map(
                lambda made: {"-type": schema["name"], **made}
            )
        case "array":
            return st.lists(values(schema["items"]), max_size=4)
        case "map":
            return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4)
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "enum":
            return st.sampled_from(schema["symbols"])
    return _VALUES[logical or kind]


_PROMOTIONS = {"int": ["long", "float", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"]}
_DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 7),
    ("string", "none"),
    ("bytes", "\u00ff"),
    ("double", 0.5),
    ("boolean", True),
    (["null", "string"], None),
    (["long", "string"], 3),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": ["string", "null"]}, {"a": "b"}),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_000),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u00ff"),
]


@st.composite
def evolved(draw: Draw, schema: Any) -> Any:
    """Return a reader's schema for a writer's schema; the two are not always compatible."""
    kind, change = type_of(schema), draw(st.integers(0, 9))
    match kind:
        case "record":
            return draw(_evolved_records(schema))
        case "array":
            return schema | {"items": draw(evolved(schema["items"]))}
        case "map":
            return schema | {"values": draw(evolved(schema["values"]))}
        case "enum" if change < 4:
            left = draw(st.lists(st.sampled_from(schema["symbols"]), min_size=1, unique=True))
            return schema | {"symbols": left} | ({"default": left[0]} if change < 2 else {})
        case "union" if change < 4 and len(schema) > 1 and not any("logicalType" in each for each in schema):
            return schema[1:]
        case _ if isinstance(schema, str) and schema in _PROMOTIONS and change < 4:
            return draw(st.sampled_from(_PROMOTIONS[schema]))
        case _ if kind not in ("union", "null") and change == 4:
            return ["null", schema]
    return schema


@st.composite
def _evolved_records(draw: Draw, schema: Any) -> Any:
    fields: list[dict[str, Any]] = []
    for field in schema["fields"]:
        change = draw(st.integers(0, 9))
        if change == 0:
            continue
        made = {"name": field["name"], "type": draw(evolved(field["type"]))}
        fields.append(made | {"name": f"new_{field['name']}", "aliases": [field["name"]]} if change == 1 else made)
    for index in draw(st.lists(st.sampled_from(range(len(_DEFAULTS))), max_size=2, unique=True)):
        kind, default = _DEFAULTS[index]
        fields.append({"name": f"added{index}", "type": kind, "default": default})
    return schema | {"fields": draw(st.permutations(fields))}
