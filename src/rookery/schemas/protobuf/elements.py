"""What a .proto file consists of, in the order in which the canonical text gives it.

Elements are immutable and know nothing of each other: `names` finds what a type's name means. `place` is the line and
the column; the members of a message are declared in the order of their places, whichever tuple they are in. Elements
that come from a descriptor have a running number there.
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


class Place(NamedTuple):
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


NOWHERE: Final = Place(0)


@dataclass(frozen=True, slots=True)
class Word:
    """A value without quotes: a number, a boolean or a name, as it was written."""

    text: str

    @property
    def is_number(self) -> bool:
        return self.text[0].isdigit() or self.text[0] in "-."


class Span(NamedTuple):
    """Numbers from the first to the last, both included. One number may be written as a span, too."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Option:
    """`(name).rest = value`. The rest, if there is one, is an option in the place of the value.

    Without parentheses the name has the dots of the whole path. Strings hold bytes that are not UTF-8 as surrogates.
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
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Reserved:
    values: tuple[ReservedValue, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Extensions:
    values: tuple[int | Span, ...]
    options: Options = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Field:
    """`key_type` is there for maps only; `type` is that of the values then."""

    name: str
    type: str
    number: int
    label: str | None = None
    key_type: str | None = None
    options: Options = ()
    default: "str | Word | None" = None
    json_name: str | None = None
    place: Place = field(default=NOWHERE, compare=False)

    @property
    def type_text(self) -> str:
        return self.type if self.key_type is None else f"map<{self.key_type}, {self.type}>"


@dataclass(frozen=True, slots=True)
class Group:
    """A field and the message of its type in one; `body.name` names both."""

    number: int
    body: "Message"
    label: str | None = None
    options: Options = ()
    place: Place = field(default=NOWHERE, compare=False)

    @property
    def name(self) -> str:
        return self.body.name


@dataclass(frozen=True, slots=True)
class OneOf:
    name: str
    options: Options = ()
    fields: tuple[Field, ...] = ()
    groups: tuple[Group, ...] = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class EnumValue:
    name: str
    number: int
    options: Options = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    reserved: tuple[Reserved, ...] = ()
    options: Options = ()
    values: tuple[EnumValue, ...] = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Extend:
    name: str
    fields: tuple[Field, ...] = ()
    groups: tuple[Group, ...] = ()
    place: Place = field(default=NOWHERE, compare=False)


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
    place: Place = field(default=NOWHERE, compare=False)

    @property
    def is_map_entry(self) -> bool:
        return any(option.name == "map_entry" and option.value == Word("true") for option in self.options)

    def find_field(self, name: str) -> Field | None:
        return next((each for each in self.all_fields() if each.name == name), None)

    def all_fields(self) -> Iterator[Field]:
        """Those of the oneofs, too."""
        yield from self.fields
        for oneof in self.oneofs:
            yield from oneof.fields

    def all_groups(self) -> Iterator[Group]:
        """Those of the oneofs and of extensions, too."""
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
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    options: Options = ()
    rpcs: tuple[Rpc, ...] = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class File:
    """`syntax` is None for a file that says nothing, which is proto2, and for one of an edition."""

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
