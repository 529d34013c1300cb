"""The loops over single records that `columnar` runs as machine code: numba compiles them when they are first needed.

They are plain functions over numpy arrays. `load_kernels` compiles them, and caches the result on disk, next to this
file or in the user's cache directory, so that only the first process on a machine waits for the compiler.
`docs/decisions/0010` explains the choice of numba.

The bytes are untrusted, and there are no bounds checks except those written here. The rules: a position is compared
with the end before a byte is read there; a size is compared with what is left before it is added to a position; output
is written only for valid records, for which the caller has allocated enough memory (`columnar` says how much). Numbers
are 64-bit and wrap around.

Every error is reported by the return value. `columnar` is the only caller of these kernels; other modules with their
own kernels build them with `compile_kernel`.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # numba's compiler has no stubs
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Int32s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
# A 64-bit machine integer, which has no Python type.
Int: TypeAlias = Any
Address: TypeAlias = Any
# One row for each batch.
Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]

OK = -1
_FAILED = -1
_NULL = -1
_VARINT_BITS_MAX = 70

# The columns of the table of batches to decode.
START, END, RECORD_COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, TIMESTAMP_TYPE, APPEND_TIMESTAMP = range(8)
# The range of offsets to keep, without END_OFFSET.
FIRST_OFFSET, END_OFFSET = 8, 9
DECODE_COLUMNS = 10

# The progress of decoding: rows and bytes written so far, over all calls, and how many headers are to be written.
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NULL_KEYS, NULL_VALUES = range(8)
STATE_SIZE = 8

# The columns of the table of encoded batches.
GROUP, PAYLOAD_START, PAYLOAD_END, COUNT, FIRST_TIMESTAMP, MAX_TIMESTAMP, RECORD_SIZE_MAX = range(7)
ENCODE_COLUMNS = 7

# The largest size of a record without headers in addition to key and value, and of a header in addition to its key and
# value. Sizes that `columnar` accepts are below 2**31, and their varints have at most 5 bytes.
RECORD_OVERHEAD_MAX = 36
HEADER_OVERHEAD_MAX = 10

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


# Groups of arrays are plain tuples: named tuples would tie the cached machine code to the classes of this version.

# Output for rows, in Arrow's column layout: offsets, timestamps, timestamp types; offsets, bytes and validity of keys,
# and of values. The column offsets have one entry more than there are rows, validity has a byte for each row.
RowArrays: TypeAlias = tuple[Int64s, Int64s, Int32s, Int32s, Bytes, Bytes, Int32s, Bytes, Bytes]
# Output for headers: list offsets; offsets and bytes of keys; offsets, bytes and validity of values.
HeaderArrays: TypeAlias = tuple[Int32s, Int32s, Bytes, Int32s, Bytes, Bytes]
# Keys or values to encode: offsets, bytes and validity, which is empty if none is null.
BinaryColumn: TypeAlias = tuple[Int64s, Bytes, Bytes]
# Headers to encode: list offsets, which are empty if there are no headers; keys and values.
HeaderColumn: TypeAlias = tuple[Int64s, BinaryColumn, BinaryColumn]


# Bytes are accessed by address: numba counts a reference, atomically, for an array that is passed to a function, which
# took two thirds of the time of a pass.
_BYTE, _WORD = ir.IntType(8), ir.IntType(64)


def _load_byte(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], _BYTE.as_pointer())), _WORD)

    return types.int64(types.int64), generate


def _load_int64(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)

    return types.int64(types.int64), generate


def _store_byte(_: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(builder.trunc(arguments[1], _BYTE), builder.inttoptr(arguments[0], _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _store_int64(_: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _copy_bytes(_: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy with the C library: for 100 bytes a loop takes three times as long, and an assigned slice twice as long."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, origin = (builder.inttoptr(address, _BYTE.as_pointer()) for address in arguments[:2])
        memory_copy: Any = cgutils.raw_memcpy
        memory_copy(builder, to, origin, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


load_byte: Any = intrinsic(_load_byte)
load_int64: Any = intrinsic(_load_int64)
store_byte: Any = intrinsic(_store_byte)
store_int64: Any = intrinsic(_store_int64)
copy_bytes: Any = intrinsic(_copy_bytes)


def address_of(array: Any) -> Int:
    return np.int64(array.ctypes.data)


def read_long_varint(data: Address, position: Int, end: Int) -> tuple[Int, Int]:
    """Like `read_varint`, for any length."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = load_byte(data + position)
        position += 1
        raw |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
        if shift == _VARINT_BITS_MAX:
            break
    return np.int64(0), np.int64(_FAILED)


