"""Encodes columns as Avro in the registry's wire format."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from rookery.schemas.avro import parse_registered
from rookery.schemas.avro.model import Enum
from rookery.schemas.interface import InvalidSchemaError
from rookery.serdes import Schema
from rookery.serdes.settings import AVRO_SERIALIZER_KEYS
from rookery.spark.formats.avro import encoder_kernel as kernel
from rookery.spark.formats.avro.decoder import quoted
from rookery.spark.formats.avro.derived_schema import derive_schema
from rookery.spark.formats.avro.encoder_program import EncoderProgram, Part
from rookery.spark.formats.columns import Array, ColumnEncoder, arrow_type_of
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.framing import valid_of
from rookery.spark.formats.schema_registration import WriterSchema, choose_schema

if TYPE_CHECKING:
    from rookery.spark.options import FormatOptions

_UUID: Final = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_SIZE_MAX: Final = 2**31 - 1
_INTEGERS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
# pyarrow's names of the keys and the values of maps.
_OF_MAPS: Final[dict[int | str, str]] = {"keys": "keys", "values": "items"}


class AvroEncoder(ColumnEncoder):
    def __init__(self, writer: WriterSchema, spark_type: spark.DataType) -> None:
        self._arguments = (writer, spark_type)
        self._writer = writer
        self._arrow_type = arrow_type_of(spark_type)
        try:
            root = parse_registered(quoted(writer.schema.text), writer.resolved).root
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(f"not a schema of Avro: {error}") from error
        self._program = EncoderProgram(root, spark_type)
        self._bytes_per_row = 64.0

    @classmethod
    def plan(cls, options: "FormatOptions", spark_type: spark.DataType, *, topic: str, is_key: bool) -> "AvroEncoder":
        own = Schema(options.schema or derive_schema(spark_type))
        try:
            record_name = parse_registered(quoted(own.text)).name
        except InvalidSchemaError as error:
            raise FormatError(f"not a schema of Avro: {error}") from error
        writer = choose_schema(
            options,
            own,
            schema_type="AVRO",
            keys=AVRO_SERIALIZER_KEYS,
            record_name=record_name,
            topic=topic,
            is_key=is_key,
        )
        return cls(writer, spark_type)

    def __reduce__(self) -> tuple[object, ...]:
        return AvroEncoder, self._arguments

    def encode(self, column: Array, topic: str) -> Array:
        if column.type != self._arrow_type:
            column = column.cast(self._arrow_type)
        column_slots = _ColumnSlots(self._program, column)
        valid = valid_of(column).astype(np.uint8)
        capacity = int(self._bytes_per_row * len(column)) + 64
        out, ends, size = self._run(column_slots, valid, capacity)
        if size > capacity:
            out, ends, size = self._run(column_slots, valid, size + 64)
        if size > _SIZE_MAX:
            raise FormatError("the values of this batch have more than 2 GB: write fewer rows per batch")
        self._bytes_per_row = 1.1 * size / max(len(column), 1) + 16
        validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [validity, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out[:size])]
        return pa.Array.from_buffers(pa.binary(), len(column), buffers)

    def _run(self, column_slots: "_ColumnSlots", valid: Any, capacity: int) -> tuple[Any, Any, int]:
        out, ends, failed = np.empty(capacity, np.uint8), np.zeros(len(valid) + 1, np.int64), np.full(3, -1, np.int64)
        size = self._kernel(*self._code, column_slots.slots, self._prefix, valid, out, ends, failed)
        row, failure, position = (int(each) for each in failed)
        if row >= 0:
            text = kernel.FAILURES[failure]
            raise FormatError(f"row {row} cannot be written as Avro: {self._program.paths[position]}: {text}")
        return out, ends, size

    @cached_property
    def _kernel(self) -> Any:
        return kernel.load_encode_rows()

    @cached_property
    def _code(self) -> tuple[Any, Any]:
        return self._program.arrays()

    @cached_property
    def _prefix(self) -> Any:
        return np.frombuffer(self._writer.prefix, np.uint8).copy()


class _ColumnSlots:
    """The slots of a column, and references to the arrays whose addresses are in the slots."""

    def __init__(self, program: EncoderProgram, column: Array) -> None:
        self.slots = np.zeros((program.slot_count, kernel.SLOT_COLUMNS), np.int64)
        self._kept: list[Any] = []
        self._gather(program.root, column)

    def _gather(self, part: Part, array: Array) -> None:
        if array.offset:
            # The children of a sliced array are not sliced; a copy has aligned children.
            array = pa.concat_arrays([array])
        if array.null_count:
            self._put(part, kernel.FLAGS, valid_of(array).astype(np.uint8))
        if isinstance(part.kind, spark.StructType):
            # flatten() makes the fields of a null struct null: their stored values are undefined.
            fields = array.flatten()
            for step, child in part.children:
                self._gather(child, fields[int(step)])
        elif isinstance(part.kind, spark.ArrayType | spark.MapType):
            self._put(part, kernel.NUMBERS, _numbers(array.buffers()[1], np.int32, len(array) + 1))
            for step, child in part.children:
                self._gather(child, array.values if step == "items" else getattr(array, _OF_MAPS[step]))
        elif part.node is not None or isinstance(part.kind, spark.StringType):
            self._gather_values(part, array)

    def _gather_values(self, part: Part, array: Array) -> None:
        if isinstance(part.node, Enum):
            self._put(part, kernel.NUMBERS, _symbols(part, part.node, array))
        elif isinstance(part.kind, spark.StringType | spark.BinaryType):
            if part.node is not None and part.node.properties.get("logicalType") == "uuid":
                _check_uuids(part, array)
            _, offsets, data = array.buffers()
            self._put(part, kernel.NUMBERS, _numbers(offsets, np.int32, len(array) + 1))
            if data is not None:
                self._put(part, kernel.TEXTS, np.frombuffer(data, np.uint8))
        else:
            self._put(part, kernel.NUMBERS, _values(part, array))

    def _put(self, part: Part, column: int, values: Any) -> None:
        self._kept.append(values)
        self.slots[part.slot, column] = values.ctypes.data


def _numbers(buffer: Any, kind: Any, count: int) -> Any:
    """Return a buffer as 64-bit integers."""
    if buffer is None:
        return np.zeros(count, np.int64)
    return np.frombuffer(buffer, kind, count).astype(np.int64)


def _values(part: Part, array: Array) -> Any:
    """Return the numbers in the form that the kernel writes: floats by their bits."""
    count, target = len(array), part.node.type if part.node is not None else ""
    match part.kind:
        case spark.BooleanType():
            return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
        case spark.DecimalType():
            return _numbers(array.buffers()[1], np.int64, 2 * count)
        case spark.FloatType() if target == "float":
            return _numbers(array.buffers()[1], np.uint32, count)
    kind = array.type.to_pandas_dtype() if pa.types.is_floating(array.type) else _INTEGERS[array.type.bit_width]
    buffer = array.buffers()[1]
    values = np.zeros(count, kind) if buffer is None else np.frombuffer(buffer, kind, count)
    return values.astype(np.float64).view(np.int64) if target == "double" else values.astype(np.int64)


def _symbols(part: Part, node: Enum, array: Array) -> Any:
    indexes = pc.index_in(array, value_set=pa.array(node.symbols, pa.string()))
    unknown = pc.and_(array.is_valid(), indexes.is_null())
    if pc.any(unknown).as_py():
        symbol = array.filter(unknown)[0].as_py()
        raise FormatError(f"{part.path}: {symbol!r} is not a symbol of the enum {node.full_name}")
    return indexes.fill_null(0).to_numpy().astype(np.int64)


def _check_uuids(part: Part, array: Array) -> None:
    matches = pc.match_substring_regex(array, _UUID)
    if pc.any(pc.invert(matches)).as_py():
        raise FormatError(f"{part.path}: {array.filter(pc.invert(matches))[0].as_py()!r} is not a UUID")
