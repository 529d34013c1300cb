"""The walk over two schemas at once, without recursion.

A comparison of two shapes is a generator. It yields pairs of shapes that it wants compared, gets what was found, and
returns its own differences: with paths relative to the pair, so that a pair is compared once however many ways lead to
it.

Recursive schemas come back to pairs whose comparison is under way. Such a pair is taken for compatible at first. As
that may turn out wrong, the walk is done again with what was found to be incompatible, until it finds nothing more: the
differences are those of the greatest fixed point. (What is incompatible remains so, whatever else turns out to be.)
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from rookery.schemas.bounds import PARTS_PER_STEP
from rookery.schemas.interface import Policy
from rookery.schemas.json_schema.differences import Differences, Found, is_compatible
from rookery.schemas.json_schema.shapes import Shape

# A second or two of work.
STEPS_MAX = 75_000


class Pair(NamedTuple):
    writer: Shape
    reader: Shape


Comparison: TypeAlias = Generator[Pair, Found, Differences]
Compare: TypeAlias = Callable[[Shape, Shape], Comparison]

_NO_DIFFERENCES: Final = Found([], is_compatible=True)


class TooComplexError(Exception):
    """There is too much to compare."""


class _Budget:
    def __init__(self) -> None:
        self._steps_left = STEPS_MAX

    def spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooComplexError


def walk(root: Pair, compare: Compare, policy: Policy) -> Differences:
    """Raises TooComplexError."""
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
    """What was found for all pairs that were reached, and whether one was assumed to be compatible."""
    found: dict[Pair, Found] = {}
    stack: dict[Pair, Comparison] = {root: compare(*root)}
    assumed = False
    answer: Found | None = None
    while stack:
        budget.spend(1)
        pair, comparison = next(reversed(stack.items()))
        try:
            wanted = next(comparison) if answer is None else comparison.send(answer)
        except StopIteration as stop:
            answer = found[pair] = Found(stop.value, is_compatible(stop.value, policy))
            del stack[pair]
            continue
        answer = found.get(wanted)
        if answer is None and wanted in stack:
            assumed |= wanted not in known
            answer = known.get(wanted, _NO_DIFFERENCES)
        elif answer is None:
            budget.spend((wanted.writer.size + wanted.reader.size) // PARTS_PER_STEP)
            stack[wanted] = compare(*wanted)
    return found, assumed
