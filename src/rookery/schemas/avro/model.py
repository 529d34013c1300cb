"""The tree of an Avro schema: what the parser builds and everything else walks.

Each type that a text spells out is a node of its own; a name is the node that it names, so recursive types are cycles.
Nodes are compared by identity and do not change once their record is complete. `properties` are the attributes that
Avro gives no meaning to, logical types among them, in the order of the text.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
TYPES: Final = PRIMITIVES | {"record", "enum", "array", "map", "union", "fixed"}


class Name(NamedTuple):
    """The namespace is empty where there is none."""

    simple: str
    namespace: str

    @classmethod
    def of(cls, text: str, namespace: str) -> "Name":
        """A text with dots says its namespace itself."""
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
        """What makes it differ from the other branches of a union."""
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
    """The default of a field that has none; null is a default."""


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
    """`required` has the names of the fields without default; None while the fields are read, which may name the record
    already."""

    is_error: bool = False
    fields: dict[str, Field] = field(default_factory=dict)
    required: frozenset[str] | None = None
