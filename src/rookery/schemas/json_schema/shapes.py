"""Shapes: the structure of a schema in which Confluent's registry compares schemas.

A tree has one shape for each assertion that it makes: its `type`, its `enum`, its `anyOf` and so on. If it has several,
its shape is their product ("allOf"). Keywords that apply only to strings, numbers, arrays or objects belong to the
shape of the `type`; without such a type they form an additional shape. A reference has the shape of its target.

Shapes are created on demand, once for each text in a scope, so that recursive schemas become finite graphs. Shapes are
compared by identity.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.json_schema.dialects import Dialect
from rookery.schemas.json_schema.documents import Documents, join_uris
from rookery.schemas.json_schema.text import key_of

CRITERIA: Final = ("allOf", "oneOf", "anyOf")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SOLE: Final = ("not", "additionalProperties", "propertyNames", "unevaluatedProperties", "if", "then", "else")
_SOLE_OR_LISTED: Final = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
_NAMED: Final = ("properties", "patternProperties", "dependencies", "dependentSchemas")
_NOTHING: Final[Mapping[str, Any]] = {}
Tree: TypeAlias = Any  # a dict or a bool


class Scope(NamedTuple):
    """The base URI of the references in a tree, and the dialect of its keywords."""

    base_uri: str
    dialect: Dialect


_Key: TypeAlias = tuple[bytes, Scope]
_DIGEST_SIZE_BYTES = 16


class Shape:
    """`kind`: "true", "false", "empty", "string", "number", "integer", "boolean", "null", "array", "object", "enum",
    "const", "not", "if" or one of CRITERIA. `tree` holds the keywords of that kind. `annotations` is the whole schema,
    for keywords that assert nothing, such as `title`."""

    def __init__(
        self,
        kind: str,
        tree: Mapping[str, Any],
        *,
        model: "Model",
        scope: Scope,
        parts: "tuple[Shape | Tree, ...]" = (),
    ) -> None:
        self.kind = kind
        self.tree = tree
        self.annotations: Mapping[str, Any] = _NOTHING
        self._model = model
        self._scope = scope
        self._parts = parts

    @property
    def dialect(self) -> Dialect:
        return self._scope.dialect

    @property
    def family(self) -> str:
        """The kind, with "number" for integers and "combined" for CRITERIA. A family has the same keywords."""
        return "number" if self.kind == "integer" else "combined" if self.is_combined else self.kind

    @property
    def is_combined(self) -> bool:
        return self.kind in CRITERIA

    @property
    def is_anything(self) -> bool:
        return self.kind in ("true", "empty")

    @cached_property
    def parts(self) -> "list[Shape]":
        """The parts of a combined shape."""
        return [part if isinstance(part, Shape) else self.child(part) for part in self._parts]

    @cached_property
    def distinct_parts(self) -> "dict[Shape | bytes, Shape]":
        """The parts by their text, without duplicates. Two different references to the same shape count as two."""
        keys = [part if isinstance(part, Shape) else key_of(part) for part in self._parts]
        return dict(zip(keys, self.parts, strict=True))

    def child(self, tree: Tree) -> "Shape":
        """Return the shape of a schema inside this one."""
        return self._model.shape(tree, self._scope)

    @cached_property
    def size(self) -> int:
        """The number of properties, values and so on."""
        return sum(len(value) for value in self.tree.values() if isinstance(value, dict | list))

    @cached_property
    def properties(self) -> "dict[str, Shape]":
        """The declared properties of an object, by name."""
        return {name: self.child(tree) for name, tree in self.tree.get("properties", _NOTHING).items()}

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of the required properties of an object."""
        return frozenset(self.tree.get("required", ()))

    def neighbours(self) -> "Iterator[Shape]":
        """Yield all shapes directly inside this one."""
        yield from self.parts
        for keyword in _SOLE:
            if keyword in self.tree:
                yield self.child(self.tree[keyword])
        for keyword in _SOLE_OR_LISTED:
            value = self.tree.get(keyword, [])
            yield from map(self.child, value if isinstance(value, list) else [value])
        for keyword in _NAMED:
            values = self.tree.get(keyword, _NOTHING).values()
            yield from (self.child(value) for value in values if not isinstance(value, list))


