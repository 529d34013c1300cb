"""Rejects what protoc rejects: conflicting tags, names and ranges, undefined types, what a syntax does not allow.

Two things that protoc rejects are accepted, as in Confluent's registry: imports of unknown files, as long as none of
their types is used, and proto2 fields without a label.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import (
    SCALAR_TYPES,
    TAG_MAX,
    Enum,
    Extend,
    Extensions,
    Field,
    File,
    Group,
    Message,
    Position,
    Reserved,
    Span,
    Word,
)
from rookery.schemas.protobuf.names import Names, TypeInfo, join
from rookery.schemas.protobuf.printer import span_text
from rookery.schemas.protobuf.to_descriptor import map_entry_name
from rookery.schemas.protobuf.well_known import WELL_KNOWN_FILES

EDITIONS: Final = frozenset({"2023", "2024"})
_KEY_TYPES: Final = SCALAR_TYPES - {"double", "float", "bytes"}
_BOOLEANS: Final = frozenset({Word("true"), Word("false")})
_ENTRY_FIELDS: Final = [(1, "key"), (2, "value")]
_PROTOBUF_TAGS: Final = Span(19_000, 19_999)


def validate(file: File, names: Names) -> None:
    """Check a file. `names` are the names that it can use. Raises InvalidSchemaError for the first problem."""
    if file.edition is not None and file.edition not in EDITIONS:
        raise InvalidSchemaError(f'unknown edition "{file.edition}"')
    _Validator(file, names).validate()


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def position(self) -> Position: ...


class _Member(NamedTuple):
    """A field, or the field of a group, whose name differs from that of its message."""

    name: str
    number: int
    position: Position


class _Range(NamedTuple):
    span: Span
    holder: Reserved | Extensions


class _Ranges:
    """Reserved ranges, or ranges for extensions. `declared` is in the order of the text."""

    def __init__(self, holders: Iterable[Reserved | Extensions]) -> None:
        self.declared = [_Range(span, holder) for holder in holders for span in _spans(holder)]
        self._order = sorted(range(len(self.declared)), key=lambda index: self.declared[index].span)
        self._starts = [self.declared[index].span.start for index in self._order]

    def check_overlaps(self, where: str) -> None:
        for one, other in pairwise(self._order):
            if self.declared[one].span.end >= self.declared[other].span.start:
                later = self.declared[max(one, other)]
                raise _error(later.holder.position, f'"{where}": {span_text(later.span)} overlaps with another range')

    def find(self, number: int) -> Reserved | Extensions | None:
        index = bisect_right(self._starts, number) - 1
        found = self.declared[self._order[index]] if index >= 0 else None
        return found.holder if found is not None and number <= found.span.end else None


class _Validator:
    def __init__(self, file: File, names: Names) -> None:
        self._file = file
        self._names = names
        self._extension_ranges: dict[str, _Ranges] = {}
        self._enum_words: dict[str, frozenset[Word]] = {}

    def validate(self) -> None:
        file = self._file
        self._check_names_in(file.package, [*_named(file.messages, file.enums, file.extends), *file.services])
        for extend in file.extends:
            self._extend(extend, file.package)
        for message in file.messages:
            self._message(message, file.package)
        for enum in file.enums:
            self._enum(enum, file.package)
        for service in file.services:
            self._check_names_in(join(file.package, service.name), service.rpcs)
            for rpc in service.rpcs:
                for name in (rpc.request, rpc.response):
                    self._check_message_type(name, join(file.package, service.name), rpc.position)

    # Messages.

    def _message(self, message: Message, scope: str) -> None:
        scope = join(scope, message.name)
        groups = list(message.all_groups())
        types = [*_named(message.messages, message.enums, message.extends), *(group.body for group in groups)]
        self._check_names_in(scope, [*_members(message), *message.oneofs, *types, *_map_entries(message)])
        self._check_tags(message, self._ranges(message, scope), scope)
        if message.is_map_entry and sorted((each.number, each.name) for each in message.all_fields()) != _ENTRY_FIELDS:
            problem = 'the entry of a map has the fields "key" and "value" with the tags 1 and 2'
            raise _error(message.position, f'"{scope}": {problem}')
        for field in message.all_fields():
            self._field(field, scope)
        for oneof in message.oneofs:
            self._oneof_members(oneof.name, oneof.position, [*oneof.fields, *oneof.groups], scope)
        for group in groups:
            self._group(group, scope)
        for extend in message.extends:
            self._extend(extend, scope)
        for nested in message.messages:
            self._message(nested, scope)
        for enum in message.enums:
            self._enum(enum, scope)

    def _oneof_members(self, name: str, position: Position, members: list[Field | Group], scope: str) -> None:
        if not members:
            raise _error(position, f'the oneof "{join(scope, name)}" has no fields')
        for member in members:
            if isinstance(member, Field) and member.key_type is not None:
                raise _error(member.position, f'"{join(scope, member.name)}": a map cannot be in a oneof')

    def _ranges(self, message: Message, scope: str) -> _Ranges:
        if message.extensions and self._file.syntax == "proto3":
            raise _error(message.extensions[0].position, f'"{scope}": proto3 has no extension ranges')
        ranges = _Ranges([*message.reserved, *message.extensions])
        for span, holder in ranges.declared:
            if not 1 <= span.start <= span.end <= TAG_MAX:
                raise _error(holder.position, f'"{scope}": {span_text(span)} is not a range of tags')
        ranges.check_overlaps(scope)
        return ranges

    def _check_tags(self, message: Message, ranges: _Ranges, scope: str) -> None:
        taken: dict[int, str] = {}
        reserved_names = {value for each in message.reserved for value in each.values if isinstance(value, str)}
        for member in sorted(_members(message), key=lambda each: each.position):
            where = f'"{join(scope, member.name)}"'
            if member.number in taken:
                raise _error(
                    member.position, f'{where}: tag {member.number} belongs to "{taken[member.number]}" already'
                )
            taken[member.number] = member.name
            self._check_tag(member.number, member.position, where)
            holder = ranges.find(member.number)
            if holder is not None:
                kind = "reserved" if isinstance(holder, Reserved) else "for extensions"
                raise _error(member.position, f"{where}: tag {member.number} is {kind}")
            if member.name in reserved_names:
                raise _error(member.position, f"{where}: the name is reserved")

    @staticmethod
    def _check_tag(number: int, position: Position, where: str) -> None:
        if not 1 <= number <= TAG_MAX:
            raise _error(position, f"{where}: tag {number} is not between 1 and {TAG_MAX}")
        if _PROTOBUF_TAGS.start <= number <= _PROTOBUF_TAGS.end:
            raise _error(position, f"{where}: tags {span_text(_PROTOBUF_TAGS)} belong to protobuf itself")

    def _field(self, field: Field, scope: str) -> None:
        where = f'"{join(scope, field.name)}"'
        self._check_label(field, where)
        if field.key_type is not None and (field.key_type not in _KEY_TYPES or field.label is not None):
            raise _error(field.position, f"{where}: a map has no label, and integers, bool or string as keys")
        found = None if field.type in SCALAR_TYPES else self._find(field.type, scope, field.position)
        is_entry = found is not None and isinstance(found.element, Message) and found.element.is_map_entry
        if is_entry and field.label != "repeated":
            raise _error(field.position, f"{where}: the entry of a map can only be repeated")
        if field.default is not None:
            self._check_default(field, found, where)

    def _check_label(self, field: Field | Group, where: str) -> None:
        syntax = self._file.syntax or self._file.edition
        is_refused = field.label == "required" and not self._file.is_proto2
        if is_refused or (field.label == "optional" and self._file.edition is not None):
            raise _error(field.position, f'{where}: "{field.label}" is not allowed in {syntax}')

    def _check_default(self, field: Field, found: TypeInfo | None, where: str) -> None:
        is_plain = field.key_type is None and field.label != "repeated" and self._file.syntax != "proto3"
        if not is_plain or (found is not None and isinstance(found.element, Message)):
            raise _error(field.position, f"{where}: a default value is not allowed here")
        if found is not None and isinstance(found.element, Enum):
            known = self._words_of(found.full_name, found.element)
        elif field.type == "bool":
            known = _BOOLEANS
        else:
            return
        if field.default not in known:
            raise _error(field.position, f"{where}: the default value is not of the type {field.type}")

    def _words_of(self, full_name: str, enum: Enum) -> frozenset[Word]:
        if full_name not in self._enum_words:
            self._enum_words[full_name] = frozenset(Word(each.name) for each in enum.values)
        return self._enum_words[full_name]

    def _group(self, group: Group, scope: str) -> None:
        where = f'"{join(scope, group.name)}"'
        if not self._file.is_proto2:
            raise _error(group.position, f"{where}: groups are allowed in proto2 only")
        self._message(group.body, scope)

    def _extend(self, extend: Extend, scope: str) -> None:
        found = self._check_message_type(extend.name, scope, extend.position)
        is_of_options = found.full_name.startswith("google.protobuf.") and found.full_name.endswith("Options")
        if self._file.syntax == "proto3" and not is_of_options:
            raise _error(extend.position, f'"{extend.name}": proto3 can extend options only')
        assert isinstance(found.element, Message)
        allowed = self._extension_ranges_of(found.full_name, found.element)
        members: list[Field | Group] = [*extend.fields, *extend.groups]
        for each in members:
            where = f'"{join(scope, each.name)}"'
            self._check_tag(each.number, each.position, where)
            if allowed.find(each.number) is None:
                raise _error(each.position, f"{where}: {found.full_name} has no extension range with tag {each.number}")
        for field in extend.fields:
            self._field(field, scope)
        if not scope or scope == self._file.package:
            for group in extend.groups:
                self._group(group, scope)

    def _extension_ranges_of(self, full_name: str, message: Message) -> _Ranges:
        if full_name not in self._extension_ranges:
            self._extension_ranges[full_name] = _Ranges(message.extensions)
        return self._extension_ranges[full_name]

    # Enums.

    def _enum(self, enum: Enum, scope: str) -> None:
        full_name = join(scope, enum.name)
        if not enum.values:
            raise _error(enum.position, f'the enum "{full_name}" has no values')
        if self._file.syntax == "proto3" and enum.values[0].number != 0:
            raise _error(enum.values[0].position, f'"{full_name}": the first value has to be 0 in proto3')
        ranges = _Ranges(enum.reserved)
        for span, holder in ranges.declared:
            if span.start > span.end:
                raise _error(holder.position, f'"{full_name}": {span_text(span)} is not a range')
        ranges.check_overlaps(full_name)
        self._check_values(enum, ranges, full_name)

    @staticmethod
    def _check_values(enum: Enum, reserved: _Ranges, full_name: str) -> None:
        may_repeat = any(each.name == "allow_alias" and each.value == Word("true") for each in enum.options)
        names = {value for each in enum.reserved for value in each.values if isinstance(value, str)}
        taken: set[int] = set()
        for value in enum.values:
            where = f'"{full_name}.{value.name}"'
            if value.number in taken and not may_repeat:
                raise _error(value.position, f"{where}: {value.number} is used already; set allow_alias to allow it")
            taken.add(value.number)
            if value.name in names or reserved.find(value.number) is not None:
                raise _error(value.position, f"{where}: the name or the number is reserved")

    # Names.

    def _find(self, name: str, scope: str, position: Position) -> TypeInfo:
        found = self._names.find(name, scope)
        if found is None:
            raise _error(position, f'"{name}" is not defined in "{scope}"{_import_hint(name)}')
        return found

    def _check_message_type(self, name: str, scope: str, position: Position) -> TypeInfo:
        found = self._find(name, scope, position)
        if not isinstance(found.element, Message):
            raise _error(position, f'"{name}" is not a message')
        return found

    @staticmethod
    def _check_names_in(scope: str, elements: Iterable[_Named]) -> None:
        taken: set[str] = set()
        for element in elements:
            if element.name in taken:
                raise _error(element.position, f'"{join(scope, element.name)}" is defined already')
            taken.add(element.name)


def _error(position: Position, problem: str) -> InvalidSchemaError:
    """Return an error, with the position if there is one. Elements of a descriptor have none."""
    return InvalidSchemaError(f"{position}: {problem}" if position.column else problem)


def _import_hint(name: str) -> str:
    wanted = name.removeprefix(".")
    for file_name, file in WELL_KNOWN_FILES.items():
        if wanted in Names([(file_name, file)]).types:
            return f'; import "{file_name}"'
    return ""


def _members(message: Message) -> list[_Member]:
    groups = [*message.groups, *(group for oneof in message.oneofs for group in oneof.groups)]
    fields = [_Member(each.name, each.number, each.position) for each in message.all_fields()]
    return [*fields, *(_Member(each.name.lower(), each.number, each.position) for each in groups)]


def _map_entries(message: Message) -> list[_Member]:
    """Return the messages that maps declare implicitly."""
    maps = [each for each in message.fields if each.key_type is not None]
    return [_Member(map_entry_name(each.name), each.number, each.position) for each in maps]


def _named(messages: Iterable[Message], enums: Iterable[Enum], extends: Iterable[Extend]) -> list[_Named]:
    """Return the elements that share a scope. The values of an enum are in the scope that contains the enum."""
    found: list[_Named] = [*messages]
    for enum in enums:
        found += [enum, *enum.values]
    for extend in extends:
        found += [*extend.fields, *(_Member(each.name.lower(), each.number, each.position) for each in extend.groups)]
    return found


def _spans(ranges: Reserved | Extensions) -> list[Span]:
    values = [value for value in ranges.values if not isinstance(value, str)]
    return [value if isinstance(value, Span) else Span(value, value) for value in values]
