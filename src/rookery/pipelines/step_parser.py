"""Single-message transforms as the file writes them: `- mask: [email]`, `- cast: {count: bigint}` and so on."""

from collections.abc import Callable, Mapping
from typing import Final

import yaml

from rookery.pipelines.fields import Fields, Node, nearest
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


def parse_step(node: Node, around: Fields) -> Step | None:
    """One entry of `steps`: a mapping with one key, the kind of the step."""
    fields = around.mapping(node, f"a step of {around.what}")
    if fields is None:
        return None
    names = fields.names()
    if len(names) != 1 or names[0] not in _KINDS:
        wrong = next((name for name in names if name not in _KINDS), None)
        hint = f"there is no step {wrong}{nearest(wrong, _KINDS)}" if wrong else "a step has one key, its kind"
        around.report.add(node, hint)
        return None
    return _KINDS[names[0]](fields, names[0])


def _mask(fields: Fields, name: str) -> Mask:
    """A list of columns, which are redacted; or a mapping of columns to methods."""
    if isinstance(fields.node_of(name), yaml.MappingNode):
        chosen = fields.pairs(name)
    else:
        chosen = tuple((column, "redact") for column in fields.texts(name))
    for column, method in chosen:
        if method not in MASK_METHODS:
            fields.complain(name, f"{column} cannot be masked by {method}{nearest(method, MASK_METHODS)}")
    return Mask(fields.place_of(name), tuple((column, MASK_METHODS.get(method, "redact")) for column, method in chosen))


def _flatten(fields: Fields, name: str) -> Flatten:
    """`true`, columns, or a mapping with columns and separator."""
    place = fields.place_of(name)
    if isinstance(fields.node_of(name), yaml.MappingNode):
        inner = fields.child(name)
        assert inner is not None
        found = Flatten(place, inner.texts("columns"), inner.text("separator") or _SEPARATOR)
        inner.finish()
        return found
    columns = fields.texts(name)
    return Flatten(place, () if columns == ("true",) else columns, _SEPARATOR)


def _timestamp(fields: Fields, name: str) -> ToTimestamp:
    formats = fields.pairs(name)
    for column, form in formats:
        # No pattern begins like this: u is none of Spark's letters.
        if form.startswith("unix") and form not in UNIX_FORMS:
            fields.complain(name, f"{column} cannot be read as {form}{nearest(form, UNIX_FORMS)}")
    return ToTimestamp(fields.place_of(name), formats)


_KINDS: Final[Mapping[str, Callable[[Fields, str], Step]]] = {
    "mask": _mask,
    "rename": lambda fields, name: Rename(fields.place_of(name), fields.pairs(name)),
    "cast": lambda fields, name: Cast(fields.place_of(name), fields.pairs(name)),
    "filter": lambda fields, name: Filter(fields.place_of(name), fields.required(name)),
    "route": lambda fields, name: Route(fields.place_of(name), fields.required(name)),
    "flatten": _flatten,
    "timestamp": _timestamp,
    "drop": lambda fields, name: Drop(fields.place_of(name), fields.texts(name)),
    "set": lambda fields, name: Set(fields.place_of(name), fields.pairs(name)),
}
