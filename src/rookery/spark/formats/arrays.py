"""Builds Arrow arrays of Python values, for formats without a faster way, and finds rows that cannot be converted."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from rookery.spark.formats.columns import Array, ArrowType, RowError


def struct_array(parts: Sequence[Array], arrow_type: ArrowType, values: Sequence[Any]) -> Array:
    """Build a struct array. Rows whose value in `values` is None are null."""
    return pa.Array.from_buffers(arrow_type, len(values), [_validity(values)], children=list(parts))


def list_array(lists: Sequence[Any], arrow_type: ArrowType, build: Callable[[list[Any]], Array]) -> Array:
    items = build(list(chain.from_iterable(each for each in lists if each is not None)))
    return pa.Array.from_buffers(arrow_type, len(lists), [_validity(lists), _offsets(lists)], children=[items])


def map_array(
    maps: Sequence[Any],
    arrow_type: ArrowType,
    build_keys: Callable[[list[Any]], Array],
    build_values: Callable[[list[Any]], Array],
) -> Array:
    present = [each for each in maps if each is not None]
    keys = build_keys(list(chain.from_iterable(present)))
    values = build_values(list(chain.from_iterable(each.values() for each in present)))
    entry = pa.struct([arrow_type.key_field, arrow_type.item_field])
    entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, values])
    return pa.Array.from_buffers(arrow_type, len(maps), [_validity(maps), _offsets(maps)], children=[entries])


def _validity(values: Sequence[Any]) -> Any:
    flags = np.fromiter((each is not None for each in values), bool, len(values))
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))


def _offsets(values: Sequence[Any]) -> Any:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(
        np.fromiter((0 if each is None else len(each) for each in values), np.int32, len(values)), out=offsets[1:]
    )
    return pa.py_buffer(offsets)


def build_isolated(
    values: list[Any], build: Callable[[list[Any]], Array], errors: list[RowError], *, first_row: int = 0
) -> Array:
    """Return `build(values)`. Values that `build` rejects become null and an error; they are found by bisection."""
    try:
        return build(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(values) == 1:
            errors.append(RowError(first_row, "InvalidDataError", f"it does not fit the column: {error}"))
            return build([None])
    middle = len(values) // 2
    halves = [
        build_isolated(values[:middle], build, errors, first_row=first_row),
        build_isolated(values[middle:], build, errors, first_row=first_row + middle),
    ]
    return pa.concat_arrays(halves)
