"""Comparison of the keywords of objects."""

from rookery.schemas.json_schema.content import ContentModel, compare_models, read_content_model
from rookery.schemas.json_schema.differences import Difference
from rookery.schemas.json_schema.limits import compare_limit
from rookery.schemas.json_schema.patterns import compile_pattern
from rookery.schemas.json_schema.shapes import Shape
from rookery.schemas.json_schema.walk import Comparison, Differences, Pair, is_compatible


def compare_objects(writer: Shape, reader: Shape) -> Comparison:
    return [
        *_compare_required(writer, reader),
        *(yield from _compare_properties(writer, reader)),
        *(yield from _compare_dependencies(writer, reader)),
        *(yield from compare_models("PROPERTIES", "Properties", _model(writer), _model(reader))),
        *compare_limit("maxProperties", "MAX_PROPERTIES", writer.tree, reader.tree),
        *compare_limit("minProperties", "MIN_PROPERTIES", writer.tree, reader.tree),
    ]


def _model(shape: Shape) -> ContentModel:
    return read_content_model(shape, shape.tree.get("additionalProperties", True), "unevaluatedProperties")


def _is_open(shape: Shape) -> bool:
    return _model(shape).is_open and not shape.tree.get("patternProperties")


def _find_cover(shape: Shape, name: str) -> Shape | None:
    """What a property that is not named must fit, in a partially open model."""
    for pattern, tree in shape.tree.get("patternProperties", {}).items():
        if compile_pattern(pattern)(name):
            return shape.child(tree)
    return _model(shape).cover


def _compare_required(writer: Shape, reader: Shape) -> Differences:
    """Only of properties that both schemas name."""
    old, new = writer.tree.get("required", ()), reader.tree.get("required", ())
    shapes = reader.children("properties")
    differences = []
    for name in writer.tree.get("properties", {}):
        if name not in shapes or (name in old) == (name in new):
            continue
        change = "REMOVED" if name in old else f"{_with_default(shapes[name])}ADDED"
        differences.append(Difference(f"REQUIRED_ATTRIBUTE_{change}", ("required", name)))
    return differences


def _with_default(shape: Shape) -> str:
    """The part of a kind that says that a reader knows what to take for a missing property."""
    return "WITH_DEFAULT_" if "default" in shape.notes else ""


def _compare_properties(writer: Shape, reader: Shape) -> Comparison:
    old, new = writer.children("properties"), reader.children("properties")
    differences: Differences = []
    for name in old | new:
        if name not in new:
            found = yield from _compare_removed(old[name], reader, name)
        elif name not in old:
            found = yield from _compare_added(writer, reader, name)
        else:
            found = yield Pair(old[name], new[name])
        differences += [each.below("properties", name) for each in found]
    return differences


def _compare_removed(old: Shape, reader: Shape, name: str) -> Comparison:
    """What the writer may still write must fit the reader's content model."""
    if _is_open(reader):
        return [Difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    cover = _find_cover(reader, name)
    if cover is None:
        with_false = "WITH_FALSE_" if old.kind == "false" else ""
        return [Difference(f"PROPERTY_{with_false}REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    differences = yield Pair(old, cover)
    covered = "IS" if is_compatible(differences) else "NOT"
    return [*differences, Difference(f"PROPERTY_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]


def _compare_added(writer: Shape, reader: Shape, name: str) -> Comparison:
    """What the writer's content model lets through under this name must fit the property."""
    new = reader.child(reader.tree["properties"][name])
    is_required = name in reader.tree.get("required", ())
    need = f"REQUIRED_PROPERTY_{_with_default(new)}" if is_required else "OPTIONAL_PROPERTY_"
    if _is_open(writer):
        kind = "PROPERTY_WITH_EMPTY_SCHEMA_" if new.is_anything else need
        return [Difference(f"{kind}ADDED_TO_OPEN_CONTENT_MODEL")]
    differences = [Difference(f"{need}ADDED_TO_UNOPEN_CONTENT_MODEL")]
    cover = _find_cover(writer, name)
    if cover is None:
        return differences
    found = yield Pair(cover, new)
    covered = "IS" if is_compatible(found) else "NOT"
    return [*found, Difference(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"), *differences]


def _compare_dependencies(writer: Shape, reader: Shape) -> Comparison:
    differences = _compare_dependent_names(_dependent_names(writer), _dependent_names(reader))
    old, new = _dependent_schemas(writer), _dependent_schemas(reader)
    for name in old | new:
        if name not in old or name not in new:
            found = [Difference(f"DEPENDENCY_SCHEMA_{'REMOVED' if name in old else 'ADDED'}")]
        else:
            found = yield Pair(old[name], new[name])
        differences += [each.below("dependencies", name) for each in found]
    return differences


def _compare_dependent_names(old: dict[str, set[str]], new: dict[str, set[str]]) -> Differences:
    differences = []
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
    """Draft 07 and older have one keyword for names and for schemas, the newer ones have two."""
    dependencies = shape.tree.get("dependencies", {}) | shape.tree.get("dependentRequired", {})
    return {name: set(needed) for name, needed in dependencies.items() if isinstance(needed, list) and needed}


def _dependent_schemas(shape: Shape) -> dict[str, Shape]:
    dependencies = shape.tree.get("dependencies", {}) | shape.tree.get("dependentSchemas", {})
    return {name: shape.child(tree) for name, tree in dependencies.items() if not isinstance(tree, list)}
