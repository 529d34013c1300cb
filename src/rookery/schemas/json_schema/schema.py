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

_NOT_JSON: Final = (msgspec.MsgspecError, InvalidOperation, UnicodeError)
_TOO_DEEP: Final = "Invalid JSON schema: it is nested too deeply"


@dataclass(frozen=True)
class JSONSchema:
    """`raw` is the tree for jsonschema-rs; `root` is the shape by which schemas are compared."""

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
        """Return the schema with sorted names in all objects, and with unique references sorted by subject, version."""
        references = dict.fromkeys(sorted(self.references, key=lambda each: (each.subject, each.version)))
        return parse(json_text.print_sorted(self.canonical), self.resolved, tuple(references))

    def formatted(self, form: str) -> str:
        """Return the canonical text: JSON Schema has no other forms."""
        return self.canonical

    def validator(self) -> jsonschema_rs.Validator:
        """Return a validator for instances, which does not validate formats.

        Raises InvalidSchemaError if the library does not support a pattern of the schema.
        """
        tree = self.raw | {"$schema": find_dialect(self.raw).uri} if isinstance(self.raw, dict) else self.raw
        registry, base_uri = self.documents.registry, self.documents.root_uri
        try:
            return jsonschema_rs.validator_for(tree, validate_formats=False, registry=registry, base_uri=base_uri)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidSchemaError(f"Invalid JSON schema: {error}") from error


def parse(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> JSONSchema:
    """Parse a schema. It must match the meta-schema of its draft, and all its references must be resolvable."""
    canonical, tree = _read(text)
    dialect = find_dialect(tree)
    require_schema(tree, dialect)
    documents = Documents(tree, {name: _read(other)[1] for name, other in resolved.items()})
    root = Model(tree, dialect, documents).root
    _check_references_and_patterns(root)
    return JSONSchema(canonical, references, resolved, tree, root, documents)


def _read(text: str) -> tuple[str, Any]:
    try:
        canonical, tree = json_text.print_compact(text), json_text.read(text)
    except RecursionError as error:
        # The depth at which the parser raises this depends on the version of Python.
        raise InvalidSchemaError(_TOO_DEEP) from error
    except _NOT_JSON as error:
        raise InvalidSchemaError(f"Invalid JSON schema: {error}") from error
    if is_too_deep(tree):
        raise InvalidSchemaError(_TOO_DEEP)
    return canonical, tree


def _check_references_and_patterns(root: Shape) -> None:
    """Visit all shapes, which resolves their references, and compile their patterns. Raises InvalidSchemaError."""
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
