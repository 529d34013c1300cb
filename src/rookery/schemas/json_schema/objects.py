"""Compares the keywords of objects."""

from typing import Any

from rookery.schemas.bounds import PARTS_PER_STEP
from rookery.schemas.json_schema.content import compare_models, read_content_model
from rookery.schemas.json_schema.differences import Difference, Differences, compare_limit, nest
from rookery.schemas.json_schema.patterns import compile_pattern
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.walk import STEPS_MAX, Comparison, Pair, TooComplexError


class _Object:
    """A shape, and the model of the properties that it does not declare."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        additional = shape.tree.get("additionalProperties", True)
        self.model = read_content_model(shape, additional, "unevaluatedProperties")
        self._patterns: dict[str, Any] = shape.tree.get("patternProperties", {})

    @property
    def is_open(self) -> bool:
        return not self._patterns and self.model.is_open

    def find_covers(self, names: set[str]) -> dict[str, Shape | None]:
        """Return for undeclared properties the schema that each must match in a partially open model.

        None means that the property is not allowed. Raises TooComplexError.
        """
        if not names:
            return {}
        if len(self._patterns) * len(names) > STEPS_MAX * PARTS_PER_STEP:
            raise TooComplexError
        patterns = [(compile_pattern(pattern), self.shape.child(tree)) for pattern, tree in self._patterns.items()]
        return {name: next((cover for matches, cover in patterns if matches(name)), self.model.cover) for name in names}


def compare_objects(writer: Shape, reader: Shape) -> Comparison:
    old, new = _Object(writer), _Object(reader)
    return [
        *_compare_required(writer, reader),
        *(yield from _compare_properties(old, new)),
        *(yield from _compare_dependencies(writer, reader)),
        *(yield from compare_models("PROPERTIES", "Properties", old.model, new.model)),
        *compare_limit("maxProperties", "MAX_PROPERTIES", writer.tree, reader.tree),
        *compare_limit("minProperties", "MIN_PROPERTIES", writer.tree, reader.tree),
    ]


def _compare_required(writer: Shape, reader: Shape) -> Differences:
    """Compare whether properties that both schemas declare are required."""
    if writer.required == reader.required:
        return []
    differences: Differences = []
    for name in writer.properties:
        if name not in reader.properties or (name in writer.required) == (name in reader.required):
            continue
        change = "REMOVED" if name in writer.required else f"{_with_default(reader.properties[name])}ADDED"
        differences.append(Difference(f"REQUIRED_ATTRIBUTE_{change}", ("required", name)))
    return differences


def _with_default(shape: Shape) -> str:
    """Return the part of a difference's kind that says that the property has a default."""
    return "WITH_DEFAULT_" if "default" in shape.annotations else ""


def _compare_properties(writer: _Object, reader: _Object) -> Comparison:
    old, new = writer.shape.properties, reader.shape.properties
    old_covers = {} if writer.is_open else writer.find_covers(new.keys() - old.keys())
    new_covers = {} if reader.is_open else reader.find_covers(old.keys() - new.keys())
    differences: Differences = []
    for name in old | new:
        if name in old and name in new:
            found = (yield Pair(old[name], new[name])).differences
        elif name in old:
            found = yield from _compare_removed(old[name], reader.is_open, new_covers.get(name))
        else:
            is_required = name in reader.shape.required
            found = yield from _compare_added(new[name], is_required, writer.is_open, old_covers.get(name))
        differences += nest(found, "properties", name)
    return differences


def _compare_removed(old: Shape, is_open: bool, cover: Shape | None) -> Comparison:
    """Compare a property that only the writer declares: it must match the reader's content model."""
    if is_open:
        return [Difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    if cover is None:
        with_false = "WITH_FALSE_" if old.kind == "false" else ""
        return [Difference(f"PROPERTY_{with_false}REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found = yield Pair(old, cover)
    covered = "IS" if found.is_compatible else "NOT"
    return [*found.differences, Difference(f"PROPERTY_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]


def _compare_added(new: Shape, is_required: bool, is_open: bool, cover: Shape | None) -> Comparison:
    """Compare a property that only the reader declares: what the writer's content model accepts must match it."""
    need = f"REQUIRED_PROPERTY_{_with_default(new)}" if is_required else "OPTIONAL_PROPERTY_"
    if is_open:
        kind = "PROPERTY_WITH_EMPTY_SCHEMA_" if new.is_anything else need
        return [Difference(f"{kind}ADDED_TO_OPEN_CONTENT_MODEL")]
    differences: Differences = [Difference(f"{need}ADDED_TO_UNOPEN_CONTENT_MODEL")]
    if cover is None:
        return differences
    found = yield Pair(cover, new)
    covered = "IS" if found.is_compatible else "NOT"
    covers = Difference(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    return [*found.differences, covers, *differences]


def _compare_dependencies(writer: Shape, reader: Shape) -> Comparison:
    differences = _compare_dependent_names(_dependent_names(writer), _dependent_names(reader))
    old, new = _dependent_schemas(writer), _dependent_schemas(reader)
    for name in old | new:
        if name not in old or name not in new:
            found: Differences = [Difference(f"DEPENDENCY_SCHEMA_{'REMOVED' if name in old else 'ADDED'}")]
        else:
            found = (yield Pair(old[name], new[name])).differences
        differences += nest(found, "dependencies", name)
    return differences


def _compare_dependent_names(old: dict[str, set[str]], new: dict[str, set[str]]) -> Differences:
    differences: Differences = []
    for name in old | new:
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if before is None or after is None:
            change = "ADDED" if before is None else "REMOVED"
        else:
            change = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
        differences.append(Difference(f"DEPENDENCY_ARRAY_{change}", ("dependencies", name)))
    return differences


def _dependent_names(shape: Shape) -> dict[str, set[str]]:
    """Return the dependent names. Up to draft 07 one keyword holds names and schemas; newer drafts have two."""
    dependencies = shape.tree.get("dependencies", {}) | shape.tree.get("dependentRequired", {})
    return {name: set(needed) for name, needed in dependencies.items() if isinstance(needed, list) and needed}


def _dependent_schemas(shape: Shape) -> dict[str, Shape]:
    dependencies = shape.tree.get("dependencies", {}) | shape.tree.get("dependentSchemas", {})
    return {name: shape.child(tree) for name, tree in dependencies.items() if not isinstance(tree, list)}
