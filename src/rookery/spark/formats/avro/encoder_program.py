"""Compiles a Spark type and an Avro schema to a program for `encoder_kernel`, with its slots.

Mismatches are errors before any row is written: a column that the schema does not have, a field of the schema without
a column and a default, a type that would lose information. The accepted types are those of docs/spark-formats.md, and
integers and floats that are narrower than the schema's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyspark.sql import types as spark

from rookery.records.batch_writer import encode_varint
from rookery.schemas.avro.model import Array, Enum, Fixed, Map, Node, Record, Union
from rookery.spark.formats.avro import encoder_kernel as kernel
from rookery.spark.formats.avro.default_bytes import encode_default
from rookery.spark.formats.avro.shapes import decimal_of
from rookery.spark.formats.errors import FormatError

_INTEGERS: Final = (spark.ByteType, spark.ShortType, spark.IntegerType)
_LONGS: Final = (*_INTEGERS, spark.LongType)
_ACCEPTED: Final[dict[str, tuple[type[spark.DataType], ...]]] = {
    "boolean": (spark.BooleanType,),
    "int": (*_INTEGERS, spark.DateType),
    "long": (*_LONGS, spark.DayTimeIntervalType, spark.TimestampType, spark.TimestampNTZType),
    "float": (spark.FloatType,),
    "double": (spark.DoubleType, spark.FloatType, *_INTEGERS),
    "bytes": (spark.BinaryType, spark.StringType),
    "string": (spark.StringType,),
    "fixed": (spark.BinaryType,),
    "enum": (spark.StringType,),
}
_TIMES: Final = (spark.TimestampType, spark.TimestampNTZType)
# From microseconds: the factor and the divisor.
_UNITS: Final = {"millis": (1, 1000), "micros": (1, 1), "nanos": (1000, 1)}
_DEPTH_MAX: Final = 100


@dataclass(eq=False)
class Part:
    """A part of the column. `children` are its fields by number, or "items", "keys" and "values"."""

    slot: int
    kind: spark.DataType
    path: str
    node: Node | None = None
    children: list[tuple[int | str, "Part"]] = field(default_factory=list)


class EncoderProgram:
    """The program of a column. Raises FormatError if the column does not fit the schema."""

    def __init__(self, root: Node, kind: spark.DataType) -> None:
        self.code: list[tuple[int, int, int, int]] = []
        self.paths: list[str] = []
        self._constants = bytearray()
        self._slot_count = 0
        self.root = self._part(kind, "$")
        if root.type == "bytes":
            self._value(root, self.root)
            self.code[-1] = (kernel.REST, *self.code[-1][1:])
        else:
            self._write(root, self.root, 0)
        self._emit(kernel.END, self.root)

    @property
    def slot_count(self) -> int:
        return self._slot_count

    def arrays(self) -> tuple[Any, Any]:
        constants = np.frombuffer(bytes(self._constants) or b"\0", np.uint8).copy()
        return np.array(self.code, np.int64), constants

    def _part(self, kind: spark.DataType, path: str) -> Part:
        self._slot_count += 1
        return Part(self._slot_count - 1, kind, path)

    def _child(self, part: Part, step: int | str, kind: spark.DataType, path: str) -> Part:
        made = self._part(kind, path)
        part.children.append((step, made))
        return made

    def _emit(self, operation: int, part: Part, first: int = 0, second: int = 0) -> int:
        self.code.append((operation, part.slot, first, second))
        self.paths.append(part.path)
        return len(self.code) - 1

    def _patch(self, position: int) -> None:
        """Set the target of the jump at `position` to the next instruction."""
        operation, slot, _, second = self.code[position]
        self.code[position] = (operation, slot, len(self.code), second)

    def _constant(self, data: bytes, part: Part) -> None:
        self._emit(kernel.CONSTANT, part, len(self._constants), len(data))
        self._constants += data

    def _write(self, node: Node, part: Part, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise FormatError(f"{part.path} is nested too deeply")
        if isinstance(node, Union):
            self._write_union(node, part, depth)
        elif isinstance(part.kind, spark.NullType):
            if node.type != "null":
                raise self._misfit(node, part)
        else:
            self._emit(kernel.REQUIRED, part)
            self._value(node, part, depth)

    def _write_union(self, union: Union, part: Part, depth: int) -> None:
        names = [each.type for each in union.branches]
        null = names.index("null") if "null" in names else None
        others = [index for index, name in enumerate(names) if name != "null"]
        if isinstance(part.kind, spark.NullType):
            if null is None:
                raise self._misfit(union, part)
            self._constant(encode_varint(null), part)
            return
        is_null = self._emit(kernel.REQUIRED if null is None else kernel.IF_NULL, part)
        if len(others) > 1 and _has_members(part.kind, len(others)):
            ends = self._write_members(union, part, others, depth)
        else:
            chosen = next((index for index in others if _accepts(union.branches[index], part.kind)), None)
            if chosen is None:
                raise self._misfit(union, part)
            self._constant(encode_varint(chosen), part)
            self._value(union.branches[chosen], part, depth + 1)
            ends = [self._emit(kernel.JUMP, part)]
        if null is not None:
            self._patch(is_null)
            self._constant(encode_varint(null), part)
        for end in ends:
            self._patch(end)

    def _write_members(self, union: Union, part: Part, others: list[int], depth: int) -> list[int]:
        """Write the member that is not null; return the jumps to the end.

        If all members are null, the value is the union's null, or fails if the union has none.
        """
        assert isinstance(part.kind, spark.StructType)
        ends = []
        for number, index in enumerate(others):
            member = part.kind[number]
            child = self._child(part, number, member.dataType, f"{part.path}.{member.name}")
            is_null = self._emit(kernel.IF_NULL, child)
            self._constant(encode_varint(index), child)
            self._value(union.branches[index], child, depth + 1)
            ends.append(self._emit(kernel.JUMP, child))
            self._patch(is_null)
        if len(others) == len(union.branches):
            self._emit(kernel.FAIL, part)
        return ends

    def _value(self, node: Node, part: Part, depth: int = 0) -> None:
        """Emit the instructions for a value that is not null."""
        if not _accepts(node, part.kind):
            raise self._misfit(node, part)
        match node, part.kind:
            case Record(), spark.StructType():
                self._record(node, part, part.kind, depth)
            case Array(), spark.ArrayType():
                items = self._child(part, "items", part.kind.elementType, f"{part.path}[]")
                self._loop(part, lambda: self._write(node.items, items, depth + 1))
            case Map(), spark.MapType():
                keys = self._child(part, "keys", part.kind.keyType, f"{part.path} (keys)")
                values = self._child(part, "values", part.kind.valueType, f"{part.path}[]")
                self._loop(part, lambda: self._entry(node, keys, values, depth))
            case _:
                self._scalar(node, part)

    def _entry(self, node: Map, keys: Part, values: Part, depth: int) -> None:
        self._emit(kernel.SPAN, keys)
        self._write(node.values, values, depth + 1)

    def _loop(self, part: Part, emit: Callable[[], None]) -> None:
        head = self._emit(kernel.LIST, part)
        emit()
        self._emit(kernel.NEXT, part, head + 1)
        self._patch(head)

    def _record(self, node: Record, part: Part, kind: spark.StructType, depth: int) -> None:
        extra = [name for name in kind.names if name not in node.fields]
        if extra:
            raise FormatError(f"{part.path}: the schema {node.full_name} has no field {', '.join(extra)}")
        for each in node.fields.values():
            if each.name in kind.names:
                child = kind[each.name]
                step = kind.names.index(each.name)
                self._write(each.type, self._child(part, step, child.dataType, f"{part.path}.{each.name}"), depth + 1)
            else:
                default = encode_default(each)
                if default is None:
                    raise FormatError(f"there is no column {part.path}.{each.name}, and no default for it")
                self._constant(default, part)

    def _scalar(self, node: Node, part: Part) -> None:
        part.node = node
        if isinstance(part.kind, spark.DecimalType):
            self._emit(kernel.DECIMAL, part, second=node.size if isinstance(node, Fixed) else -1)
            return
        match node.type:
            case "boolean":
                self._emit(kernel.BOOLEAN, part)
            case "float":
                self._emit(kernel.FLOAT, part)
            case "double":
                self._emit(kernel.DOUBLE, part)
            case "string" | "bytes":
                self._emit(kernel.SPAN, part)
            case "fixed":
                assert isinstance(node, Fixed)
                self._emit(kernel.FIXED, part, node.size)
            case _ if isinstance(part.kind, _TIMES) and _unit(node) is not None:
                factor, divisor = _UNITS[_unit(node) or "micros"]
                self._emit(kernel.LONG if factor == divisor else kernel.SCALED, part, factor, divisor)
            case _:
                self._emit(kernel.LONG, part)

    def _misfit(self, node: Node, part: Part) -> FormatError:
        kind = "a union without a branch for it" if isinstance(node, Union) else node.full_name
        logical = node.properties.get("logicalType")
        shown = f"{kind} ({logical})" if logical else kind
        return FormatError(f"{part.path} is of type {part.kind.simpleString()}, but the schema has {shown}: cast it")


def _has_members(kind: spark.DataType, count: int) -> bool:
    return isinstance(kind, spark.StructType) and kind.names == [f"member{index}" for index in range(count)]


def _accepts(node: Node, kind: spark.DataType) -> bool:
    """Whether `node` can hold values of `kind`, judged by the outermost type."""
    match node:
        case Record():
            return isinstance(kind, spark.StructType)
        case Array():
            return isinstance(kind, spark.ArrayType)
        case Map():
            return isinstance(kind, spark.MapType) and isinstance(kind.keyType, spark.StringType)
        case Enum():
            return isinstance(kind, spark.StringType)
    if isinstance(kind, spark.DecimalType):
        wanted = decimal_of(node)
        return wanted is not None and wanted.scale == kind.scale and wanted.precision >= kind.precision
    if decimal_of(node) is not None:
        return False
    if isinstance(kind, _TIMES):
        return node.type == "long" and _unit(node) is not None
    if isinstance(kind, spark.DateType):
        return node.type == "int" and node.properties.get("logicalType") == "date"
    return isinstance(kind, _ACCEPTED.get(node.type, ()))


def _unit(node: Node) -> str | None:
    kind, _, unit = str(node.properties.get("logicalType")).rpartition("-")
    return unit if kind in ("timestamp", "local-timestamp") and unit in _UNITS else None