def read_varint(data: Address, position: Int, end: Int) -> tuple[Int, Int]:
    """Return a zigzag varint that must end before `end`, and the position after it, -1 if it does not."""
    if position < end:
        byte = load_byte(data + position)
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        if position + 1 < end:
            second = load_byte(data + position + 1)
            if second < 0x80:
                byte = (byte & 0x7F) | (second << 7)
                return (byte >> 1) ^ -(byte & 1), position + 2
    return read_long_varint(data, position, end)


def measure_headers(data: Address, position: Int, end: Int) -> tuple[Int, Int, Int]:
    """Return the number of headers in the rest of a record, and the bytes of their keys and values; -1 if malformed."""
    count, position = read_varint(data, position, end)
    if position < 0 or count < 0 or count > end - position:
        return np.int64(_FAILED), np.int64(0), np.int64(0)
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for _ in range(count):
        size, position = read_varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return np.int64(_FAILED), np.int64(0), np.int64(0)
        position += size
        key_bytes += size
        size, position = read_varint(data, position, end)
        if position < 0 or size < _NULL or size > end - position:
            return np.int64(_FAILED), np.int64(0), np.int64(0)
        if size > 0:
            position += size
            value_bytes += size
    if position != end:
        return np.int64(_FAILED), np.int64(0), np.int64(0)
    return count, key_bytes, value_bytes


def read_record(data: Address, start: Int, limit: Int) -> tuple[Int, Int, Int, Int, Int, Int, Int]:
    """Read one record of a batch whose records end at `limit`.

    Returns its end, timestamp delta, offset delta, key start and size, value start and size. The sizes are -1 for null,
    the end is -1 if the record is malformed. At least one byte follows the value.
    """
    zero, failed = np.int64(0), np.int64(_FAILED)
    size, position = read_varint(data, start, limit)
    if position < 0 or size < 1 or size > limit - position:
        return failed, zero, zero, zero, zero, zero, zero
    end = position + size
    # One byte of record attributes, unused so far, precedes the timestamp.
    timestamp_delta, position = read_varint(data, position + 1, end)
    if position < 0:
        return failed, zero, zero, zero, zero, zero, zero
    offset_delta, position = read_varint(data, position, end)
    if position < 0:
        return failed, zero, zero, zero, zero, zero, zero
    key_size, key_start = read_varint(data, position, end)
    if key_start < 0 or key_size < _NULL or key_size > end - key_start:
        return failed, zero, zero, zero, zero, zero, zero
    value_size, value_start = read_varint(data, key_start + max(key_size, zero), end)
    if value_start < 0 or value_size < _NULL or max(value_size, zero) >= end - value_start:
        return failed, zero, zero, zero, zero, zero, zero
    return end, timestamp_delta, offset_delta, key_start, key_size, value_start, value_size


