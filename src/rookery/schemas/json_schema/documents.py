"""The documents of a schema, and the resolution of references between them.

A document is found under the name of the reference, under that name relative to the root's `$id`, and under its own
`$id`. Nothing is fetched from the web.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin

import jsonschema_rs

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.json_schema.dialects import Dialect, dialect_of_draft, find_dialect, require_schema

# The base of relative names. urljoin knows the scheme, and the host cannot exist.
_BASE_URI: Final = "http://json-schema.invalid/"
_UNRESOLVED: Final = "unresolved $ref"


class Documents:
    def __init__(self, root: Any, others: Mapping[str, Any]) -> None:
        self.root_uri = join_uris(_BASE_URI, _id_of(root))
        self._others = {name: _prepare(tree) for name, tree in others.items()}
        resources = {self.root_uri: _prepare(root)}
        for name, tree in self._others.items():
            for base_uri in (_BASE_URI, self.root_uri):
                resources.setdefault(join_uris(base_uri, name), tree)
        try:
            self.registry = jsonschema_rs.Registry(list(resources.items()), retriever=self._retrieve)
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise InvalidSchemaError(f"Invalid JSON schema: {_shorten(error)}") from error
        self._found: dict[tuple[str, str], tuple[Any, str, Dialect]] = {}

    def _retrieve(self, uri: str) -> Any:
        """Return a document by its name, for a document that refers to it by a name relative to its own `$id`."""
        for name, tree in self._others.items():
            if uri.endswith("/" + name):
                return tree
        raise ValueError(f"{_UNRESOLVED} '{uri}'")

    def find(self, base_uri: str, reference: str) -> tuple[Any, str, Dialect]:
        """Resolve `reference` in a schema at `base_uri`. Returns the tree, its base URI and its dialect."""
        key = (base_uri, reference)
        if key not in self._found:
            resolved = self._look_up(base_uri, reference)
            dialect = dialect_of_draft(resolved.draft)
            require_schema(resolved.contents, dialect)
            self._found[key] = (resolved.contents, resolved.resolver.base_uri, dialect)
        return self._found[key]

    def _look_up(self, base_uri: str, reference: str) -> jsonschema_rs.Resolved:
        try:
            return self.registry.resolver(base_uri).lookup(reference)
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise InvalidSchemaError(f"Invalid JSON schema: {_UNRESOLVED} '{reference}'") from error


def _shorten(error: Exception) -> str:
    """Return the message of `_retrieve` without the library's text around it, and with the name as in the schema."""
    text = str(error).replace(_BASE_URI, "")
    return text[max(text.find(_UNRESOLVED), 0) :]


def join_uris(base_uri: str, uri: str) -> str:
    try:
        return urljoin(base_uri, uri)
    except ValueError as error:
        raise InvalidSchemaError(f"Invalid JSON schema: '{uri}' is not a valid URI: {error}") from error


def _id_of(tree: Any) -> str:
    uri = tree.get(find_dialect(tree).id_keyword) if isinstance(tree, dict) else None
    return uri if isinstance(uri, str) else ""


def _prepare(tree: Any) -> Any:
    """Return the tree with a `$schema` that the library knows, and with `definitions` copied to `$defs`.

    Confluent's registry finds definitions under both keywords.
    """
    if not isinstance(tree, dict):
        return tree
    prepared = tree | {"$schema": find_dialect(tree).uri}
    older, newer = tree.get("definitions"), tree.get("$defs", {})
    if isinstance(older, dict) and isinstance(newer, dict):
        prepared["$defs"] = older | newer
    return prepared
