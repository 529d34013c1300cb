"""The loop that runs a program of `encoder_program` over the rows of a column, compiled to machine code by numba.

A slot is a column, or a part of one: the address of its numbers (offsets, for texts and lists), of its flags (0 if none
is null) and of its texts. The program follows the schema; `index` is the position in the slots: the row at first, and
an item inside of lists. When the output buffer is full, nothing more is written but counting continues.

The input comes from Arrow and is trusted, except for nulls and sizes that the schema does not allow.
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
    store_byte,
    store_int64,
    use_in_kernels,
    write_varint,
)

# Values.
LONG, SCALED, BOOLEAN, FLOAT, DOUBLE, SPAN, REST, FIXED, DECIMAL = range(9)
# Bytes that the program contains: the branch of a union, a default.
CONSTANT = 9
# Control flow.
REQUIRED, IF_NULL, JUMP, LIST, NEXT, FAIL, END = range(10, 17)
_LAST_VALUE = CONSTANT

# Columns of slots.
NUMBERS, FLAGS, TEXTS = range(3)
SLOT_COLUMNS = 3
_SLOT_BYTES = 8 * SLOT_COLUMNS
_INSTRUCTION_BYTES = 32

FAILURES: Final = (
    "",
    "it is null, which the schema does not allow",
    "its size is not that of the schema",
    "it is too large for the schema",
    "none of the union's branches has a value",
)
_NULL, _SIZE, _RANGE, _CHOICE = range(1, 5)
_STACK_SIZE = 512
_VARINT_SIZE_MAX = 10
_LONG_MAX = 2**63 - 1

# The addresses of the program, the constants, the slots, the stack and the output, and the capacity of the output.
Machine: TypeAlias = tuple[Address, Address, Address, Address, Address, Int]


def put_varint(machine: Machine, position: Int, value: Int) -> Int:
    """Write a varint and return the position after it."""
    if position + _VARINT_SIZE_MAX <= machine[5]:
        return write_varint(machine[4], position, value)
    raw = np.uint64(value << 1) ^ np.uint64(value >> 63)
    position += 1
    while raw >= 0x80:
        raw >>= np.uint64(7)
        position += 1
    return position


def put_bytes(machine: Machine, position: Int, source: Address, size: Int) -> Int:
    if position + size <= machine[5]:
        copy_bytes(machine[4] + position, source, size)
    return position + size


def put_decimal(machine: Machine, position: Int, source: Address, size: Int) -> tuple[Int, Int]:
    """Write a big-endian number; return a failure and the position.

    It has `size` bytes; if `size` is negative, as few bytes as possible, after their number.
    """
    low, high = load_int64(source), load_int64(source + 8)
    sign = high >> 63
    needed = np.int64(16)
    while needed > 1:
        top = (low if needed <= 8 else high) >> (8 * ((needed - 1) & 7)) & 0xFF
        below = (low if needed - 1 <= 8 else high) >> (8 * ((needed - 2) & 7)) & 0xFF
        if top != sign & 0xFF or (below ^ sign) & 0x80 != 0:
            break
        needed -= 1
    if size < 0:
        size = needed
        position = put_varint(machine, position, size)
    elif needed > size:
        return np.int64(_RANGE), position
    if position + size <= machine[5]:
        for index in range(size):
            place = size - 1 - index
            byte = sign & 0xFF
            if place < 16:
                byte = (low if place < 8 else high) >> (8 * (place & 7)) & 0xFF
            store_byte(machine[4] + position + index, byte)
    return np.int64(0), position + size


def put_value(
    machine: Machine, position: Int, operation: Int, slot: Address, index: Int, first: Int, second: Int
) -> tuple[Int, Int]:
    """Write a value; return a failure and the position."""
    failure = np.int64(0)
    if operation == CONSTANT:
        return failure, put_bytes(machine, position, machine[1] + first, second)
    at = load_int64(slot + 8 * NUMBERS) + 8 * index
    if operation == DECIMAL:
        return put_decimal(machine, position, at + 8 * index, second)
    number = load_int64(at)
    if operation == LONG:
        return failure, put_varint(machine, position, number)
    if operation == SCALED:
        # Check the range before the multiplication: the compiler assumes that signed numbers do not overflow.
        highest = _LONG_MAX // first
        if number > highest or number < -highest:
            return np.int64(_RANGE), position
        return failure, put_varint(machine, position, number * first // second)
    if operation <= DOUBLE:
        # Little-endian, as numbers are in memory.
        size = np.int64(8 if operation == DOUBLE else 4 if operation == FLOAT else 1)
        return failure, put_bytes(machine, position, at, size)
    size = load_int64(at + 8) - number
    if operation == SPAN:
        position = put_varint(machine, position, size)
    elif operation == FIXED and size != first:
        failure = np.int64(_SIZE)
    return failure, put_bytes(machine, position, load_int64(slot + 8 * TEXTS) + number, size)


def is_null(slot: Address, index: Int) -> Any:
    flags = load_int64(slot + 8 * FLAGS)
    return flags != 0 and load_byte(flags + index) == 0


def write(machine: Machine, position: Int, index: Int) -> tuple[Int, Int, Int]:
    """Write a row. Returns the failure, the position after the row, and the last instruction."""
    program, _, slots, stack, _, _ = machine
    depth, pc, failure = np.int64(0), np.int64(-1), np.int64(0)
    while failure == 0:
        pc += 1
        at = program + _INSTRUCTION_BYTES * pc
        operation, slot = load_int64(at), slots + _SLOT_BYTES * load_int64(at + 8)
        first, second = load_int64(at + 16), load_int64(at + 24)
        if operation <= _LAST_VALUE:
            failure, position = put_value(machine, position, operation, slot, index, first, second)
        elif operation == REQUIRED:
            if is_null(slot, index):
                failure = np.int64(_NULL)
        elif operation == IF_NULL:
            if is_null(slot, index):
                pc = first - 1
        elif operation == JUMP:
            pc = first - 1
        elif operation == LIST:
            offsets = load_int64(slot + 8 * NUMBERS) + 8 * index
            start, end = load_int64(offsets), load_int64(offsets + 8)
            position = put_varint(machine, position, end - start)
            if start == end:
                pc = first - 1
            else:
                store_int64(stack + 16 * depth, index)
                store_int64(stack + 16 * depth + 8, end)
                depth, index = depth + 1, start
        elif operation == NEXT:
            index += 1
            if index < load_int64(stack + 16 * depth - 8):
                pc = first - 1
            else:
                depth -= 1
                index = load_int64(stack + 16 * depth)
                position = put_varint(machine, position, np.int64(0))
        elif operation == FAIL:
            failure = np.int64(_CHOICE)
        else:
            break
    return failure, position, pc


def encode_rows(
    program: Any, constants: Any, slots: Any, prefix: Any, valid: Any, out: Any, ends: Any, failed: Any
) -> Int:
    """Write all rows and return the size of the output.

    `ends` receives the ends of rows, `failed` the row, failure and instruction of the first failure.
    """
    stack = np.zeros(2 * _STACK_SIZE, np.int64)
    machine = (
        address_of(program),
        address_of(constants),
        address_of(slots),
        address_of(stack),
        address_of(out),
        np.int64(out.shape[0]),
    )
    position = np.int64(0)
    for row in range(valid.shape[0]):
        if valid[row] != 0:
            position = put_bytes(machine, position, address_of(prefix), np.int64(prefix.shape[0]))
            failure, position, pc = write(machine, position, np.int64(row))
            if failure != 0:
                failed[0], failed[1], failed[2] = row, failure, pc
                break
        ends[row + 1] = position
    return position


@cache
def load_encode_rows() -> Callable[..., int]:
    """Compile the kernel, or load it from the cache."""
    use_in_kernels((write_varint, address_of, put_varint, put_bytes, put_decimal, put_value, is_null, write))
    return compile_kernel(
        encode_rows,
        "int64(int64[:, ::1], uint8[::1], int64[:, ::1], uint8[::1], uint8[::1], uint8[::1], int64[::1], int64[::1])",
    )
