"""What a schema says, in the terms in which Confluent's registry compares schemas.

A tree has one shape for each assertion that it makes: its `type`, its `enum`, its `anyOf` and so on. If it has several,
its own shape is the product ("allOf") of them. Keywords that only concern strings, numbers, arrays or objects belong to
the shape of the `type`, or make one of their own where no type takes them. References have the shape that they lead to.

Shapes are made when they are asked for, once for each text in a scope, so that recursive schemas are finite graphs. Two
shapes are the same if they are the same object.
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
    """Where a tree is: what references in it are relative to, and how it is to be read."""

    base_uri: str
    dialect: Dialect


_Key: TypeAlias = tuple[bytes, Scope]
_DIGEST_SIZE_BYTES = 16


class Shape:
    """`kind`: "true", "false", "empty", "string", "number", "integer", "boolean", "null", "array", "object", "enum",
    "const", "not", "if" or one of CRITERIA. `tree` has the keywords, `notes` those that assert nothing."""

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
        self.notes: Mapping[str, Any] = _NOTHING
        self._model = model
        self._scope = scope
        self._parts = parts

    @property
    def dialect(self) -> Dialect:
        return self._scope.dialect

    @property
    def family(self) -> str:
        """The kinds that can be compared in detail."""
        return "number" if self.kind == "integer" else "combined" if self.is_combined else self.kind

    @property
    def is_combined(self) -> bool:
        return self.kind in CRITERIA

    @property
    def is_anything(self) -> bool:
        return self.kind in ("true", "empty")

    @cached_property
    def parts(self) -> "list[Shape]":
        """Of a combined shape."""
        return [part if isinstance(part, Shape) else self.child(part) for part in self._parts]

    @cached_property
    def distinct_parts(self) -> "dict[Shape | bytes, Shape]":
        """By text, without repetitions; two references may have the same shape and count as two."""
        keys = [part if isinstance(part, Shape) else key_of(part) for part in self._parts]
        return dict(zip(keys, self.parts, strict=True))

    def child(self, tree: Tree) -> "Shape":
        """Of a schema inside this one."""
        return self._model.shape(tree, self._scope)

    @cached_property
    def size(self) -> int:
        """How many properties, values and so on it has."""
        return sum(len(value) for value in self.tree.values() if isinstance(value, dict | list))

    @cached_property
    def properties(self) -> "dict[str, Shape]":
        """Of an object, by name."""
        return {name: self.child(tree) for name, tree in self.tree.get("properties", _NOTHING).items()}

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of an object's properties that must be there."""
        return frozenset(self.tree.get("required", ()))

    def neighbours(self) -> "Iterator[Shape]":
        """All that this one is made of, one step down."""
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
        """Of a reference with nothing beside it that counts, the shape at the end of the chain that begins there."""
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
        """Of its text, once for each tree; these are kept, so that no other can be at the same place."""
        known = self._digests.get(id(tree))
        if known is None:
            digest = blake2b(key_of(tree), digest_size=_DIGEST_SIZE_BYTES).digest()
            known = self._digests[id(tree)] = (tree, digest)
        return known[1]

    def _enter(self, tree: Tree, scope: Scope) -> Scope:
        """Into a schema that may have an `$id` of its own."""
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
        shape.notes = tree
        return shape

    def _read_parts(self, tree: dict[str, Any], scope: Scope) -> "Iterator[Shape | Tree]":
        if scope.dialect.is_modern:
            # Not followed yet: they may lead back here.
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
        """A shape with the keywords that belong to its kind."""
        keywords = scope.dialect.keywords.get("number" if kind == "integer" else kind, ())
        return self._make(kind, {keyword: tree[keyword] for keyword in keywords if keyword in tree}, scope)

    def _make(self, kind: str, tree: Mapping[str, Any], scope: Scope, parts: "tuple[Shape | Tree, ...]" = ()) -> Shape:
        return Shape(kind, tree, model=self, scope=scope, parts=parts)


def _sole_reference(tree: Tree, dialect: Dialect) -> str | None:
    """Of a tree that only leads elsewhere. Up to draft 07 a `$ref` hides whatever is beside it."""
    if not isinstance(tree, dict):
        return None
    references = [tree[keyword] for keyword in _REFERENCES[: 3 if dialect.is_modern else 1] if keyword in tree]
    if not all(isinstance(reference, str) for reference in references):
        raise InvalidSchemaError(f"Invalid JSON schema: the $ref {references} is no text")
    return references[0] if len(references) == 1 and not (dialect.is_modern and _asserts(tree, dialect)) else None


def _asserts(tree: dict[str, Any], dialect: Dialect) -> bool:
    own = ("type", *CRITERIA)
    return any(keyword in tree for keywords in (own, *dialect.keywords.values()) for keyword in keywords)
