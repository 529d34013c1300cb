"""The elements of a .proto file, in the order of the canonical text.

Elements are immutable and do not refer to each other: `names` resolves the names of types. `position` is the line and
the column in the text. The declaration order of a message's members is the order of their positions, whichever tuple
they are in. Elements from a descriptor have a running number as their line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

TAG_MAX: Final = 536_870_911
ENUM_NUMBER_MAX: Final = 2_147_483_647
ENUM_NUMBER_MIN: Final = -2_147_483_648

SCALAR_TYPES: Final = frozenset(
    (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
)


class Position(NamedTuple):
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


NO_POSITION: Final = Position(0)


@dataclass(frozen=True, slots=True)
class Word:
    """A value without quotes: a number, a boolean or a name, as in the text."""

    text: str

    @property
    def is_number(self) -> bool:
        return self.text[0].isdigit() or self.text[0] in "-."


class Span(NamedTuple):
    """The numbers from `start` to `end`, both inclusive. A single number may also be written as a span."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Option:
    """`(name).rest = value`. The rest, if there is one, is stored as an option in `value`.

    Without parentheses, `name` is the whole dotted path. In strings, bytes that are not UTF-8 are surrogates.
    """

    name: str
    value: "Value"
    is_extension: bool = False


Value: TypeAlias = str | Word | tuple["Value", ...] | Mapping[str, "Value"] | Option
Options: TypeAlias = tuple[Option, ...]
ReservedValue: TypeAlias = int | Span | str


@dataclass(frozen=True, slots=True)
class Import:
    name: str
    modifier: str = ""
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Reserved:
    values: tuple[ReservedValue, ...]
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Extensions:
    values: tuple[int | Span, ...]
    options: Options = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Field:
    """`key_type` is set for maps only; `type` is then the type of the values."""

    name: str
    type: str
    number: int
    label: str | None = None
    key_type: str | None = None
    options: Options = ()
    default: "str | Word | None" = None
    json_name: str | None = None
    position: Position = field(default=NO_POSITION, compare=False)

    @property
    def type_text(self) -> str:
        return self.type if self.key_type is None else f"map<{self.key_type}, {self.type}>"


@dataclass(frozen=True, slots=True)
class Group:
    """A group declares a field and the message of its type together; `body.name` is the name of both."""

    number: int
    body: "Message"
    label: str | None = None
    options: Options = ()
    position: Position = field(default=NO_POSITION, compare=False)

    @property
    def name(self) -> str:
        return self.body.name


@dataclass(frozen=True, slots=True)
class OneOf:
    name: str
    options: Options = ()
    fields: tuple[Field, ...] = ()
    groups: tuple[Group, ...] = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class EnumValue:
    name: str
    number: int
    options: Options = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    reserved: tuple[Reserved, ...] = ()
    options: Options = ()
    values: tuple[EnumValue, ...] = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Extend:
    name: str
    fields: tuple[Field, ...] = ()
    groups: tuple[Group, ...] = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Message:
    name: str
    reserved: tuple[Reserved, ...] = ()
    options: Options = ()
    fields: tuple[Field, ...] = ()
    oneofs: tuple[OneOf, ...] = ()
    groups: tuple[Group, ...] = ()
    extensions: tuple[Extensions, ...] = ()
    extends: tuple[Extend, ...] = ()
    messages: tuple["Message", ...] = ()
    enums: tuple[Enum, ...] = ()
    position: Position = field(default=NO_POSITION, compare=False)

    @property
    def is_map_entry(self) -> bool:
        return any(option.name == "map_entry" and option.value == Word("true") for option in self.options)

    def find_field(self, name: str) -> Field | None:
        return next((each for each in self.all_fields() if each.name == name), None)

    def all_fields(self) -> Iterator[Field]:
        """Yield all fields, including those in oneofs."""
        yield from self.fields
        for oneof in self.oneofs:
            yield from oneof.fields

    def all_groups(self) -> Iterator[Group]:
        """Yield all groups, including those in oneofs and in extensions."""
        yield from self.groups
        for oneof in self.oneofs:
            yield from oneof.groups
        for extend in self.extends:
            yield from extend.groups


@dataclass(frozen=True, slots=True)
class Rpc:
    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: Options = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    options: Options = ()
    rpcs: tuple[Rpc, ...] = ()
    position: Position = field(default=NO_POSITION, compare=False)


@dataclass(frozen=True, slots=True)
class File:
    """`syntax` is None for a file without a syntax statement, which is proto2, and for a file with an edition."""

    syntax: str | None = None
    edition: str | None = None
    package: str = ""
    imports: tuple[Import, ...] = ()
    options: Options = ()
    messages: tuple[Message, ...] = ()
    enums: tuple[Enum, ...] = ()
    extends: tuple[Extend, ...] = ()
    services: tuple[Service, ...] = ()

    @property
    def is_proto2(self) -> bool:
        return self.edition is None and self.syntax != "proto3"
