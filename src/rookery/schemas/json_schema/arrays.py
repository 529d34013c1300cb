"""Compares the keywords of arrays."""

from typing import Any, NamedTuple

from rookery.schemas.json_schema.content import ContentModel, compare_models, read_content_model
from rookery.schemas.json_schema.differences import Difference, Differences, compare_limit, nest
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.walk import Comparison, Pair


class _Items(NamedTuple):
    """`each` is one schema for all items; or `first` are schemas for the first items and `others` is for the rest."""

    each: Shape | None
    first: list[Shape]
    others: ContentModel


def compare_arrays(writer: Shape, reader: Shape) -> Comparison:
    old, new = _read_items(writer), _read_items(reader)
    return [
        *(yield from _compare_each(old.each, new.each)),
        *(yield from _compare_first(old, new)),
        *(yield from compare_models("ITEMS", "Items", old.others, new.others)),
        *_compare_limits(writer, reader),
    ]


def _read_items(shape: Shape) -> _Items:
    tree = shape.tree
    items = tree.get("items")
    if not shape.dialect.has_prefix_items:
        first, each = (items, None) if isinstance(items, list) else (None, items)
        # With one schema for all items there are no additional ones.
        others = tree.get("additionalItems", True) if each is None else tree.get("additionalItems") or True
    elif "prefixItems" in tree or isinstance(items, bool | None):
        first, others = tree.get("prefixItems"), True if items is None else items
        each = None
    else:
        first, others, each = None, True, items
    return _Items(
        None if each is None else shape.child(each),
        [shape.child(tree) for tree in first] if isinstance(first, list) else [],
        read_content_model(shape, others, "unevaluatedItems"),
    )


def _compare_each(old: Shape | None, new: Shape | None) -> Comparison:
    if old is not None and new is not None:
        return nest((yield Pair(old, new)).differences, "items")
    if old is new:
        return []
    return [Difference("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED", ("items",))]


def _compare_first(old: _Items, new: _Items) -> Comparison:
    differences: Differences = []
    for index in range(max(len(old.first), len(new.first))):
        if index >= len(new.first):
            found = yield from _compare_removed(old.first[index], new.others)
        elif index >= len(old.first):
            found = yield from _compare_added(old.others, new.first[index])
        else:
            found = (yield Pair(old.first[index], new.first[index])).differences
        differences += nest(found, "items", str(index))
    return differences


def _compare_removed(old: Shape, others: ContentModel) -> Comparison:
    if others.is_open:
        return [Difference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    if others.cover is None:
        with_false = "WITH_FALSE_" if old.kind == "false" else ""
        return [Difference(f"ITEM_{with_false}REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found = yield Pair(old, others.cover)
    covered = "IS" if found.is_compatible else "NOT"
    return [*found.differences, Difference(f"ITEM_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]


def _compare_added(others: ContentModel, new: Shape) -> Comparison:
    if others.is_open:
        with_empty = "WITH_EMPTY_SCHEMA_" if new.is_anything else ""
        return [Difference(f"ITEM_{with_empty}ADDED_TO_OPEN_CONTENT_MODEL")]
    if others.cover is None:
        return [Difference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")]
    found = yield Pair(others.cover, new)
    covered = "IS" if found.is_compatible else "NOT"
    return [*found.differences, Difference(f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]


def _compare_limits(writer: Shape, reader: Shape) -> Differences:
    differences = [
        *compare_limit("maxItems", "MAX_ITEMS", writer.tree, reader.tree),
        *compare_limit("minItems", "MIN_ITEMS", writer.tree, reader.tree),
    ]
    old, new = (shape.tree.get("uniqueItems", False) for shape in (writer, reader))
    if old != new:
        differences.append(Difference(f"UNIQUE_ITEMS_{'ADDED' if new else 'REMOVED'}", ("uniqueItems",)))
    contained = _contains(writer), _contains(reader)
    differences += compare_limit("maxContains", "MAX_CONTAINS", *contained)
    differences += compare_limit("minContains", "MIN_CONTAINS", *contained)
    return differences


def _contains(shape: Shape) -> dict[str, Any]:
    """Return the limits of `contains`. The defaults are at least one item, and no maximum. Older drafts have none."""
    if not shape.dialect.is_modern or "contains" not in shape.tree:
        return {}
    return {"minContains": 1, **shape.tree}
