"""Maps Avro schemas to Spark types and to the slots that `decoder_kernel` writes to.

The types are those of Spark's `from_avro`, with every field nullable; docs/spark-formats.md has the table. A shape is
one node of the type: its kind in Arrow, and the slot that collects its values. A struct has a slot only if it can be
null; the type null has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rookery.schemas.avro.model import Array, Map, Node, Record, Union
from rookery.schemas.avro.model import Enum as AvroEnum
from rookery.spark.formats.errors import FormatError

DECIMAL_DIGITS_MAX: Final = 38
# Named types that are used several times multiply the shapes. A table with this many columns is not usable anyway.
_SHAPES_MAX: Final = 5000
NO_SLOT: Final = -1


class Kind(Enum):
    """How values are collected and converted to an Arrow array."""

    NULL = auto()
    BOOLEAN = auto()
    NUMBER_32 = auto()
    NUMBER_64 = auto()
    FLOAT = auto()
    DOUBLE = auto()
    DECIMAL = auto()
    ENUM = auto()
    TEXT = auto()
    BINARY = auto()
    LIST = auto()
    MAP = auto()
    STRUCT = auto()


@dataclass(eq=False)
class Shape:
    """A node of the type. `parts` are the fields of a struct, the items of a list, or the keys and values of a map.

    `node` is the reader's schema of the shape. For the struct of a union's branches it is the union, and `branches` has
    the shape of each branch, None for null.
    """

    kind: Kind
    spark_type: DataType
    node: Node
    is_nullable: bool
    slot: int = NO_SLOT
    parts: tuple["Shape", ...] = ()
    symbols: tuple[str, ...] = ()
    branches: tuple["Shape | None", ...] = ()


# Logical types by the type that they annotate; others are ignored.
_LOGICAL: Final[Mapping[tuple[str, str], tuple[Kind, DataType]]] = {
    ("int", "date"): (Kind.NUMBER_32, DateType()),
    ("long", "timestamp-millis"): (Kind.NUMBER_64, TimestampType()),
    ("long", "timestamp-micros"): (Kind.NUMBER_64, TimestampType()),
    ("long", "timestamp-nanos"): (Kind.NUMBER_64, TimestampType()),
    ("long", "local-timestamp-millis"): (Kind.NUMBER_64, TimestampNTZType()),
    ("long", "local-timestamp-micros"): (Kind.NUMBER_64, TimestampNTZType()),
    ("long", "local-timestamp-nanos"): (Kind.NUMBER_64, TimestampNTZType()),
}
_PRIMITIVE: Final[Mapping[str, tuple[Kind, DataType]]] = {
    "null": (Kind.NULL, NullType()),
    "boolean": (Kind.BOOLEAN, BooleanType()),
    "int": (Kind.NUMBER_32, IntegerType()),
    "long": (Kind.NUMBER_64, LongType()),
    "float": (Kind.FLOAT, FloatType()),
    "double": (Kind.DOUBLE, DoubleType()),
    "bytes": (Kind.BINARY, BinaryType()),
    "fixed": (Kind.BINARY, BinaryType()),
    "string": (Kind.TEXT, StringType()),
}
# A union of two numeric types without logical types becomes the wider one.
_MERGED: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_KEY: Final = Node("string", {})


def decimal_of(node: Node) -> DecimalType | None:
    """Return the decimal type of a node; None if it is no decimal, or Avro ignores it for its invalid attributes."""
    if node.properties.get("logicalType") != "decimal" or node.type not in ("bytes", "fixed"):
        return None
    precision, scale = node.properties.get("precision"), node.properties.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return None
    return DecimalType(precision, scale)


class Shapes:
    """All shapes of one schema. `root` is nullable."""

    def __init__(self, root: Node) -> None:
        self.slot_kinds: list[Kind] = []
        self._count = 0
        self._inside: list[Record] = []
        self.root = self._make(root, "", is_nullable=True)

    @property
    def spark_type(self) -> DataType:
        return self.root.spark_type

    def _make(self, node: Node, path: str, *, is_nullable: bool) -> Shape:
        self._count += 1
        if self._count > _SHAPES_MAX:
            raise FormatError(f"the schema has more than {_SHAPES_MAX} parts, too many for columns")
        match node:
            case Union():
                return self._union(node, path, is_nullable=is_nullable)
            case Record():
                return self._record(node, path, is_nullable=is_nullable)
            case Array():
                slot = self._slot(Kind.LIST)
                items = self._make(node.items, f"{path}[]", is_nullable=False)
                kind = ArrayType(items.spark_type)
                return Shape(Kind.LIST, kind, node, is_nullable, slot, (items,))
            case Map():
                slot = self._slot(Kind.MAP)
                keys = self._scalar(_KEY, path, is_nullable=False)
                values = self._make(node.values, f"{path}[]", is_nullable=False)
                kind_of_map = MapType(StringType(), values.spark_type)
                return Shape(Kind.MAP, kind_of_map, node, is_nullable, slot, (keys, values))
            case _:
                return self._scalar(node, path, is_nullable=is_nullable)

    def _record(self, node: Record, path: str, *, is_nullable: bool) -> Shape:
        if node in self._inside:
            raise FormatError(
                f"the record {node.full_name} contains itself (at {path}): no Spark type can express that"
            )
        self._inside.append(node)
        slot = self._slot(Kind.STRUCT) if is_nullable else NO_SLOT
        parts = [self._make(each.type, f"{path}.{each.name}", is_nullable=False) for each in node.fields.values()]
        self._inside.pop()
        kind = StructType([StructField(name, part.spark_type) for name, part in zip(node.fields, parts, strict=True)])
        return Shape(Kind.STRUCT, kind, node, is_nullable, slot, tuple(parts))

    def _union(self, node: Union, path: str, *, is_nullable: bool) -> Shape:
        branches = [each for each in node.branches if each.type != "null"]
        is_nullable = is_nullable or len(branches) < len(node.branches)
        if not branches:
            return Shape(Kind.NULL, NullType(), node, is_nullable)
        merged = _MERGED.get(frozenset(each.type for each in branches))
        if merged is not None and not any("logicalType" in each.properties for each in branches):
            return self._scalar(Node(merged, {}), path, is_nullable=is_nullable)
        if len(branches) == 1:
            return self._make(branches[0], path, is_nullable=is_nullable)
        slot = self._slot(Kind.STRUCT) if is_nullable else NO_SLOT
        made = {each: self._make(each, f"{path}.member{i}", is_nullable=True) for i, each in enumerate(branches)}
        parts = tuple(made.values())
        kind = StructType([StructField(f"member{i}", part.spark_type) for i, part in enumerate(parts)])
        chosen = tuple(made.get(each) for each in node.branches)
        return Shape(Kind.STRUCT, kind, node, is_nullable, slot, parts, branches=chosen)

    def _scalar(self, node: Node, path: str, *, is_nullable: bool) -> Shape:
        decimal = decimal_of(node)
        if decimal is not None:
            if decimal.precision > DECIMAL_DIGITS_MAX:
                digits = f"{decimal.precision} digits, Spark's maximum is {DECIMAL_DIGITS_MAX}"
                raise FormatError(f"the decimal {path or 'of the schema'} has {digits}")
            return Shape(Kind.DECIMAL, decimal, node, is_nullable, self._slot(Kind.DECIMAL))
        if isinstance(node, AvroEnum):
            return Shape(Kind.ENUM, StringType(), node, is_nullable, self._slot(Kind.ENUM), symbols=node.symbols)
        kind, spark_type = _LOGICAL.get((node.type, str(node.properties.get("logicalType"))), _PRIMITIVE[node.type])
        slot = NO_SLOT if kind is Kind.NULL else self._slot(kind)
        return Shape(kind, spark_type, node, is_nullable, slot)

    def _slot(self, kind: Kind) -> int:
        self.slot_kinds.append(kind)
        return len(self.slot_kinds) - 1
