"""Comparison of schemas that are combined of others: sums (`anyOf`, `oneOf`) and products (`allOf`)."""

from collections import deque
from collections.abc import Generator
from typing import Final

from rookery.schemas.json_schema.differences import Difference, Differences, Found, below
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.walk import Comparison, Pair

_CHANGED: Final = Difference("COMBINED_TYPE_CHANGED")


def compare_with_combined(writer: Shape, reader: Shape) -> Generator[Pair, Found, Differences | None]:
    """One of the two is combined. That is compatible if one part of the reader's sum takes all, or if one part of the
    writer's product is enough; None if neither is the case."""
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
        differences += below(found.differences, writer.kind, str(index))
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
    """As many parts of the writer as possible, each with its own part of the reader, by number of the reader's part.

    A part that finds all of its own taken has another one moved, which may have a third one moved, and so on. What such
    a search saw in vain needs no second look. A search begins with the part that has the same text (`same`) and goes on
    behind the last one that was found, as most parts are in the same order. All ends when there are more without a part
    than there must be."""
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
    """Gives `number` to the part that found it free, whose former one goes to the part that wanted that, and so on to
    the one that had none."""
    former: int | None = number
    while former is not None:
        number, owner = former, came_from[former]
        former = numbers.get(owner)
        chosen[number], numbers[owner] = owner, number
