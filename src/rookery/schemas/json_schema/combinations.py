"""Comparison of schemas that are combined of others: sums (`anyOf`, `oneOf`) and products (`allOf`)."""

from collections.abc import Generator

from rookery.schemas.json_schema.differences import Difference
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.walk import Comparison, Differences, Pair, is_compatible


def compare_with_combined(writer: Shape, reader: Shape) -> Generator[Pair, Differences, Differences | None]:
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
        differences = yield pair
        if is_compatible(differences):
            return [*differences, Difference(kind)] if len(pairs) > 1 else differences
    return None


def compare_combined(writer: Shape, reader: Shape) -> Comparison:
    differences = _compare_criteria(writer, reader)
    if not is_compatible(differences):
        return differences
    old, new = writer.distinct_parts(), reader.distinct_parts()
    differences += _compare_sizes(writer, reader, len(new) - len(old))
    matches: list[dict[int, Differences]] = []
    for index, old_part in enumerate(old):
        matches.append({})
        for number, new_part in enumerate(new):
            found = yield Pair(old_part, new_part)
            if is_compatible(found):
                matches[-1][number] = [each.below(writer.kind, str(index)) for each in found]
    chosen = _match(matches)
    for number, index in chosen.items():
        differences += matches[index][number]
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
    return [Difference("COMBINED_TYPE_EXTENDED" if is_extended else "COMBINED_TYPE_CHANGED")]


def _compare_sizes(writer: Shape, reader: Shape, growth: int) -> Differences:
    if growth > 0:
        return [Difference("PRODUCT_TYPE_EXTENDED" if reader.kind == "allOf" else "SUM_TYPE_EXTENDED")]
    if growth < 0:
        return [Difference("PRODUCT_TYPE_NARROWED" if writer.kind == "allOf" else "SUM_TYPE_NARROWED")]
    return []


def _match(matches: list[dict[int, Differences]]) -> dict[int, int]:
    """As many parts of the writer as possible, each with its own part of the reader, by number of the reader's part.

    A part that finds all of its own taken has another one moved, which may have a third one moved, and so on."""
    chosen: dict[int, int] = {}
    for index in range(len(matches)):
        came_from: dict[int, int] = {}
        pending = [index]
        while pending:
            current = pending.pop(0)
            for number in matches[current]:
                if number in came_from:
                    continue
                came_from[number] = current
                if number not in chosen:
                    _move(chosen, came_from, number, index)
                    pending.clear()
                    break
                pending.append(chosen[number])
    return chosen


def _move(chosen: dict[int, int], came_from: dict[int, int], number: int, first: int) -> None:
    """Gives `number` to the part that found it free, whose former one goes to the part that wanted that, and so on to
    `first`, which had none."""
    while True:
        owner = came_from[number]
        former = next((each for each, index in chosen.items() if index == owner), None)
        chosen[number] = owner
        if owner == first:
            return
        assert former is not None
        number = former