def decode(data: Bytes, batches: Table, rows: RowArrays, state: Int64s) -> Int:
    """Append the records of these batches; OK, or the index of the first malformed one, of which nothing is kept."""
    offsets, timestamps, timestamp_types, key_offsets, _, key_valid, value_offsets, _, value_valid = rows
    zero, source, keys, values = np.int64(0), address_of(data), address_of(rows[4]), address_of(rows[7])
    for index in range(batches.shape[0]):
        row, key_bytes, value_bytes = state[ROWS], state[KEY_BYTES], state[VALUE_BYTES]
        headers, null_keys, null_values = state[HEADERS], state[NULL_KEYS], state[NULL_VALUES]
        header_key_bytes, header_value_bytes = state[HEADER_KEY_BYTES], state[HEADER_VALUE_BYTES]
        base_offset, base_timestamp = batches[index, BASE_OFFSET], batches[index, BASE_TIMESTAMP]
        timestamp_type, append_timestamp = batches[index, TIMESTAMP_TYPE], batches[index, APPEND_TIMESTAMP]
        first_offset, end_offset = batches[index, FIRST_OFFSET], batches[index, END_OFFSET]
        position, limit, before = batches[index, START], batches[index, END], np.int64(-1)
        for _ in range(batches[index, RECORD_COUNT]):
            record = read_record(source, position, limit)
            end, timestamp_delta, delta, key_start, key_size, value_start, value_size = record
            if end < 0 or delta <= before or delta > batches[index, LAST_OFFSET_DELTA]:
                return index
            before, position = delta, value_start + max(value_size, zero)
            count = header_keys = header_values = zero
            if load_byte(source + position) != 0 or position + 1 != end:
                count, header_keys, header_values = measure_headers(source, position, end)
                if count < 0:
                    return index
            position = end
            offset = base_offset + delta
            if offset < first_offset or offset >= end_offset:
                continue
            offsets[row] = offset
            timestamps[row] = append_timestamp if timestamp_type != 0 else base_timestamp + timestamp_delta
            timestamp_types[row] = timestamp_type
            key_valid[row] = key_size >= 0
            value_valid[row] = value_size >= 0
            if key_size > 0:
                copy_bytes(keys + key_bytes, source + key_start, key_size)
                key_bytes += key_size
            if value_size > 0:
                copy_bytes(values + value_bytes, source + value_start, value_size)
                value_bytes += value_size
            null_keys += key_size < 0
            null_values += value_size < 0
            headers, header_key_bytes = headers + count, header_key_bytes + header_keys
            header_value_bytes += header_values
            row += 1
            key_offsets[row] = key_bytes
            value_offsets[row] = value_bytes
        if position != limit:
            return index
        state[ROWS], state[KEY_BYTES], state[VALUE_BYTES] = row, key_bytes, value_bytes
        state[HEADERS], state[NULL_KEYS], state[NULL_VALUES] = headers, null_keys, null_values
        state[HEADER_KEY_BYTES], state[HEADER_VALUE_BYTES] = header_key_bytes, header_value_bytes
    return OK


def decode_headers(data: Bytes, batches: Table, headers: HeaderArrays, state: Int64s) -> None:
    """Append the headers of batches that `decode` has accepted; `state` counts from the start again."""
    list_offsets, key_offsets, _, value_offsets, _, value_valid = headers
    row, count = state[ROWS], state[HEADERS]
    key_bytes, value_bytes = state[HEADER_KEY_BYTES], state[HEADER_VALUE_BYTES]
    zero, source, keys, values = np.int64(0), address_of(data), address_of(headers[2]), address_of(headers[4])
    for index in range(batches.shape[0]):
        position, limit, base_offset = batches[index, START], batches[index, END], batches[index, BASE_OFFSET]
        for _ in range(batches[index, RECORD_COUNT]):
            end, _, delta, _, _, value_start, value_size = read_record(source, position, limit)
            offset = base_offset + delta
            if offset >= batches[index, FIRST_OFFSET] and offset < batches[index, END_OFFSET]:
                header_count, position = read_varint(source, value_start + max(value_size, zero), end)
                for _ in range(header_count):
                    size, position = read_varint(source, position, end)
                    copy_bytes(keys + key_bytes, source + position, size)
                    key_bytes += size
                    size, position = read_varint(source, position + size, end)
                    value_valid[count] = size >= 0
                    if size > 0:
                        copy_bytes(values + value_bytes, source + position, size)
                        position += size
                        value_bytes += size
                    count += 1
                    key_offsets[count] = key_bytes
                    value_offsets[count] = value_bytes
                row += 1
                list_offsets[row] = count
            position = end
    state[ROWS], state[HEADERS] = row, count
    state[HEADER_KEY_BYTES], state[HEADER_VALUE_BYTES] = key_bytes, value_bytes


def varint_size(value: Int) -> Int:
    raw = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = np.int64(1)
    while raw >= 0x80:
        raw >>= np.uint64(7)
        size += 1
    return size


def write_varint(out: Address, position: Int, value: Int) -> Int:
    """Write a varint and return the position after it."""
    raw = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while raw >= 0x80:
        store_byte(out + position, np.int64(raw & np.uint64(0x7F)) | 0x80)
        raw >>= np.uint64(7)
        position += 1
    store_byte(out + position, np.int64(raw))
    return position + 1


def locate(column: BinaryColumn) -> tuple[Address, Address, Address]:
    """Return the addresses of a column's arrays; 0 for the validity if none is null."""
    offsets, data, valid = column
    return address_of(offsets), address_of(data), address_of(valid) if valid.shape[0] != 0 else np.int64(0)


