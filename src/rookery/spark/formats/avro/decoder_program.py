"""Compiles Avro's schema resolution, from a writer's schema to the reader's, to programs for `decoder_kernel`.

A program follows the writer's schema, because that is the order of the data. Fields that the reader does not have are
skipped, fields that only the reader has are constants, the others are read into the reader's slots. The schemas are
resolved here, once for each writer; only choices in the data are left to the kernel.

The rules are Avro's, as in its Java library: in a reader's union, the first branch of the same type is used, else the
first to which the value can be promoted. Names are compared without their namespaces, and aliases are the reader's.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from rookery.schemas.avro.defaults import is_valid_default
from rookery.schemas.avro.model import MISSING, Array, Enum, Field, Fixed, Map, Named, Node, Record, Union
from rookery.spark.formats.avro import decoder_kernel as kernel
from rookery.spark.formats.avro.shapes import NO_SLOT, Kind, Shape, Shapes, decimal_of

_PROMOTIONS: Final = frozenset(
    {
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
    }
)
# The factor and the divisor that convert a unit to microseconds.
_UNITS: Final[Mapping[str, tuple[int, int]]] = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}
_SKIPPED_SIZES: Final = {"boolean": 1, "float": 4, "double": 8}
_UNKNOWN: Final = -1
_ALL_THAT_IS_LEFT: Final = -1
_WORD: Final = 2**64
_LONG_MAX: Final = 2**63 - 1
# Steps of a row in addition to those for the program and its bytes: for short lists of values that take no bytes.
_BUDGET_OF_ROW: Final = 1000
# A larger default is not written by hand but results from nested records whose fields multiply.
_DEFAULT_SIZE_MAX: Final = 5000


class DecoderProgram:
    """The programs of all writers seen so far, for one reader."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.messages: list[str] = []
        self._code: list[tuple[int, int, int, int]] = []
        self._table: list[int] = []
        self._constants = bytearray()
        self._skips: dict[Record, int] = {}
        self._unplaced: dict[Record, list[int]] = {}
        self._takes_no_bytes: dict[Record, bool] = {}
        self._sizes: dict[int, int] = {}
        self._code_size_max = 0
        self.null_entry = self._entry(lambda: self._null(shapes.root))

    def add(self, writer: Node, reader: Node) -> int:
        """Compile the program for a writer and return where it starts. `reader` is the schema of the shapes."""
        if writer.type == "bytes":
            return self._entry(lambda: self._read_bare_bytes(writer, reader))
        return self._entry(lambda: self._read(writer, reader, self.shapes.root))

    def budget(self, entry: int) -> int:
        """Return the steps of a row in addition to those for its bytes: enough for all instructions outside loops."""
        return _BUDGET_OF_ROW + 2 * self._sizes[entry]

    def arrays(self) -> tuple[Any, Any, Any]:
        """Return code, table and constants as the kernel takes them; none is empty."""
        constants = np.frombuffer(bytes(self._constants) or b"\0", np.uint8).copy()
        return np.array(self._code, np.int64), np.array(self._table or [0], np.int64), constants

    def _entry(self, emit: Callable[[], None]) -> int:
        entry, constants_start = len(self._code), len(self._constants)
        emit()
        self._emit(kernel.END)
        self._place_skips()
        constants_size = len(self._constants) - constants_start
        self._sizes[entry] = len(self._code) - entry + constants_size // kernel.STEP_BYTES
        return entry

    def _emit(self, operation: int, slot: int = NO_SLOT, first: int = 0, second: int = 0) -> int:
        """Append an instruction and return its position."""
        self._code.append((operation, slot, first, second))
        return len(self._code) - 1

    def _patch(self, position: int, first: int) -> None:
        operation, slot, _, second = self._code[position]
        self._code[position] = (operation, slot, first, second)

    def _fail(self, message: str) -> None:
        self._emit(kernel.FAIL, first=len(self.messages))
        self.messages.append(message)

    def _read(self, writer: Node, reader: Node, shape: Shape) -> None:
        if isinstance(writer, Union):
            self._choose(writer, lambda branch: self._read(branch, reader, shape))
        elif isinstance(reader, Union):
            self._read_into_union(writer, reader, shape)
        elif not _matches(writer, reader):
            self._fail(f"the reader's schema has {reader.full_name} where {writer.full_name} was written")
        else:
            self._read_same(writer, reader, shape)

    def _choose(self, union: Union, emit: Callable[[Node], None]) -> None:
        start = len(self._table)
        self._table += [0] * len(union.branches)
        self._emit(kernel.UNION, first=start, second=len(union.branches))
        jumps = []
        for index, branch in enumerate(union.branches):
            self._table[start + index] = len(self._code)
            emit(branch)
            jumps.append(self._emit(kernel.JUMP))
        for jump in jumps:
            self._patch(jump, len(self._code))

    def _read_into_union(self, writer: Node, reader: Union, shape: Shape) -> None:
        found = _find_branch(writer, reader)
        if found is None:
            self._fail(f"the reader's schema has a union without {writer.full_name}, which was written")
        elif writer.type == "null":
            self._null(shape)
        elif not shape.branches:
            self._read(writer, reader.branches[found], shape)
        else:
            self._present(shape)
            chosen = shape.branches[found]
            for part in shape.parts:
                if part is chosen:
                    self._read(writer, reader.branches[found], part)
                else:
                    self._null(part)

    def _read_same(self, writer: Node, reader: Node, shape: Shape) -> None:
        match writer, reader:
            case Record(), Record():
                self._read_record(writer, reader, shape)
            case Array(), Array():
                items = shape.parts[0]
                self._loop(shape.slot, lambda: self._read(writer.items, reader.items, items))
            case Map(), Map():
                self._loop(shape.slot, lambda: self._read_entry(writer, reader, shape))
            case Enum(), Enum():
                self._read_enum(writer, reader, shape)
            case _:
                self._read_scalar(writer, reader, shape)

    def _read_entry(self, writer: Map, reader: Map, shape: Shape) -> None:
        keys, values = shape.parts
        self._emit(kernel.TEXT, keys.slot)
        self._read(writer.values, reader.values, values)

    def _loop(self, slot: int, emit: Callable[[], None]) -> None:
        self._emit(kernel.LIST)
        head = self._emit(kernel.NEXT, slot)
        emit()
        self._emit(kernel.JUMP, first=head)
        self._patch(head, len(self._code))

    def _read_record(self, writer: Record, reader: Record, shape: Shape) -> None:
        parts = dict(zip(reader.fields, shape.parts, strict=True))
        sources = {each.name: _find_source(writer, each) for each in reader.fields.values()}
        targets = {source: name for name, source in sources.items() if source is not None}
        missing = [name for name, source in sources.items() if source is None]
        without_default = [name for name in missing if not _has_default(reader.fields[name])]
        if without_default:
            self._fail(f"{reader.full_name} has no default for {', '.join(without_default)}, which was not written")
            return
        self._present(shape)
        for field in writer.fields.values():
            if field.name in targets:
                target = reader.fields[targets[field.name]]
                self._read(field.type, target.type, parts[target.name])
            else:
                self._skip(field.type)
        for name in missing:
            self._default(reader.fields[name], parts[name])

    def _read_enum(self, writer: Enum, reader: Enum, shape: Shape) -> None:
        indexes = {symbol: index for index, symbol in enumerate(reader.symbols)}
        default = _UNKNOWN if reader.default is None else indexes.get(reader.default, _UNKNOWN)
        start = len(self._table)
        self._table += [indexes.get(symbol, default) for symbol in writer.symbols]
        self._emit(kernel.ENUM, shape.slot, start, len(writer.symbols))

    def _read_scalar(self, writer: Node, reader: Node, shape: Shape) -> None:
        match shape.kind:
            case Kind.BOOLEAN:
                self._emit(kernel.BOOLEAN, shape.slot, second=1)
            case Kind.NUMBER_32:
                self._emit(kernel.INT, shape.slot)
            case Kind.NUMBER_64:
                factor, divisor = _unit(writer) or _unit(reader) or (1, 1)
                is_plain = _unit(reader) is None or factor == divisor
                self._emit(kernel.LONG if is_plain else kernel.SCALED, shape.slot, factor, divisor)
            case Kind.FLOAT | Kind.DOUBLE:
                if writer.type in ("int", "long"):
                    self._emit(kernel.INTEGER_AS_DOUBLE, shape.slot)
                else:
                    is_float = writer.type == "float"
                    self._emit(kernel.FLOAT if is_float else kernel.DOUBLE, shape.slot, second=4 if is_float else 8)
            case Kind.TEXT:
                self._emit(kernel.TEXT, shape.slot)
            case Kind.BINARY if isinstance(writer, Fixed):
                self._emit(kernel.FIXED, shape.slot, second=writer.size)
            case Kind.BINARY:
                self._emit(kernel.BYTES, shape.slot)
            case Kind.DECIMAL:
                self._read_decimal(writer, reader, shape)

    def _read_decimal(self, writer: Node, reader: Node, shape: Shape, size: int | None = None) -> None:
        written, wanted = decimal_of(writer), decimal_of(reader)
        assert wanted is not None
        if writer.type == "string":
            self._fail("the reader's schema has a decimal where a string was written")
            return
        if written is not None and written.scale != wanted.scale:
            self._fail(f"a decimal was written with scale {written.scale}, the reader's has {wanted.scale}")
            return
        limit = len(self._table)
        self._table += _words(10**wanted.precision)
        if isinstance(writer, Fixed):
            size = writer.size
        if size is None:
            self._emit(kernel.DECIMAL_BYTES, shape.slot, limit)
        else:
            self._emit(kernel.DECIMAL_FIXED, shape.slot, limit, size)

    def _read_bare_bytes(self, writer: Node, reader: Node) -> None:
        """Compile a schema that is just `bytes`: in the wire format, such data has no size before the bytes."""
        shape = self.shapes.root
        index = _find_branch(writer, reader)
        if index is None:
            self._fail(f"the reader's schema has {reader.full_name} where bytes were written")
            return
        found, chosen = _branches(reader)[index], shape.branches[index] if shape.branches else shape
        assert chosen is not None
        if shape.branches:
            self._present(shape)
        for part in shape.parts if shape.branches else (shape,):
            if part is not chosen:
                self._null(part)
            elif part.kind is Kind.DECIMAL:
                self._read_decimal(writer, found, part, _ALL_THAT_IS_LEFT)
            else:
                operation = kernel.REST_TEXT if part.kind is Kind.TEXT else kernel.REST
                self._emit(operation, part.slot, second=_ALL_THAT_IS_LEFT)

    def _present(self, shape: Shape) -> None:
        if shape.slot != NO_SLOT:
            self._emit(kernel.PRESENT, shape.slot)

    def _null(self, shape: Shape) -> None:
        match shape.kind:
            case Kind.NULL:
                return
            case Kind.TEXT | Kind.BINARY | Kind.LIST | Kind.MAP:
                self._emit(kernel.NULL_SPAN, shape.slot)
            case Kind.STRUCT:
                if shape.slot != NO_SLOT:
                    self._emit(kernel.NULL, shape.slot)
                for part in shape.parts:
                    self._null(part)
            case _:
                self._emit(kernel.NULL, shape.slot, first=int(shape.kind is Kind.DECIMAL))

    def _skip(self, node: Node) -> None:
        match node:
            case Union():
                self._choose(node, self._skip)
            case Record() if self._is_nothing(node):
                return
            case Record():
                # A call, not inline code: records may contain themselves, and repeated types would multiply the code.
                self._unplaced.setdefault(node, []).append(self._emit(kernel.CALL))
            case Array():
                self._loop(NO_SLOT, lambda: self._skip(node.items))
            case Map():
                self._loop(NO_SLOT, lambda: self._skip_entry(node))
            case Fixed():
                self._emit(kernel.SKIP, second=node.size)
            case _ if node.type in _SKIPPED_SIZES:
                self._emit(kernel.SKIP, second=_SKIPPED_SIZES[node.type])
            case _ if node.type in ("string", "bytes"):
                self._emit(kernel.SKIP_SPAN)
            case _ if node.type != "null":
                self._emit(kernel.SKIP_VARINT)

    def _is_nothing(self, node: Node) -> bool:
        """Whether values of a type take no bytes. A record that contains itself counts as taking bytes."""
        if isinstance(node, Record):
            if node not in self._takes_no_bytes:
                self._takes_no_bytes[node] = False
                self._takes_no_bytes[node] = all(self._is_nothing(each.type) for each in node.fields.values())
            return self._takes_no_bytes[node]
        return node.size == 0 if isinstance(node, Fixed) else node.type == "null"

    def _skip_entry(self, node: Map) -> None:
        self._emit(kernel.SKIP_SPAN)
        self._skip(node.values)

    def _place_skips(self) -> None:
        while self._unplaced:
            node, calls = self._unplaced.popitem()
            if node not in self._skips:
                self._skips[node] = len(self._code)
                for field in node.fields.values():
                    self._skip(field.type)
                self._emit(kernel.RETURN)
            for call in calls:
                self._patch(call, self._skips[node])

    def _default(self, field: Field, shape: Shape) -> None:
        start = len(self._code)
        self._code_size_max = start + _DEFAULT_SIZE_MAX
        try:
            self._constant(field.type, field.default, shape)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
            # Old registries accepted schemas whose defaults are not values of their types.
            del self._code[start:]
            self._fail(f"the default of {field.name}, which was not written, cannot be used")

    def _constant(self, node: Node, value: Any, shape: Shape) -> None:
        if len(self._code) > self._code_size_max:
            raise ValueError("too large")
        match node:
            case Union():
                self._constant_of_union(node, value, shape)
            case Record():
                self._present(shape)
                for field, part in zip(node.fields.values(), shape.parts, strict=True):
                    self._constant(field.type, value.get(field.name, field.default), part)
            case Array():
                for each in value:
                    self._emit(kernel.CONSTANT_ITEM, shape.slot)
                    self._constant(node.items, each, shape.parts[0])
                self._emit(kernel.CONSTANT_LIST, shape.slot)
            case Map():
                for key, each in value.items():
                    self._emit(kernel.CONSTANT_ITEM, shape.slot)
                    self._constant_span(key.encode(), shape.parts[0])
                    self._constant(node.values, each, shape.parts[1])
                self._emit(kernel.CONSTANT_LIST, shape.slot)
            case _:
                self._constant_scalar(node, value, shape)

    def _constant_of_union(self, node: Union, value: Any, shape: Shape) -> None:
        """Emit the default of a union, which is a value of its first branch."""
        first = node.branches[0]
        if first.type == "null":
            self._null(shape)
        elif not shape.branches:
            self._constant(first, value, shape)
        else:
            self._present(shape)
            for part in shape.parts:
                if part is shape.branches[0]:
                    self._constant(first, value, part)
                else:
                    self._null(part)

    def _constant_scalar(self, node: Node, value: Any, shape: Shape) -> None:
        match shape.kind:
            case Kind.NULL:
                return
            case Kind.TEXT:
                self._constant_span(value.encode(), shape)
            case Kind.BINARY:
                self._constant_span(value.encode("latin-1"), shape)
            case Kind.DECIMAL:
                number = int.from_bytes(value.encode("latin-1"), "big", signed=True)
                digits = decimal_of(node)
                assert digits is not None
                words = _words(_checked(number, 10**digits.precision - 1))
                self._emit(kernel.CONSTANT_DECIMAL, shape.slot, *words)
            case Kind.FLOAT | Kind.DOUBLE:
                (bits,) = struct.unpack("<q", struct.pack("<d", value))
                self._emit(kernel.CONSTANT, shape.slot, bits)
            case Kind.ENUM:
                self._emit(kernel.CONSTANT, shape.slot, shape.symbols.index(value))
            case _:
                factor, divisor = _unit(node) or (1, 1)
                self._emit(kernel.CONSTANT, shape.slot, _checked(int(value) // divisor * factor, _LONG_MAX))

    def _constant_span(self, data: bytes, shape: Shape) -> None:
        self._emit(kernel.CONSTANT_SPAN, shape.slot, len(self._constants), len(data))
        self._constants += data


def _branches(node: Node) -> tuple[Node, ...]:
    return node.branches if isinstance(node, Union) else (node,)


def _find_branch(writer: Node, reader: Node) -> int | None:
    branches = list(enumerate(_branches(reader)))
    same = (index for index, each in branches if each.full_name == writer.full_name and _matches(writer, each))
    return next(same, next((index for index, each in branches if _matches(writer, each)), None))


def _matches(writer: Node, reader: Node) -> bool:
    if isinstance(writer, Union) or isinstance(reader, Union):
        return True
    match writer, reader:
        case Map(), Map():
            return _matches(writer.values, reader.values)
        case Array(), Array():
            return _matches(writer.items, reader.items)
        case Named(), Named():
            names = {reader.name.simple, *(each.full for each in reader.aliases)}
            is_fitting = not isinstance(writer, Fixed) or not isinstance(reader, Fixed) or writer.size == reader.size
            return writer.type == reader.type and is_fitting and bool(names & {writer.name.simple, writer.name.full})
    return writer.type == reader.type or (writer.type, reader.type) in _PROMOTIONS


def _find_source(writer: Record, field: Field) -> str | None:
    return next((name for name in (field.name, *field.aliases) if name in writer.fields), None)


def _has_default(field: Field) -> bool:
    """Whether a field has a valid default; an invalid one counts as none, as in the serializers."""
    return field.default is not MISSING and is_valid_default(field.type, field.default)


def _unit(node: Node) -> tuple[int, int] | None:
    kind, _, unit = str(node.properties.get("logicalType")).rpartition("-")
    return _UNITS.get(unit) if node.type == "long" and kind in ("timestamp", "local-timestamp") else None


def _checked(number: int, highest: int) -> int:
    if abs(number) > highest:
        raise ValueError("too large")
    return number


def _words(number: int) -> tuple[int, int]:
    """Return the low and the high word of a number, signed."""
    low, high = number % _WORD, number // _WORD
    return low - _WORD if low >= _WORD // 2 else low, high
