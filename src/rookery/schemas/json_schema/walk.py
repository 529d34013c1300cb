"""Walks over two schemas simultaneously, without recursion.

A comparison of two shapes is a generator. It yields the pairs of shapes that it needs compared, is sent their results,
and returns its own differences with paths relative to the pair. So a pair is compared once, however many paths lead to
it.

Recursive schemas reach pairs whose comparison is still open. Such a pair is assumed to be compatible at first. Since
that may be wrong, the walk is repeated with the pairs that were found to be incompatible, until it finds no more of
them: the differences are those of the greatest fixed point. (A pair that is incompatible stays so in later walks.)
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from rookery.schemas.bounds import PARTS_PER_STEP
from rookery.schemas.interface import Policy
from rookery.schemas.json_schema.differences import Differences, Found, is_compatible
from rookery.schemas.json_schema.shapes import Shape

# One or two seconds of work.
STEPS_MAX = 75_000


class Pair(NamedTuple):
    writer: Shape
    reader: Shape


Comparison: TypeAlias = Generator[Pair, Found, Differences]
Compare: TypeAlias = Callable[[Shape, Shape], Comparison]

_NO_DIFFERENCES: Final = Found([], is_compatible=True)


class TooComplexError(Exception):
    """The comparison takes too many steps."""


class _Budget:
    def __init__(self) -> None:
        self._steps_left = STEPS_MAX

    def spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooComplexError


def walk(root: Pair, compare: Compare, policy: Policy) -> Differences:
    """Return the differences of the root pair. Raises TooComplexError."""
    known: dict[Pair, Found] = {}
    budget = _Budget()
    while True:
        found, assumed = _walk_once(root, compare, policy, known, budget)
        incompatible = {pair: each for pair, each in found.items() if not each.is_compatible}
        if not assumed or incompatible.keys() <= known.keys():
            return found[root].differences
        known |= incompatible


def _walk_once(
    root: Pair, compare: Compare, policy: Policy, known: dict[Pair, Found], budget: _Budget
) -> tuple[dict[Pair, Found], bool]:
    """Return the results of all pairs that were reached, and whether an open pair was assumed to be compatible."""
    found: dict[Pair, Found] = {}
    stack: dict[Pair, Comparison] = {root: compare(*root)}
    assumed = False
    result: Found | None = None
    while stack:
        budget.spend(1)
        pair, comparison = next(reversed(stack.items()))
        try:
            needed = next(comparison) if result is None else comparison.send(result)
        except StopIteration as stop:
            result = found[pair] = Found(stop.value, is_compatible(stop.value, policy))
            del stack[pair]
            continue
        result = found.get(needed)
        if result is None and needed in stack:
            assumed |= needed not in known
            result = known.get(needed, _NO_DIFFERENCES)
        elif result is None:
            budget.spend((needed.writer.size + needed.reader.size) // PARTS_PER_STEP)
            stack[needed] = compare(*needed)
    return found, assumed
