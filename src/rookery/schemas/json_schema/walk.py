"""The walk over two schemas at once, without recursion.

A comparison of two shapes is a generator. It yields pairs of shapes that it wants compared, gets their differences, and
returns its own: with paths relative to the pair, so that a pair is compared once however many ways lead to it.

Recursive schemas come back to pairs whose comparison is under way. Such a pair is taken for compatible at first. As
that may turn out wrong, the walk is done again with what was found to be incompatible, until it finds nothing more: the
differences are those of the greatest fixed point.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

from rookery.schemas.json_schema.differences import Difference
from rookery.schemas.json_schema.shapes import Shape


class Pair(NamedTuple):
    writer: Shape
    reader: Shape


Differences: TypeAlias = list[Difference]
Comparison: TypeAlias = Generator[Pair, Differences, Differences]
Compare: TypeAlias = Callable[[Shape, Shape], Comparison]


def is_compatible(differences: Differences) -> bool:
    return all(difference.is_compatible for difference in differences)


def walk(root: Pair, compare: Compare) -> Differences:
    known: dict[Pair, Differences] = {}
    while True:
        found, assumed = _walk_once(root, compare, known)
        incompatible = {pair: differences for pair, differences in found.items() if not is_compatible(differences)}
        if not assumed or incompatible.keys() == known.keys():
            return found[root]
        known = incompatible


def _walk_once(root: Pair, compare: Compare, known: dict[Pair, Differences]) -> tuple[dict[Pair, Differences], bool]:
    """The differences of all pairs that were reached, and whether one was assumed to be compatible."""
    found: dict[Pair, Differences] = {}
    stack: dict[Pair, Comparison] = {root: compare(*root)}
    assumed = False
    answer: Differences | None = None
    while stack:
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
            stack[wanted] = compare(*wanted)
    return found, assumed
