"""A parsed JSON Schema."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import InvalidOperation
from typing import Any, Final, Literal

import jsonschema_rs
import msgspec

from rookery.schemas.bounds import is_too_deep
from rookery.schemas.interface import InvalidSchemaError, Reference
from rookery.schemas.json_schema import text as json_text
from rookery.schemas.json_schema.dialects import find_dialect, require_schema
from rookery.schemas.json_schema.documents import Documents
from rookery.schemas.json_schema.patterns import compile_pattern
from rookery.schemas.json_schema.shapes import Model, Shape

_NO_JSON: Final = (msgspec.MsgspecError, InvalidOperation, UnicodeError)
_TOO_DEEP: Final = "Invalid JSON schema: it is nested too deeply"


@dataclass(frozen=True)
class JSONSchema:
    """`raw` is the tree that jsonschema-rs takes; `root` is how it is compared with others."""

    canonical: str
    references: tuple[Reference, ...]
    resolved: Mapping[str, str] = field(compare=False, repr=False)
    raw: Any = field(compare=False, repr=False)
    root: Shape = field(compare=False, repr=False)
    documents: Documents = field(compare=False, repr=False)

    @property
    def schema_type(self) -> Literal["JSON"]:
        return "JSON"

    @property
    def name(self) -> str | None:
        return self.raw.get("title") if isinstance(self.raw, dict) else None

    def normalized(self) -> "JSONSchema":
        """With the names of all objects in order, and references by subject and version, each once."""
        references = dict.fromkeys(sorted(self.references, key=lambda each: (each.subject, each.version)))
        return parse(json_text.print_sorted(self.canonical), self.resolved, tuple(references))

    def formatted(self, form: str) -> str:
        """There are no other forms of JSON Schema."""
        return self.canonical

    def validator(self) -> jsonschema_rs.Validator:
        """For instances; formats are notes only. Raises InvalidSchemaError if a pattern is beyond the library."""
        tree = self.raw | {"$schema": find_dialect(self.raw).uri} if isinstance(self.raw, dict) else self.raw
        registry, base_uri = self.documents.registry, self.documents.root_uri
        try:
            return jsonschema_rs.validator_for(tree, validate_formats=False, registry=registry, base_uri=base_uri)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidSchemaError(f"Invalid JSON schema: {error}") from error


def parse(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> JSONSchema:
    """The meta-schema of the draft that `$schema` names must accept it, and its references must lead somewhere."""
    canonical, tree = _read(text)
    dialect = find_dialect(tree)
    require_schema(tree, dialect)
    documents = Documents(tree, {name: _read(other)[1] for name, other in resolved.items()})
    root = Model(tree, dialect, documents).root
    _require_sound(root)
    return JSONSchema(canonical, references, resolved, tree, root, documents)


def _read(text: str) -> tuple[str, Any]:
    try:
        canonical, tree = json_text.print_compact(text), json_text.read(text)
    except RecursionError as error:
        # How deep the parser gets before this depends on the version of Python.
        raise InvalidSchemaError(_TOO_DEEP) from error
    except _NO_JSON as error:
        raise InvalidSchemaError(f"Invalid JSON schema: {error}") from error
    if is_too_deep(tree):
        raise InvalidSchemaError(_TOO_DEEP)
    return canonical, tree


def _require_sound(root: Shape) -> None:
    """That all references lead somewhere, and that patterns are patterns."""
    seen: set[Shape] = {root}
    pending = [root]
    while pending:
        shape = pending.pop()
        patterns = [shape.tree["pattern"]] if "pattern" in shape.tree else shape.tree.get("patternProperties", [])
        for pattern in patterns:
            compile_pattern(pattern)
        new = [neighbour for neighbour in shape.neighbours() if neighbour not in seen]
        seen.update(new)
        pending += new