def item_size(column: tuple[Address, Address, Address], row: Int) -> Int:
    """Return the size of a key or a value; -1 for null."""
    offsets, _, valid = column
    if valid != 0 and load_byte(valid + row) == 0:
        return np.int64(_NULL)
    return load_int64(offsets + 8 * row + 8) - load_int64(offsets + 8 * row)


def item_space(column: tuple[Address, Address, Address], row: Int) -> Int:
    """Return the encoded size of a key or a value, including its length."""
    size = item_size(column, row)
    return varint_size(size) + max(size, np.int64(0))


def write_item(out: Address, position: Int, column: tuple[Address, Address, Address], row: Int) -> Int:
    """Write a key or a value after its length; returns the position after it."""
    size = item_size(column, row)
    position = write_varint(out, position, size)
    if size > 0:
        offsets, data, _ = column
        copy_bytes(out + position, data + load_int64(offsets + 8 * row), size)
        position += size
    return position


def measure(groups: Int32s, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn, sizes: Int64s) -> Int:
    """Add an upper bound of what `encode` writes for each group to `sizes`; returns the bound of the largest row.

    `groups` is empty if all rows belong to one group.
    """
    largest, zero, group = np.int64(0), np.int64(0), np.int64(0)
    key_column, value_column = locate(keys), locate(values)
    header_offsets, header_keys, header_values = headers[0], locate(headers[1]), locate(headers[2])
    for row in range(values[0].shape[0] - 1):
        size = RECORD_OVERHEAD_MAX + max(item_size(key_column, row), zero) + max(item_size(value_column, row), zero)
        if header_offsets.shape[0] != 0:
            for index in range(header_offsets[row], header_offsets[row + 1]):
                size += HEADER_OVERHEAD_MAX + item_size(header_keys, index) + max(item_size(header_values, index), zero)
        if groups.shape[0] != 0:
            group = np.int64(groups[row])
        sizes[group] += size
        largest = max(largest, size)
    return largest


def encode(
    groups: Int32s,
    timestamps: Int64s,
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: HeaderColumn,
    batch_size_max: Int,
    cursors: Int64s,
    out: Bytes,
    batches: Table,
) -> Int:
    """Write each row to the open batch of its group; returns the number of batches.

    Rows are read once and in order, and each group is written at its cursor. A batch has at most `batch_size_max` bytes
    of records, or a single record.
    """
    batch_count, zero, first, last = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    target, key_column, value_column = address_of(out), locate(keys), locate(values)
    header_offsets, header_keys, header_values = headers[0], locate(headers[1]), locate(headers[2])
    open_batches = np.full(cursors.shape[0], -1)
    for row in range(groups.shape[0]):
        group, timestamp = groups[row], timestamps[row]
        batch, position = open_batches[group], cursors[group]
        if header_offsets.shape[0] != 0:
            first, last = header_offsets[row], header_offsets[row + 1]
        rest = 1 + item_space(key_column, row) + item_space(value_column, row) + varint_size(last - first)
        for index in range(first, last):
            rest += item_space(header_keys, index) + item_space(header_values, index)
        count, timestamp_delta = zero, zero
        if batch >= 0:
            count, timestamp_delta = batches[batch, COUNT], timestamp - batches[batch, FIRST_TIMESTAMP]
        size = rest + varint_size(timestamp_delta) + varint_size(count)
        total = size + varint_size(size)
        if batch < 0 or position - batches[batch, PAYLOAD_START] + total > batch_size_max:
            # The first record of a batch has deltas of zero.
            count, timestamp_delta, size = zero, zero, rest + 2
            total = size + varint_size(size)
            open_batches[group] = batch = batch_count
            batch_count += 1
            batches[batch, GROUP], batches[batch, PAYLOAD_START], batches[batch, RECORD_SIZE_MAX] = (
                group,
                position,
                zero,
            )
            batches[batch, FIRST_TIMESTAMP] = batches[batch, MAX_TIMESTAMP] = timestamp
        position = write_varint(target, position, size)
        store_byte(target + position, zero)
        position = write_varint(target, position + 1, timestamp_delta)
        position = write_varint(target, position, count)
        position = write_item(target, position, key_column, row)
        position = write_item(target, position, value_column, row)
        position = write_varint(target, position, last - first)
        for index in range(first, last):
            position = write_item(target, position, header_keys, index)
            position = write_item(target, position, header_values, index)
        cursors[group] = batches[batch, PAYLOAD_END] = position
        batches[batch, COUNT] = count + 1
        batches[batch, MAX_TIMESTAMP] = max(batches[batch, MAX_TIMESTAMP], timestamp)
        batches[batch, RECORD_SIZE_MAX] = max(batches[batch, RECORD_SIZE_MAX], total)
    return batch_count


