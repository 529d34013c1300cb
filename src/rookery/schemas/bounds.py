"""Limits for the depth of a schema, the work of a comparison, and the number of reported incompatibilities.

Parsing and comparing block other requests. A small schema can have very many paths to a difference, very long paths, or
very many pairs of types to compare, so each of these has a limit that schemas written by hand do not reach.
"""

from collections.abc import Iterable
from typing import Any, Final

from rookery.schemas.interface import Incompatibility

# The nesting depth of the JSON. A deeper schema would exhaust the interpreter's stack where the tree is walked.
DEPTH_MAX: Final = 200
INCOMPATIBILITIES_MAX: Final = 100
_DESCRIPTIONS_LENGTH_MAX: Final = 100_000
# This many parts of a type that are compared without a step each (fields, symbols, properties) count as one step.
PARTS_PER_STEP: Final = 10
TOO_COMPLEX: Final = Incompatibility(
    "TOO_COMPLEX", "The {reader} schema and the {writer} schema have too many types to compare"
)


def is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [part for each in level for part in _parts_of(each)]
        if not level:
            return False
    return True


def _parts_of(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def take_first(found: Iterable[Incompatibility]) -> list[Incompatibility]:
    """Return the first incompatibilities, at least one, within the limits for a response."""
    taken: list[Incompatibility] = []
    length = 0
    for each in found:
        length += len(each.description)
        if taken and (length > _DESCRIPTIONS_LENGTH_MAX or len(taken) == INCOMPATIBILITIES_MAX):
            break
        taken.append(each)
    return taken
