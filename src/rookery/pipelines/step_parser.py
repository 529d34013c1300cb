"""Parses the single-message transforms of a pipeline's file: `- mask: [email]`, `- cast: {count: bigint}` and so on."""

from collections.abc import Callable, Mapping
from typing import Final

import yaml

from rookery.pipelines.fields import Fields, Node, suggestion
from rookery.pipelines.spec import (
    UNIX_FORMS,
    Cast,
    Drop,
    Filter,
    Flatten,
    Mask,
    MaskMethod,
    Rename,
    Route,
    Set,
    Step,
    ToTimestamp,
)

MASK_METHODS: Final[Mapping[str, MaskMethod]] = {"redact": "redact", "hash": "hash", "null": "null"}
_SEPARATOR: Final = "_"


def parse_step(node: Node, parent: Fields) -> Step | None:
    """Parse one entry of `steps`, a mapping with one key, the kind of the step."""
    fields = parent.mapping(node, f"a step of {parent.what}")
    if fields is None:
        return None
    names = fields.names()
    if len(names) != 1 or names[0] not in _KINDS:
        wrong = next((name for name in names if name not in _KINDS), None)
        hint = f"there is no step {wrong}{suggestion(wrong, _KINDS)}" if wrong else "a step must have one key, its kind"
        parent.report.add(node, hint)
        return None
    return _KINDS[names[0]](fields, names[0])


def _mask(fields: Fields, name: str) -> Mask:
    """Parse a list of columns, which are redacted, or a mapping of columns to methods."""
    if isinstance(fields.node_of(name), yaml.MappingNode):
        chosen = fields.pairs(name)
    else:
        chosen = tuple((column, "redact") for column in fields.texts(name))
    for column, method in chosen:
        if method not in MASK_METHODS:
            fields.add_problem(name, f"{column} cannot be masked by {method}{suggestion(method, MASK_METHODS)}")
    return Mask(
        fields.location_of(name), tuple((column, MASK_METHODS.get(method, "redact")) for column, method in chosen)
    )


def _flatten(fields: Fields, name: str) -> Flatten:
    """Parse `true`, a list of columns, or a mapping with `columns` and `separator`."""
    location = fields.location_of(name)
    if isinstance(fields.node_of(name), yaml.MappingNode):
        inner = fields.child(name)
        assert inner is not None
        found = Flatten(location, inner.texts("columns"), inner.text("separator") or _SEPARATOR)
        inner.report_unknown_keys()
        return found
    columns = fields.texts(name)
    return Flatten(location, () if columns == ("true",) else columns, _SEPARATOR)


def _timestamp(fields: Fields, name: str) -> ToTimestamp:
    formats = fields.pairs(name)
    for column, form in formats:
        # Not a pattern: Spark's patterns have no letter u.
        if form.startswith("unix") and form not in UNIX_FORMS:
            fields.add_problem(name, f"{column} cannot be read as {form}{suggestion(form, UNIX_FORMS)}")
    return ToTimestamp(fields.location_of(name), formats)


_KINDS: Final[Mapping[str, Callable[[Fields, str], Step]]] = {
    "mask": _mask,
    "rename": lambda fields, name: Rename(fields.location_of(name), fields.pairs(name)),
    "cast": lambda fields, name: Cast(fields.location_of(name), fields.pairs(name)),
    "filter": lambda fields, name: Filter(fields.location_of(name), fields.required(name)),
    "route": lambda fields, name: Route(fields.location_of(name), fields.required(name)),
    "flatten": _flatten,
    "timestamp": _timestamp,
    "drop": lambda fields, name: Drop(fields.location_of(name), fields.texts(name)),
    "set": lambda fields, name: Set(fields.location_of(name), fields.pairs(name)),
}