def hash_keys(keys: BinaryColumn, out: Int32s) -> None:
    """Compute the MurmurHash2 of each key, made positive as in the Java client; -1 for null."""
    column = locate(keys)
    offsets, data, _ = column
    for row in range(out.shape[0]):
        size = item_size(column, row)
        if size < 0:
            out[row] = -1
            continue
        position = data + load_int64(offsets + 8 * row)
        end = position + size
        value = (_SEED ^ size) & _MASK
        while end - position >= 4:
            word = np.int64(0)
            for index in range(4):
                word |= load_byte(position + index) << (8 * index)
            position += 4
            word = (word * _MULTIPLIER) & _MASK
            word = ((word ^ (word >> 24)) * _MULTIPLIER) & _MASK
            value = ((value * _MULTIPLIER) & _MASK) ^ word
        if position < end:
            for index in range(end - position):
                value ^= load_byte(position + index) << (8 * index)
            value = (value * _MULTIPLIER) & _MASK
        value = ((value ^ (value >> 13)) * _MULTIPLIER) & _MASK
        out[row] = (value ^ (value >> 15)) & 0x7FFFFFFF


class Kernels(NamedTuple):
    """The compiled functions of this module."""

    decode: Callable[[Bytes, Table, RowArrays, Int64s], int]
    decode_headers: Callable[[Bytes, Table, HeaderArrays, Int64s], None]
    measure: Callable[[Int32s, BinaryColumn, BinaryColumn, HeaderColumn, Int64s], int]
    encode: Callable[..., int]
    hash_keys: Callable[[BinaryColumn, Int32s], None]


_HELPERS: tuple[Callable[..., Any], ...] = (
    read_long_varint,
    read_varint,
    read_record,
    measure_headers,
    varint_size,
    write_varint,
    address_of,
    locate,
    item_size,
    item_space,
    write_item,
)


@cache
def load_kernels() -> Kernels:
    """Compile the kernels or load them from the cache.

    Takes some seconds once per machine, then a fraction of a second per process.
    """
    use_in_kernels(_HELPERS)
    source, numbers = types.Array(types.uint8, 1, "C", readonly=True), types.Array(types.int64, 1, "C", readonly=True)
    groups = types.Array(types.int32, 1, "C", readonly=True)
    out, int32s, int64s, table = types.uint8[::1], types.int32[::1], types.int64[::1], types.int64[:, ::1]
    group: Any = types.Tuple
    binary = group((numbers, source, source))
    headers = group((numbers, binary, binary))
    rows = group((int64s, int64s, int32s, int32s, out, out, int32s, out, out))
    header_rows = group((int32s, int32s, out, int32s, out, out))
    return Kernels(
        compile_kernel(decode, types.int64(source, table, rows, int64s)),
        compile_kernel(decode_headers, types.void(source, table, header_rows, int64s)),
        compile_kernel(measure, types.int64(groups, binary, binary, headers, int64s)),
        compile_kernel(encode, types.int64(groups, numbers, binary, binary, headers, types.int64, int64s, out, table)),
        compile_kernel(hash_keys, types.void(binary, int32s)),
    )


def use_in_kernels(helpers: Iterable[Callable[..., Any]]) -> None:
    """Register functions that kernels may call."""
    for helper in helpers:
        register_jitable(helper)


def compile_kernel(function: Callable[..., Any], signature: Any) -> Callable[..., Any]:
    """Compile a kernel; `signature` is one of numba's, or its text. Kernels in other modules follow the rules above."""
    try:
        compiled: Callable[..., Any] = numba.njit(signature, cache=True, nogil=True)(function)
    except Exception:
        # There is no writable cache directory, or its contents cannot be read: compile without a cache.
        compiled = numba.njit(signature, nogil=True)(function)
    return compiled
