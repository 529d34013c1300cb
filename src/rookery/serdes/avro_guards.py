"""Rejects values that fastavro would write silently as others: integers of more than 32 bits for `int` (which other
libraries cannot read), fractions for integers, any object for `boolean`, texts that are not UUIDs.

The logical type of an affected type is replaced by one of Rookery's. Its writer calls the original writer and then
the check: fastavro calls the writers of logical types before it writes a value. Reading does not change.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any, Final, TypeAlias
from uuid import UUID

from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS

_PREFIX: Final = "rookery-"
# Takes a value and its schema, and returns the value to write.
_Prepare: TypeAlias = Callable[[Any, Any], Any]


class _Mismatch:
    """Replaces a value that does not match, so that fastavro rejects it; in a union fastavro tries the next branch."""

    def __bool__(self) -> bool:
        raise TypeError("not a boolean")


_MISMATCH: Final = _Mismatch()


def _check_integer(bits: int) -> _Prepare:
    limit = 1 << (bits - 1)

    def check(value: Any, schema: Any) -> Any:
        is_integer = type(value) is int or isinstance(value, Integral)
        return value if is_integer and -limit <= value < limit else _MISMATCH

    return check


def _check_boolean(value: Any, schema: Any) -> Any:
    return value if isinstance(value, bool) else _MISMATCH


def _check_uuid(value: Any, schema: Any) -> Any:
    try:
        UUID(value)
    except (ValueError, TypeError, AttributeError):
        return _MISMATCH
    return value


_CHECKS: Final = {"int": _check_integer(32), "long": _check_integer(64), "boolean": _check_boolean}


def guard_type(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema`, which has a primitive type, with the logical type that checks its values."""
    kind, logical = schema["type"], schema.get("logicalType")
    check = _check_uuid if (kind, logical) == ("string", "uuid") else _CHECKS.get(kind)
    if check is None:
        return schema
    prepare = LOGICAL_WRITERS.get(f"{kind}-{logical}")
    name = _PREFIX + ("" if prepare is None else str(logical))
    if f"{kind}-{name}" not in LOGICAL_WRITERS:
        LOGICAL_WRITERS[f"{kind}-{name}"] = _checked(check, prepare)
        if f"{kind}-{logical}" in LOGICAL_READERS:
            LOGICAL_READERS[f"{kind}-{name}"] = LOGICAL_READERS[f"{kind}-{logical}"]
    return schema | {"logicalType": name}


def _checked(check: _Prepare, prepare: _Prepare | None) -> _Prepare:
    return check if prepare is None else lambda value, schema: check(prepare(value, schema), schema)
