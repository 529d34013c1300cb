"""Compares schemas that combine other schemas: sums (`anyOf`, `oneOf`) and products (`allOf`)."""

from collections import deque
from collections.abc import Generator
from typing import Final

from rookery.schemas.json_schema.differences import Difference, Differences, Found, nest
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.walk import Comparison, Pair

_CHANGED: Final = Difference("COMBINED_TYPE_CHANGED")


def compare_with_combined(writer: Shape, reader: Shape) -> Generator[Pair, Found, Differences | None]:
    """Compare a combined schema with one that is not combined; either may be the writer's.

    They are compatible if one part of the reader's sum accepts everything, or if the reader accepts one part of the
    writer's product. Returns None if neither is the case.
    """
    if reader.is_combined:
        pairs, kind = [Pair(writer, part) for part in reader.parts], "SUM_TYPE_EXTENDED"
        is_one_enough = reader.kind != "allOf"
    else:
        pairs, kind = [Pair(part, reader) for part in writer.parts], "PRODUCT_TYPE_NARROWED"
        is_one_enough = writer.kind == "allOf"
    if len(pairs) > 1 and not is_one_enough:
        return None
    for pair in pairs:
        found = yield pair
        if found.is_compatible:
            return [*found.differences, Difference(kind)] if len(pairs) > 1 else found.differences
    return None


def compare_combined(writer: Shape, reader: Shape) -> Comparison:
    differences = _compare_criteria(writer, reader)
    if differences == [_CHANGED]:
        return differences
    old, new = [*writer.distinct_parts.values()], [*reader.distinct_parts.values()]
    differences += _compare_sizes(writer, reader, len(new) - len(old))
    numbers = {key: number for number, key in enumerate(reader.distinct_parts)}
    chosen = yield from _match(old, new, [numbers.get(key) for key in writer.distinct_parts])
    for number, index in chosen.items():
        found = yield Pair(old[index], new[number])
        differences += nest(found.differences, writer.kind, str(index))
    if len(chosen) < min(len(old), len(new)):
        differences.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
    return differences


def _compare_criteria(writer: Shape, reader: Shape) -> Differences:
    if writer.kind == reader.kind:
        return []
    old_is_single, new_is_single = len(writer.parts) == 1, len(reader.parts) == 1
    is_extended = (
        reader.kind == "anyOf"
        or (old_is_single and (new_is_single or reader.kind == "oneOf"))
        or (new_is_single and writer.kind == "allOf")
    )
    return [Difference("COMBINED_TYPE_EXTENDED") if is_extended else _CHANGED]


def _compare_sizes(writer: Shape, reader: Shape, growth: int) -> Differences:
    if growth > 0:
        return [Difference("PRODUCT_TYPE_EXTENDED" if reader.kind == "allOf" else "SUM_TYPE_EXTENDED")]
    if growth < 0:
        return [Difference("PRODUCT_TYPE_NARROWED" if writer.kind == "allOf" else "SUM_TYPE_NARROWED")]
    return []


def _match(old: list[Shape], new: list[Shape], same: list[int | None]) -> Generator[Pair, Found, dict[int, int]]:
    """Find a maximum matching of the writer's parts (`old`) with compatible parts of the reader (`new`).

    Returns the index of the writer's part for each matched index of the reader's. This is the augmenting-path algorithm
    for bipartite matching: if all compatible parts are taken, their owners are moved to other parts. Parts of the
    reader that a failed search visited cannot help a later search. A search begins with the part of the same text
    (`same`), and continues after the last match, since most parts are in the same order. The search ends as soon as
    more parts of the writer are unmatched than the sizes require.
    """
    chosen: dict[int, int] = {}
    numbers: dict[int, int] = {}
    useless: set[int] = set()
    first = 0
    for index in range(len(old)):
        came_from: dict[int, int] = {}
        pending = deque([index])
        while pending:
            current = pending.popleft()
            likely = same[current]
            for number in (*([] if likely is None else [likely]), *range(first, len(new)), *range(first)):
                if (
                    number in came_from
                    or number in useless
                    or not (yield Pair(old[current], new[number])).is_compatible
                ):
                    continue
                came_from[number] = current
                if number not in chosen:
                    _move(chosen, numbers, came_from, number)
                    first = number + 1
                    pending.clear()
                    break
                pending.append(chosen[number])
        if index not in numbers:
            useless.update(came_from)
            if index + 1 - len(numbers) > max(0, len(old) - len(new)):
                break
    return chosen


def _move(chosen: dict[int, int], numbers: dict[int, int], came_from: dict[int, int], number: int) -> None:
    """Apply an augmenting path: match the free `number` with the part that found it, that part's former number with the
    part that asked for it, and so on back to the part that had none."""
    former: int | None = number
    while former is not None:
        number, owner = former, came_from[former]
        former = numbers.get(owner)
        chosen[number], numbers[owner] = owner, number
