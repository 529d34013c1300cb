"""Runs `decoder_kernel` and builds Arrow arrays from the buffers that it fills.

The sizes of the buffers are estimated from the run before. If a buffer was too small, the kernel has counted the size
that it needs, and runs a second time. A batch is decoded in runs of limited size, which limits the buffers as well.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from rookery.spark.formats.avro import decoder_kernel as kernel
from rookery.spark.formats.avro.decoder_program import DecoderProgram
from rookery.spark.formats.avro.shapes import NO_SLOT, Kind, Shape
from rookery.spark.formats.columns import Array, arrow_type_of
from rookery.spark.formats.errors import FormatError

_WITH_TEXT: Final = frozenset({Kind.TEXT, Kind.BINARY})
# The maximum of the kernel's steps in a run, and so about the maximum of values.
_STEPS_MAX: Final = 8_000_000
_STEPS_PER_BYTE: Final = 32
# The next run may need this much more per row than the last.
_SPARE: Final = 1.25
# The limit of Arrow's 32-bit offsets.
_SIZE_MAX: Final = 2**31 - 1


class ProgramRunner:
    """Runs the programs of one reader for all batches."""

    def __init__(self, program: DecoderProgram) -> None:
        self._program = program
        self._arrays = program.arrays()
        kinds = program.shapes.slot_kinds
        self._has_text = np.array([kind in _WITH_TEXT for kind in kinds], bool)
        self._widths = np.array([2 if kind is Kind.DECIMAL else 1 for kind in kinds], np.int64)
        # Estimates by slot: values and bytes of text per row.
        self._values_per_row = np.ones(len(kinds))
        self._bytes_per_row = np.zeros(len(kinds))
        self._run = kernel.load_decode_rows()

    def reload(self) -> None:
        """Load the program again after a writer was added to it."""
        self._arrays = self._program.arrays()

    def decode(self, data: Any, spans: Any, entries: Any) -> tuple[Array, Any]:
        """Return the values, and the failures by row. `data` is an address, `spans` are starts and ends of rows."""
        starts, ends = spans
        budgets = self._budgets(entries) + _STEPS_PER_BYTE * (ends - starts)
        rows = np.stack([starts, ends, entries, budgets], axis=1)
        failures, done = np.zeros(len(rows), np.int64), 0
        parts: list[Array] = []
        while done < len(rows) or not parts:
            parts.append(self._decode_run(data, rows[done:], failures[done:]))
            done += len(parts[-1])
        try:
            return pa.concat_arrays(parts) if len(parts) > 1 else parts[0], failures
        except pa.ArrowInvalid as error:
            raise _too_large() from error

    def _budgets(self, entries: Any) -> Any:
        found, inverse = np.unique(entries, return_inverse=True)
        return np.array([self._program.budget(int(each)) if each >= 0 else 0 for each in found], np.int64)[inverse]

    def _decode_run(self, data: Any, rows: Any, failures: Any) -> Array:
        """Decode as many rows as fit into a run."""
        expected = min(len(rows), int(_STEPS_MAX / self._values_per_row.sum()) if len(self._widths) else len(rows))
        size_bytes = int((rows[:, kernel.LIMIT] - rows[:, kernel.START]).sum())
        text_capacity = np.minimum(self._bytes_per_row * expected + 64, size_bytes + 64).astype(np.int64)
        value_capacity = (self._values_per_row * expected).astype(np.int64) + 1
        slot_buffers = _SlotBuffers(value_capacity, text_capacity * self._has_text, self._widths)
        count = self._fill(slot_buffers, data, rows, failures)
        counted = slot_buffers.slots
        if counted[:, [kernel.COUNT, kernel.SIZE]].max(initial=0) > _SIZE_MAX:
            raise _too_large()
        if not slot_buffers.are_large_enough(self._has_text):
            slot_buffers = _SlotBuffers(
                counted[:, kernel.COUNT] + 1, counted[:, kernel.SIZE] * self._has_text, self._widths
            )
            self._fill(slot_buffers, data, rows, failures)
        if count:
            self._values_per_row = np.maximum(slot_buffers.slots[:, kernel.COUNT] / count * _SPARE, 1)
            self._bytes_per_row = slot_buffers.slots[:, kernel.SIZE] / count * _SPARE
        return _build(self._program.shapes.root, slot_buffers, count)

    def _fill(self, slot_buffers: "_SlotBuffers", data: Any, rows: Any, failures: Any) -> int:
        """Run the kernel and return the number of decoded rows."""
        return self._run(data, rows, self._program.null_entry, *self._arrays, slot_buffers.slots, failures, _STEPS_MAX)


def _too_large() -> FormatError:
    return FormatError("a column of this batch has more than 2 GB: read fewer records per batch")


class _SlotBuffers:
    """The memory of all slots: one array for numbers, one for validity flags, one for texts."""

    def __init__(self, values: Any, text_sizes: Any, widths: Any) -> None:
        self.slots = np.zeros((len(values), kernel.SLOT_COLUMNS), np.int64)
        self.numbers_starts = _starts(values * widths)
        self.flag_starts = _starts(values)
        self.text_starts = _starts(text_sizes)
        self.numbers = np.empty(self.numbers_starts[-1], np.int64)
        self.flags = np.ones(self.flag_starts[-1], np.uint8)
        self.texts = np.empty(self.text_starts[-1], np.uint8)
        self.slots[:, kernel.NUMBERS] = self.numbers.ctypes.data + 8 * self.numbers_starts[:-1]
        self.slots[:, kernel.FLAGS] = self.flags.ctypes.data + self.flag_starts[:-1]
        self.slots[:, kernel.TEXTS] = self.texts.ctypes.data + self.text_starts[:-1]
        self.slots[:, kernel.CAPACITY] = values
        self.slots[:, kernel.TEXT_CAPACITY] = text_sizes

    def are_large_enough(self, has_text: Any) -> bool:
        fit = self.slots[:, kernel.COUNT] <= self.slots[:, kernel.CAPACITY]
        text_fits = (self.slots[:, kernel.SIZE] <= self.slots[:, kernel.TEXT_CAPACITY]) | ~has_text
        return bool((fit & text_fits).all())

    def numbers_of(self, slot: int, length: int) -> Any:
        start = self.numbers_starts[slot]
        return self.numbers[start : start + length]

    def validity_of(self, slot: int, length: int) -> Any:
        """Return the validity bitmap of a slot; None if no value is null."""
        start = self.flag_starts[slot]
        flags = self.flags[start : start + length]
        return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))

    def text_of(self, slot: int) -> Any:
        start = self.text_starts[slot]
        return pa.py_buffer(self.texts[start : start + self.slots[slot, kernel.SIZE]])


def _starts(sizes: Any) -> Any:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def _build(shape: Shape, slot_buffers: _SlotBuffers, length: int) -> Array:
    kind = shape.kind
    arrow_type = arrow_type_of(shape.spark_type)
    if kind is Kind.NULL:
        return pa.nulls(length)
    validity = slot_buffers.validity_of(shape.slot, length) if shape.is_nullable and shape.slot != NO_SLOT else None
    if kind is Kind.STRUCT:
        parts = [_build(part, slot_buffers, length) for part in shape.parts]
        return pa.Array.from_buffers(arrow_type, length, [validity], children=parts)
    if kind in (Kind.LIST, Kind.MAP):
        count = int(slot_buffers.slots[shape.slot, kernel.SIZE])
        parts = [_build(part, slot_buffers, count) for part in shape.parts]
        if kind is Kind.MAP:
            entry = pa.struct([arrow_type.key_field, arrow_type.item_field])
            parts = [pa.Array.from_buffers(entry, count, [None], children=parts)]
        return pa.Array.from_buffers(
            arrow_type, length, [validity, _offsets(shape, slot_buffers, length)], children=parts
        )
    if kind in _WITH_TEXT:
        buffers = [validity, _offsets(shape, slot_buffers, length), slot_buffers.text_of(shape.slot)]
        return pa.Array.from_buffers(arrow_type, length, buffers)
    if kind is Kind.ENUM:
        indexes = pa.Array.from_buffers(pa.int64(), length, [validity, _values(shape, slot_buffers, length)])
        return pa.array(shape.symbols, pa.string()).take(indexes)
    return pa.Array.from_buffers(arrow_type, length, [validity, _values(shape, slot_buffers, length)])


def _offsets(shape: Shape, slot_buffers: _SlotBuffers, length: int) -> Any:
    offsets = np.zeros(length + 1, np.int32)
    offsets[1:] = slot_buffers.numbers_of(shape.slot, length)
    return pa.py_buffer(offsets)


def _values(shape: Shape, slot_buffers: _SlotBuffers, length: int) -> Any:
    numbers = slot_buffers.numbers_of(shape.slot, 2 * length if shape.kind is Kind.DECIMAL else length)
    match shape.kind:
        case Kind.BOOLEAN:
            numbers = np.packbits(numbers.astype(bool), bitorder="little")
        case Kind.NUMBER_32:
            numbers = numbers.astype(np.int32)
        case Kind.FLOAT:
            numbers = numbers.view(np.float64).astype(np.float32)
    return pa.py_buffer(numbers)
