"""Checks whether a reader's JSON Schema accepts what a writer's accepts, by the rules of Confluent's registry.

`compare_shapes` compares the kinds of the two; a function per family compares the keywords of that family. The rules
are those of Confluent's registry even where these are coarse: conditions (`if`), `contains`, `propertyNames` and the
schemas of `patternProperties` are not compared, and a missing `type` is no difference if other keywords imply it.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from rookery.schemas.bounds import TOO_COMPLEX, take_first
from rookery.schemas.interface import Incompatibility, Policy
from rookery.schemas.json_schema.arrays import compare_arrays
from rookery.schemas.json_schema.combinations import compare_combined, compare_with_combined
from rookery.schemas.json_schema.differences import Difference, Differences, compare_limit, describe, flatten
from rookery.schemas.json_schema.objects import compare_objects
from rookery.schemas.json_schema.schema import JSONSchema
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.text import key_of
from rookery.schemas.json_schema.walk import Comparison, Pair, TooComplexError, walk


def check(reader: JSONSchema, writer: JSONSchema, policy: Policy = "STRICT") -> list[Incompatibility]:
    try:
        differences = find_differences(reader, writer, policy)
    except TooComplexError:
        return [TOO_COMPLEX]
    return take_first(map(describe, flatten(differences, policy)))


def find_differences(reader: JSONSchema, writer: JSONSchema, policy: Policy = "STRICT") -> Differences:
    """Return all differences, including the compatible ones. Raises TooComplexError.

    The policy decides which parts of combined schemas are compared with each other.
    """
    return walk(Pair(writer.root, reader.root), compare_shapes, policy)


def compare_shapes(writer: Shape, reader: Shape) -> Comparison:
    if writer.is_combined != reader.is_combined:
        differences = yield from compare_with_combined(writer, reader)
        if differences is not None:
            return differences
    if writer.family != reader.family:
        return _compare_families(writer, reader)
    return _compare_annotations(writer, reader) + (yield from _compare_details(writer, reader))


def _compare_families(writer: Shape, reader: Shape) -> Differences:
    if writer.kind == "false" or reader.is_anything:
        return []
    # Kafka Connect's converter wrote decimals as numbers in one version and as texts in another.
    if writer.annotations.get("connect.type") == reader.annotations.get("connect.type") == "bytes":
        return []
    return [Difference("TYPE_CHANGED")]


def _compare_annotations(writer: Shape, reader: Shape) -> Differences:
    differences: Differences = []
    writer_id, reader_id = (shape.annotations.get(shape.dialect.id_keyword) for shape in (writer, reader))
    if writer_id != reader_id:
        differences.append(Difference("ID_CHANGED"))
    for keyword in ("title", "description", "default"):
        old, new = writer.annotations.get(keyword), reader.annotations.get(keyword)
        if old is not new and key_of(old) != key_of(new):
            differences.append(Difference(f"{keyword.upper()}_CHANGED"))
    return differences


def _compare_details(writer: Shape, reader: Shape) -> Comparison:
    match writer.family:
        case "combined":
            return (yield from compare_combined(writer, reader))
        case "object":
            return (yield from compare_objects(writer, reader))
        case "array":
            return (yield from compare_arrays(writer, reader))
        case "not":
            return (yield from _compare_negations(writer, reader))
    compare = _COMPARE.get(writer.family)
    return compare(writer, reader) if compare else []


def _compare_negations(writer: Shape, reader: Shape) -> Comparison:
    """Compare in the opposite direction: a schema that excludes less accepts more."""
    found = yield Pair(reader.child(reader.tree["not"]), writer.child(writer.tree["not"]))
    kind = "NOT_TYPE_NARROWED" if found.is_compatible else "NOT_TYPE_EXTENDED"
    return [Difference(kind, ("not",))]


def _compare_strings(writer: Shape, reader: Shape) -> Differences:
    differences = [
        *compare_limit("maxLength", "MAX_LENGTH", writer.tree, reader.tree),
        *compare_limit("minLength", "MIN_LENGTH", writer.tree, reader.tree),
    ]
    old, new = writer.tree.get("pattern"), reader.tree.get("pattern")
    if old != new:
        change = "ADDED" if old is None else "REMOVED" if new is None else "CHANGED"
        differences.append(Difference(f"PATTERN_{change}", ("pattern",)))
    return differences


def _compare_numbers(writer: Shape, reader: Shape) -> Differences:
    old, new = _plain_limits(writer.tree), _plain_limits(reader.tree)
    differences = [
        *compare_limit("maximum", "MAXIMUM", old, new),
        *compare_limit("minimum", "MINIMUM", old, new),
        *compare_limit("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", old, new),
        *compare_limit("exclusiveMinimum", "EXCLUSIVE_MINIMUM", old, new),
        *_compare_multiples(old.get("multipleOf"), new.get("multipleOf")),
    ]
    if writer.kind != reader.kind:
        differences.append(Difference("TYPE_EXTENDED" if writer.kind == "integer" else "TYPE_NARROWED"))
    return differences


def _plain_limits(tree: Any) -> dict[str, Any]:
    """Return the limits in the form of later drafts: in draft 04 `exclusiveMaximum` is a flag of `maximum`."""
    limits = dict(tree)
    for limit, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
        if isinstance(limits.get(exclusive), bool) and limits.pop(exclusive) and limit in limits:
            limits[exclusive] = limits.pop(limit)
    return limits


def _compare_multiples(old: float | None, new: float | None) -> Differences:
    if old == new:
        return []
    if old is None or new is None:
        change = "ADDED" if old is None else "REMOVED"
    elif not Decimal(str(new)) % Decimal(str(old)):
        change = "EXPANDED"
    else:
        change = "CHANGED" if Decimal(str(old)) % Decimal(str(new)) else "REDUCED"
    return [Difference(f"MULTIPLE_OF_{change}", ("multipleOf",))]


def _compare_enums(writer: Shape, reader: Shape) -> Differences:
    old, new = ({key_of(value) for value in shape.tree["enum"]} for shape in (writer, reader))
    if old == new:
        return []
    change = "EXTENDED" if old < new else "NARROWED" if new < old else "CHANGED"
    return [Difference(f"ENUM_ARRAY_{change}", ("enum",))]


def _compare_constants(writer: Shape, reader: Shape) -> Differences:
    if key_of(writer.tree["const"]) == key_of(reader.tree["const"]):
        return []
    return [Difference("ENUM_ARRAY_CHANGED", ("const",))]


_COMPARE: Final[dict[str, Callable[[Shape, Shape], Differences]]] = {
    "string": _compare_strings,
    "number": _compare_numbers,
    "enum": _compare_enums,
    "const": _compare_constants,
}
