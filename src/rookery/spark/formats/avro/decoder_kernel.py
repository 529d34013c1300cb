"""The loop that runs a program of `decoder_program` over rows of Avro data, compiled to machine code by numba.

A program is a list of instructions: operation, slot, and two arguments. A slot is a column, or a part of one, of the
reader's type (`shapes`). Programs of different writers write to the same slots, so rows of all schemas are decoded
in one pass, in their order.

The rules are those of `records.kernels`: bytes are accessed by address; a position is compared with the end before a
byte is read there, and a size with the remaining bytes before it is added to a position. Each slot has buffers of a
fixed capacity. When one is full, nothing more is written but counting continues, so that the caller learns the required
capacity.

A malformed row is rolled back: it becomes null, and its failure is recorded. Each instruction is a step, and a row has
a budget of steps. This bounds its memory and time by its size; otherwise values of few or no bytes (nulls of wide
records, items without fields) could fill the memory.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from rookery.records.kernels import (
    Address,
    Int,
    address_of,
    compile_kernel,
    copy_bytes,
    load_byte,
    load_int64,
    read_long_varint,
    read_varint,
    store_byte,
    store_int64,
    use_in_kernels,
)

# Values that start with a varint, which is read in one place: numbers (SCALED: times with a factor and a divisor),
# branches of a union, enum symbols (mapped by a table), sizes.
LONG, INT, SCALED, INTEGER_AS_DOUBLE, ENUM, UNION, SKIP_VARINT, TEXT, BYTES, SKIP_SPAN, DECIMAL_BYTES = range(11)
# Other values.
BOOLEAN, FLOAT, DOUBLE, FIXED, REST, REST_TEXT, DECIMAL_FIXED, SKIP = range(11, 19)
# Values that are not in the data: nulls, defaults, and the presence of a struct.
NULL, NULL_SPAN, CONSTANT, CONSTANT_DECIMAL, CONSTANT_SPAN, CONSTANT_ITEM, CONSTANT_LIST, PRESENT = range(19, 27)
# Control flow. NEXT is at the head of the loop over the items of an array or a map.
LIST, NEXT, JUMP, CALL, RETURN, FAIL, END = range(27, 34)
_LAST_WITH_VARINT = DECIMAL_BYTES
_LAST_VALUE = SKIP
_LAST_CONSTANT = PRESENT

# Columns of rows.
START, LIMIT, ENTRY, BUDGET = range(4)
# Columns of slots: the addresses of numbers, flags and texts; the capacities in numbers and in bytes of text; and the
# counters: values, and bytes of text or items.
NUMBERS, FLAGS, TEXTS, CAPACITY, TEXT_CAPACITY, COUNT, SIZE = range(7)
SLOT_COLUMNS = 7
_SLOT_BYTES = 8 * SLOT_COLUMNS
_INSTRUCTION_BYTES = 32

FAILURES: Final = (
    "",
    "it is truncated",
    "it contains a size that is negative, or larger than the data",
    "it contains a text that is not UTF-8",
    "it contains a branch that the union does not have",
    "it contains a symbol that the enum does not have",
    "it contains a symbol that the reader's enum does not have, and that enum has no default",
    "it contains a number that is out of range for its type",
    "it contains a decimal with more digits than its type has",
    "it is nested too deeply",
    "it has far more values than bytes",
)
_CUT_OFF, _SIZE, _TEXT, _BRANCH, _SYMBOL, _UNKNOWN_SYMBOL, _RANGE, _DIGITS, _DEPTH, _BUDGET = range(1, 11)
# The failure of a FAIL instruction is this number plus its argument, an index into the program's messages.
FAILURE_MESSAGES = 100
STACK_SIZE = 1024
# The bytes of a constant that count as one step.
STEP_BYTES = 8
_INT_MAX = 2**31 - 1
_INT_MIN = -(2**31)
_LONG_MAX = 2**63 - 1
_HIGH_BITS = -0x7F7F7F7F7F7F7F80
_SIGN_BIT = -(2**63)

# What to do with a value that was read.
_NOTHING, _NUMBER, _SPAN, _WIDE = range(4)
# The addresses of the program, the table, the constants, the slots, their saved counters, and the stack.
Machine: TypeAlias = tuple[Address, Address, Address, Address, Address, Address]
# The result of a read: failure, position, action, number (low word), high word, address and size of bytes.
Read: TypeAlias = tuple[Int, Int, Int, Int, Int, Int, Int]


def is_utf8(address: Address, size: Int) -> Any:
    position = np.int64(0)
    while position < size:
        while position + 8 <= size and load_int64(address + position) & _HIGH_BITS == 0:
            position += 8
        if position == size:
            break
        first = load_byte(address + position)
        lowest, highest, rest = np.int64(0x80), np.int64(0xBF), np.int64(0)
        if first >= 0x80:
            if first < 0xC2 or first > 0xF4:
                return False
            rest = np.int64(1) + np.int64(first >= 0xE0) + np.int64(first >= 0xF0)
            if first == 0xE0:
                lowest = np.int64(0xA0)
            elif first == 0xED:
                highest = np.int64(0x9F)
            elif first == 0xF0:
                lowest = np.int64(0x90)
            elif first == 0xF4:
                highest = np.int64(0x8F)
        if rest >= size - position:
            return False
        for index in range(1, rest + 1):
            byte = load_byte(address + position + index)
            if byte < lowest or byte > highest:
                return False
            lowest, highest = np.int64(0x80), np.int64(0xBF)
        position += rest + 1
    return True


def read_decimal(address: Address, size: Int, limit: Address) -> tuple[Int, Int, Int]:
    """Return the failure, and the low and high words of a big-endian number whose magnitude must be below the limit."""
    low = high = sign = np.int64(0)
    if size > 0 and load_byte(address) >= 0x80:
        low = high = sign = np.int64(-1)
    for index in range(size):
        if high >> 55 != sign:
            return np.int64(_DIGITS), low, high
        high = (high << 8) | ((low >> 56) & 0xFF)
        low = (low << 8) | load_byte(address + index)
    low_size, high_size = low, high
    if sign < 0:
        # Unsigned, because the lowest signed number has no positive counterpart.
        low_size = np.int64(~np.uint64(low) + np.uint64(1))
        high_size = ~high + np.int64(low == 0)
    low_limit, high_limit = load_int64(limit), load_int64(limit + 8)
    if high_size < 0 or high_size > high_limit:
        return np.int64(_DIGITS), low, high
    if high_size == high_limit and (low_size ^ _SIGN_BIT) >= (low_limit ^ _SIGN_BIT):
        return np.int64(_DIGITS), low, high
    return np.int64(0), low, high


def read_after_varint(
    operation: Int, data: Address, position: Int, end: Int, first: Int, second: Int, table: Address
) -> Read:
    """Read a value that starts with a varint. `first` and `second` are the arguments of the operation."""
    zero, number, failure = np.int64(0), np.int64(_NUMBER), np.int64(0)
    value, position = read_varint(data, position, end)
    if position < 0:
        return np.int64(_CUT_OFF), position, zero, zero, zero, zero, zero
    if operation <= SCALED:
        if operation == INT and (value > _INT_MAX or value < _INT_MIN):
            failure = np.int64(_RANGE)
        elif operation == SCALED:
            # Check the range before the multiplication: the compiler assumes that signed numbers do not overflow.
            value, highest = value // second, _LONG_MAX // first
            if value > highest or value < -highest:
                failure = np.int64(_RANGE)
            else:
                value *= first
        return failure, position, number, value, zero, zero, zero
    if operation == INTEGER_AS_DOUBLE:
        return failure, position, number, np.float64(value).view(np.int64), zero, zero, zero
    if operation in (ENUM, UNION):
        if value < 0 or value >= second:
            failure = np.int64(_SYMBOL if operation == ENUM else _BRANCH)
        else:
            value = load_int64(table + 8 * (first + value))
            if value < 0:
                failure = np.int64(_UNKNOWN_SYMBOL)
        return failure, position, number if operation == ENUM else zero, value, zero, zero, zero
    if operation == SKIP_VARINT:
        return failure, position, zero, zero, zero, zero, zero
    if value < 0 or value > end - position:
        return np.int64(_SIZE), position, zero, zero, zero, zero, zero
    start, position = data + position, position + value
    if operation == DECIMAL_BYTES:
        failure, low, high = read_decimal(start, value, table + 8 * first)
        return failure, position, np.int64(_WIDE), low, high, zero, zero
    if operation == TEXT and not is_utf8(start, value):
        failure = np.int64(_TEXT)
    return failure, position, np.int64(_NOTHING if operation == SKIP_SPAN else _SPAN), zero, zero, start, value


def read_plain(operation: Int, data: Address, position: Int, end: Int, first: Int, second: Int, table: Address) -> Read:
    """Read a value without a varint. `second` is its size; -1 for all remaining bytes."""
    zero, failure, action, value, high = np.int64(0), np.int64(0), np.int64(_NUMBER), np.int64(0), np.int64(0)
    size = end - position if second < 0 else second
    if size > end - position:
        return np.int64(_CUT_OFF), position, zero, zero, zero, zero, zero
    start = data + position
    if operation == DOUBLE:
        value = load_int64(start)
    elif operation == BOOLEAN:
        value = np.int64(load_byte(start) != 0)
    elif operation == FLOAT:
        for index in range(4):
            value |= load_byte(start + index) << (8 * index)
        value = np.float64(np.uint32(value).view(np.float32)).view(np.int64)
    elif operation == DECIMAL_FIXED:
        failure, value, high = read_decimal(start, size, table + 8 * first)
        action = np.int64(_WIDE)
    elif operation == SKIP:
        action = np.int64(_NOTHING)
    else:
        if operation == REST_TEXT and not is_utf8(start, size):
            failure = np.int64(_TEXT)
        action = np.int64(_SPAN)
    return failure, position + size, action, value, high, start, size


def put(at: Address, action: Int, value: Int, high: Int, start: Address, size: Int) -> None:
    """Append a value to the slot at this address."""
    index = load_int64(at + 8 * COUNT)
    store_int64(at + 8 * COUNT, index + 1)
    fits = index < load_int64(at + 8 * CAPACITY)
    if action == _WIDE:
        if fits:
            store_int64(load_int64(at + 8 * NUMBERS) + 16 * index, value)
            store_int64(load_int64(at + 8 * NUMBERS) + 16 * index + 8, high)
        return
    if action == _SPAN:
        used = load_int64(at + 8 * SIZE)
        value = used + size
        if value <= load_int64(at + 8 * TEXT_CAPACITY):
            copy_bytes(load_int64(at + 8 * TEXTS) + used, start, size)
        store_int64(at + 8 * SIZE, value)
    if fits:
        store_int64(load_int64(at + 8 * NUMBERS) + 8 * index, value)


def put_constant(operation: Int, at: Address, first: Int, second: Int, constants: Address) -> None:
    zero, number = np.int64(0), np.int64(_NUMBER)
    if operation == PRESENT:
        store_int64(at + 8 * COUNT, load_int64(at + 8 * COUNT) + 1)
    elif operation in (NULL, NULL_SPAN):
        index = load_int64(at + 8 * COUNT)
        if index < load_int64(at + 8 * CAPACITY):
            store_byte(load_int64(at + 8 * FLAGS) + index, zero)
        if operation == NULL:
            put(at, np.int64(_WIDE) if first != 0 else number, zero, zero, zero, zero)
        else:
            put(at, number, load_int64(at + 8 * SIZE), zero, zero, zero)
    elif operation == CONSTANT:
        put(at, number, first, zero, zero, zero)
    elif operation == CONSTANT_DECIMAL:
        put(at, np.int64(_WIDE), first, second, zero, zero)
    elif operation == CONSTANT_SPAN:
        put(at, np.int64(_SPAN), zero, zero, constants + first, second)
    elif operation == CONSTANT_ITEM:
        store_int64(at + 8 * SIZE, load_int64(at + 8 * SIZE) + 1)
    else:
        put(at, number, load_int64(at + 8 * SIZE), zero, zero, zero)


def next_item(frame: Address, data: Address, position: Int, end: Int) -> tuple[Int, Int, Int]:
    """Return the failure, the position, and whether there is another item."""
    failure, remaining = np.int64(0), load_int64(frame)
    if remaining == 0:
        remaining, position = read_varint(data, position, end)
        if position >= 0 and remaining < 0:
            # A negative count is followed by the size of the block in bytes, which this loop does not need.
            remaining = -max(remaining, np.int64(-_LONG_MAX))
            _, position = read_varint(data, position, end)
        if position < 0:
            failure = np.int64(_CUT_OFF)
    if failure != 0 or remaining == 0:
        return failure, position, np.int64(0)
    store_int64(frame, remaining - 1)
    return failure, position, np.int64(1)


def run(machine: Machine, data: Address, position: Int, end: Int, pc: Int, budget: Int) -> tuple[Int, Int]:
    """Decode a row. Returns its failure and the rest of its budget."""
    program, table, constants, slots, _, stack = machine
    depth, failure = np.int64(0), np.int64(0)
    while failure == 0:
        budget -= 1
        if budget < 0:
            failure = np.int64(_BUDGET)
            break
        at = program + _INSTRUCTION_BYTES * pc
        operation, slot = load_int64(at), slots + _SLOT_BYTES * load_int64(at + 8)
        first, second = load_int64(at + 16), load_int64(at + 24)
        pc += 1
        if operation <= _LAST_VALUE:
            if operation <= _LAST_WITH_VARINT:
                failure, position, action, value, high, start, size = read_after_varint(
                    operation, data, position, end, first, second, table
                )
            else:
                failure, position, action, value, high, start, size = read_plain(
                    operation, data, position, end, first, second, table
                )
            if failure == 0 and action != _NOTHING:
                put(slot, action, value, high, start, size)
            elif operation == UNION:
                pc = value
        elif operation <= _LAST_CONSTANT:
            if operation == CONSTANT_SPAN:
                budget -= second // STEP_BYTES
            put_constant(operation, slot, first, second, constants)
        elif operation == NEXT:
            failure, position, has_item = next_item(stack + 8 * (depth - 1), data, position, end)
            if slot >= slots:
                put_constant(np.int64(CONSTANT_ITEM if has_item else CONSTANT_LIST), slot, first, second, constants)
            if has_item == 0:
                depth, pc = depth - 1, first
        elif operation == JUMP:
            pc = first
        elif operation in (LIST, CALL):
            if depth == STACK_SIZE:
                failure = np.int64(_DEPTH)
            else:
                store_int64(stack + 8 * depth, np.int64(0) if operation == LIST else pc)
                depth, pc = depth + 1, pc if operation == LIST else first
        elif operation == RETURN:
            depth -= 1
            pc = load_int64(stack + 8 * depth)
        elif operation == FAIL:
            failure = FAILURE_MESSAGES + first
        else:
            break
    return failure, budget


def save(machine: Machine, slot_count: Int) -> None:
    for index in range(slot_count):
        at, to = machine[3] + _SLOT_BYTES * index, machine[4] + 16 * index
        store_int64(to, load_int64(at + 8 * COUNT))
        store_int64(to + 8, load_int64(at + 8 * SIZE))


def roll_back(machine: Machine, slot_count: Int) -> None:
    """Restore the counters that `save` stored. Flags of unused values must be 1."""
    for index in range(slot_count):
        at, saved = machine[3] + _SLOT_BYTES * index, machine[4] + 16 * index
        flags, before = load_int64(at + 8 * FLAGS), load_int64(saved)
        for flag in range(before, min(load_int64(at + 8 * COUNT), load_int64(at + 8 * CAPACITY))):
            store_byte(flags + flag, np.int64(1))
        store_int64(at + 8 * COUNT, before)
        store_int64(at + 8 * SIZE, load_int64(saved + 8))


def decode_rows(
    data: Address,
    rows: Any,
    null_entry: Int,
    program: Any,
    table: Any,
    constants: Any,
    slots: Any,
    failures: Any,
    steps_max: Int,
) -> Int:
    """Decode rows until `steps_max` is reached, but at least one; return the number of decoded rows.

    Rows without an entry in the program become null. `failures` is written for failed rows only, so it must be zeros.
    """
    saved, stack = np.zeros(2 * slots.shape[0], np.int64), np.zeros(STACK_SIZE, np.int64)
    machine = (
        address_of(program),
        address_of(table),
        address_of(constants),
        address_of(slots),
        address_of(saved),
        address_of(stack),
    )
    row, steps = np.int64(0), np.int64(0)
    while row < rows.shape[0] and steps < steps_max:
        failure, before = np.int64(-1), rows[row, BUDGET]
        if rows[row, ENTRY] >= 0:
            save(machine, slots.shape[0])
            failure, left = run(machine, data, rows[row, START], rows[row, LIMIT], rows[row, ENTRY], before)
            steps += before - left
            if failure != 0:
                failures[row] = failure
                roll_back(machine, slots.shape[0])
        if failure != 0:
            _, left = run(machine, data, np.int64(0), np.int64(0), null_entry, np.int64(_LONG_MAX))
            steps += _LONG_MAX - left
        row += 1
    return row


@cache
def load_decode_rows() -> Callable[..., int]:
    """Compile the kernel, or load it from the cache."""
    helpers = (read_long_varint, read_varint, address_of, is_utf8, read_decimal, read_after_varint, read_plain, put)
    use_in_kernels((*helpers, put_constant, next_item, run, save, roll_back))
    return compile_kernel(
        decode_rows,
        "int64(int64, int64[:, ::1], int64, int64[:, ::1], int64[::1], uint8[::1], int64[:, ::1], int64[::1], int64)",
    )
