"""How deep a schema may be, how far a comparison of two goes, and how much is said about it.

Parsing and comparing are done while others wait. A small schema can have very many ways to a difference, very long
ones, or very many pairs of types to compare, so all of these have a limit that nobody reaches by writing schemas.
"""

from collections.abc import Iterable
from typing import Any, Final

from rookery.schemas.interface import Incompatibility

# Of the JSON. Deeper ones would exhaust the interpreter's stack where the tree is walked.
DEPTH_MAX: Final = 200
INCOMPATIBILITIES_MAX: Final = 100
_DESCRIPTIONS_LENGTH_MAX: Final = 100_000
# So many parts of a type that need no comparison of their own count as one step of a comparison.
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
    """As many as an answer has room for; one in any case."""
    taken: list[Incompatibility] = []
    length = 0
    for each in found:
        length += len(each.description)
        if taken and (length > _DESCRIPTIONS_LENGTH_MAX or len(taken) == INCOMPATIBILITIES_MAX):
            break
        taken.append(each)
    return taken