class Model:
    """The shapes of one schema."""

    def __init__(self, tree: Tree, dialect: Dialect, documents: Documents) -> None:
        self._documents = documents
        self._shapes: dict[_Key, Shape] = {}
        self._digests: dict[int, tuple[Tree, bytes]] = {}
        self.root = self.shape(tree, Scope(documents.root_uri, dialect))

    def shape(self, tree: Tree, scope: Scope) -> Shape:
        """Return the shape of a tree. A tree that is only a reference has the shape at the end of the chain."""
        passed: set[_Key] = set()
        while (key := (self._digest(tree), scope)) not in self._shapes:
            reference = _sole_reference(tree, scope.dialect)
            if reference is None:
                self._shapes[key] = self._read(tree, self._enter(tree, scope))
            elif key in passed:
                raise InvalidSchemaError(f"Invalid JSON schema: $ref '{reference}' leads back to itself")
            else:
                passed.add(key)
                tree, base_uri, dialect = self._documents.find(self._enter(tree, scope).base_uri, reference)
                scope = Scope(base_uri, dialect)
        self._shapes |= dict.fromkeys(passed, self._shapes[key])
        return self._shapes[key]

    def _digest(self, tree: Tree) -> bytes:
        """Return the digest of the tree's text, computed once per tree.

        The trees are kept, because their ids are the keys: another object could get the id of a freed tree.
        """
        known = self._digests.get(id(tree))
        if known is None:
            digest = blake2b(key_of(tree), digest_size=_DIGEST_SIZE_BYTES).digest()
            known = self._digests[id(tree)] = (tree, digest)
        return known[1]

    def _enter(self, tree: Tree, scope: Scope) -> Scope:
        """Return the scope inside a schema, which may have its own `$id`."""
        uri = tree.get(scope.dialect.id_keyword) if isinstance(tree, dict) else None
        if not isinstance(uri, str) or uri.startswith("#") or (not scope.dialect.is_modern and "$ref" in tree):
            return scope
        return Scope(join_uris(scope.base_uri, uri), scope.dialect)

    def _read(self, tree: Tree, scope: Scope) -> Shape:
        if isinstance(tree, bool):
            return Shape("true" if tree else "false", _NOTHING, model=self, scope=scope)
        parts = tuple(self._read_parts(tree, scope))
        if len(parts) == 1 and isinstance(parts[0], Shape):
            shape = parts[0]
        else:
            shape = Shape("allOf" if parts else "empty", _NOTHING, model=self, scope=scope, parts=parts)
        shape.annotations = tree
        return shape

    def _read_parts(self, tree: dict[str, Any], scope: Scope) -> "Iterator[Shape | Tree]":
        if scope.dialect.is_modern:
            # They are resolved later: they may refer to the schema that is being read.
            yield from ({keyword: tree[keyword]} for keyword in _REFERENCES if keyword in tree)
        yield from self._read_kinds(("enum",), tree, scope)
        for criterion in CRITERIA:
            if criterion in tree:
                yield self._make(criterion, {}, scope, tuple(tree[criterion]))
        yield from self._read_kinds(("not", "const"), tree, scope)
        types = tree.get("type", [])
        typed = [self._take(kind, tree, scope) for kind in ([types] if isinstance(types, str) else types)]
        if isinstance(types, str):
            yield from typed
        elif typed:
            yield self._make("anyOf", {}, scope, tuple(typed))
        families = {shape.family for shape in typed}
        untyped = [kind for kind in ("array", "object", "number", "string") if kind not in families]
        yield from self._read_kinds((*untyped, "if"), tree, scope)

    def _read_kinds(self, kinds: tuple[str, ...], tree: dict[str, Any], scope: Scope) -> Iterator[Shape]:
        for kind in kinds:
            if any(keyword in tree for keyword in scope.dialect.keywords.get(kind, ())):
                yield self._take(kind, tree, scope)

    def _take(self, kind: str, tree: dict[str, Any], scope: Scope) -> Shape:
        """Create a shape with the keywords that belong to its kind."""
        keywords = scope.dialect.keywords.get("number" if kind == "integer" else kind, ())
        return self._make(kind, {keyword: tree[keyword] for keyword in keywords if keyword in tree}, scope)

    def _make(self, kind: str, tree: Mapping[str, Any], scope: Scope, parts: "tuple[Shape | Tree, ...]" = ()) -> Shape:
        return Shape(kind, tree, model=self, scope=scope, parts=parts)


def _sole_reference(tree: Tree, dialect: Dialect) -> str | None:
    """Return the reference of a tree that asserts nothing else. Up to draft 07 a `$ref` hides the other keywords."""
    if not isinstance(tree, dict):
        return None
    references = [tree[keyword] for keyword in _REFERENCES[: 3 if dialect.is_modern else 1] if keyword in tree]
    if not all(isinstance(reference, str) for reference in references):
        raise InvalidSchemaError(f"Invalid JSON schema: the $ref {references} is not a string")
    return references[0] if len(references) == 1 and not (dialect.is_modern and _asserts(tree, dialect)) else None


def _asserts(tree: dict[str, Any], dialect: Dialect) -> bool:
    own = ("type", *CRITERIA)
    return any(keyword in tree for keywords in (own, *dialect.keywords.values()) for keyword in keywords)
