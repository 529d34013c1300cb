"""The walk over two schemas at once, without recursion.

A comparison of two shapes is a generator. It yields pairs of shapes that it wants compared, gets their differences, and
returns its own: with paths relative to the pair, so that a pair is compared once however many ways lead to it.

Recursive schemas come back to pairs whose comparison is under way. Such a pair is taken for compatible at first. As
that may turn out wrong, the walk is done again with what was found to be incompatible, until it finds nothing more: the
differences are those of the greatest fixed point. (What is incompatible remains so, whatever else turns out to be.)
"""

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

from rookery.schemas.bounds import PARTS_PER_STEP
from rookery.schemas.json_schema.differences import Differences, is_compatible
from rookery.schemas.json_schema.shapes import Shape

# A second or two of work.
STEPS_MAX = 75_000


class Pair(NamedTuple):
    writer: Shape
    reader: Shape


Comparison: TypeAlias = Generator[Pair, Differences, Differences]
Compare: TypeAlias = Callable[[Shape, Shape], Comparison]


class TooComplexError(Exception):
    """There is too much to compare."""


class _Budget:
    def __init__(self) -> None:
        self._steps_left = STEPS_MAX

    def spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooComplexError


def walk(root: Pair, compare: Compare) -> Differences:
    """Raises TooComplexError."""
    known: dict[Pair, Differences] = {}
    budget = _Budget()
    while True:
        found, assumed = _walk_once(root, compare, known, budget)
        incompatible = {pair: differences for pair, differences in found.items() if not is_compatible(differences)}
        if not assumed or incompatible.keys() <= known.keys():
            return found[root]
        known |= incompatible


def _walk_once(
    root: Pair, compare: Compare, known: dict[Pair, Differences], budget: _Budget
) -> tuple[dict[Pair, Differences], bool]:
    """The differences of all pairs that were reached, and whether one was assumed to be compatible."""
    found: dict[Pair, Differences] = {}
    stack: dict[Pair, Comparison] = {root: compare(*root)}
    assumed = False
    answer: Differences | None = None
    while stack:
        budget.spend(1)
        pair, comparison = next(reversed(stack.items()))
        try:
            wanted = next(comparison) if answer is None else comparison.send(answer)
        except StopIteration as stop:
            answer = found[pair] = stop.value
            del stack[pair]
            continue
        answer = found.get(wanted)
        if answer is None and wanted in stack:
            assumed |= wanted not in known
            answer = known.get(wanted, [])
        elif answer is None:
            budget.spend((wanted.writer.size + wanted.reader.size) // PARTS_PER_STEP)
            stack[wanted] = compare(*wanted)
    return found, assumed
