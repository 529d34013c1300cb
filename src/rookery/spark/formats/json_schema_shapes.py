"""Maps JSON Schemas to shapes: objects become structs or maps, arrays become arrays, everything else stays JSON text.

A schema lists what is allowed, not which type a value has. Most schemas allow only one type (and null), and this module
finds it. docs/spark-formats.md has the table.
"""

from typing import Any, Final, NamedTuple

from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.json_schema.documents import Documents
from rookery.spark.formats.errors import FormatError
from rookery.spark.formats.json_shapes import JsonShape, list_shape, map_shape, raw_shape, struct_shape

_SCALARS: Final = {"string": StringType(), "integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_SHAPES_MAX: Final = 5000
_NULL: Final = {"type": "null"}


def shape_of_schema(tree: Any, documents: Documents) -> JsonShape:
    return _ShapeBuilder(documents).shape(tree, _RefContext(documents.root_uri, frozenset({(documents.root_uri, "#")})))


class _RefContext(NamedTuple):
    """The base URI of references, and the references that were followed to get here."""

    base: str
    inside: frozenset[tuple[str, str]]


class _ShapeBuilder:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._count = 0

    def shape(self, tree: Any, context: _RefContext) -> JsonShape:
        self._count += 1
        if self._count > _SHAPES_MAX:
            raise FormatError(f"the schema has more than {_SHAPES_MAX} parts, too many for columns")
        if not isinstance(tree, dict):
            return raw_shape()
        if isinstance(tree.get("$ref"), str):
            return self._referred(tree["$ref"], context)
        for word in ("oneOf", "anyOf", "allOf"):
            if isinstance(tree.get(word), list):
                left = [each for each in tree[word] if each != _NULL]
                return self.shape(left[0], context) if len(left) == 1 else raw_shape()
        return self._typed(tree, context)

    def _referred(self, reference: str, context: _RefContext) -> JsonShape:
        """Return the shape of a referenced schema; one that contains itself becomes JSON text at the repetition."""
        followed = (context.base, reference)
        try:
            tree, base, _ = self._documents.find(context.base, reference)
        except InvalidSchemaError:
            return raw_shape()
        if followed in context.inside:
            return raw_shape()
        return self.shape(tree, _RefContext(base, context.inside | {followed}))

    def _typed(self, tree: dict[str, Any], context: _RefContext) -> JsonShape:
        kind = _single_type(tree)
        if kind in _SCALARS:
            return JsonShape(_SCALARS[kind])
        if kind == "array" and isinstance(tree.get("items"), dict):
            return list_shape(self.shape(tree["items"], context))
        if kind == "object":
            properties, rest = tree.get("properties"), tree.get("additionalProperties")
            if isinstance(properties, dict) and properties:
                parts = tuple(self.shape(each, context) for each in properties.values())
                return struct_shape(list(properties), parts)
            if isinstance(rest, dict):
                return map_shape(self.shape(rest, context))
        return raw_shape()


def _single_type(tree: dict[str, Any]) -> str | None:
    """Return the only type besides null, or None. Without `type` it follows from `properties` or `enum`."""
    types = tree.get("type")
    if isinstance(types, str):
        return types
    if isinstance(types, list):
        left = [each for each in types if each != "null"]
        return left[0] if len(left) == 1 else None
    if isinstance(tree.get("properties"), dict):
        return "object"
    values = tree.get("enum")
    is_text = isinstance(values, list) and all(isinstance(each, str) or each is None for each in values)
    return "string" if is_text else None
