"""The tree of an Avro schema. The parser builds it, and all other modules walk it.

Each type that the text defines is a separate node. A name is represented by the node that it refers to, so recursive
types are cycles. Nodes are compared by identity and do not change after their record is complete. `properties` are the
attributes that are not part of Avro's type definitions, logical types among them, in the order of the text.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
TYPES: Final = PRIMITIVES | {"record", "enum", "array", "map", "union", "fixed"}


class Name(NamedTuple):
    """The name of a type. `namespace` is empty if there is none."""

    simple: str
    namespace: str

    @classmethod
    def of(cls, text: str, namespace: str) -> "Name":
        """Parse a name. The namespace in `text`, if any, replaces `namespace`."""
        space, dot, simple = text.rpartition(".")
        return cls(simple, space if dot else namespace)

    @property
    def full(self) -> str:
        return f"{self.namespace}.{self.simple}" if self.namespace else self.simple


@dataclass(eq=False, slots=True)
class Node:
    type: str
    properties: dict[str, Any]

    @property
    def full_name(self) -> str:
        """The name that distinguishes the type from the other branches of a union."""
        return self.type


@dataclass(eq=False, slots=True)
class Array(Node):
    items: Node


@dataclass(eq=False, slots=True)
class Map(Node):
    values: Node


@dataclass(eq=False, slots=True)
class Union(Node):
    branches: tuple[Node, ...]


@dataclass(eq=False, slots=True)
class Named(Node):
    name: Name
    doc: str | None
    aliases: tuple[Name, ...]

    @property
    def full_name(self) -> str:
        return self.name.full


@dataclass(eq=False, slots=True)
class Enum(Named):
    symbols: tuple[str, ...]
    default: str | None


@dataclass(eq=False, slots=True)
class Fixed(Named):
    size: int


class _Missing:
    """The type of `MISSING`, the default of a field that has none. None is the default null."""


MISSING: Final = _Missing()


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: Node
    doc: str | None = None
    default: Any = MISSING
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Record(Named):
    """`required` holds the names of the fields without default. It is None while the fields are being parsed: they may
    refer to the record already."""

    is_error: bool = False
    fields: dict[str, Field] = field(default_factory=dict)
    required: frozenset[str] | None = None
