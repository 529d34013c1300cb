"""Values that fastavro would change without a word: integers of more than 32 bits for `int` (which other libraries then
cannot read), fractions for integers, anything for `boolean`, texts that are no UUID.

Types that have such values get a logical type of ours in place of their own, whose writer is theirs with a check behind
it. That is how fastavro calls us before it writes one. What it reads, it reads as before.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any, Final, TypeAlias
from uuid import UUID

from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS

_PREFIX: Final = "rookery-"
# Of a value and its schema: what is written for it.
_Prepare: TypeAlias = Callable[[Any, Any], Any]


class _Misfit:
    """Takes the place of a value, so that fastavro refuses it; for a union it then looks at the next branch."""

    def __bool__(self) -> bool:
        raise TypeError("not a boolean")


_MISFIT: Final = _Misfit()


def _check_integer(bits: int) -> _Prepare:
    limit = 1 << (bits - 1)

    def check(value: Any, schema: Any) -> Any:
        is_integer = type(value) is int or isinstance(value, Integral)
        return value if is_integer and -limit <= value < limit else _MISFIT

    return check


def _check_boolean(value: Any, schema: Any) -> Any:
    return value if isinstance(value, bool) else _MISFIT


def _check_uuid(value: Any, schema: Any) -> Any:
    try:
        UUID(value)
    except (ValueError, TypeError, AttributeError):
        return _MISFIT
    return value


_CHECKS: Final = {"int": _check_integer(32), "long": _check_integer(64), "boolean": _check_boolean}


def guard_type(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` is of a primitive type."""
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
