"""Converts a FileDescriptorProto, as protoc generates it and Python clients register it, to elements.

Map entries stay messages, as in the descriptor: they count in message indexes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as AnyMessage

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import (
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    File,
    Group,
    Import,
    Message,
    OneOf,
    Option,
    Options,
    Position,
    Reserved,
    Rpc,
    Service,
    Span,
    Value,
    Word,
)
from rookery.schemas.protobuf.tokens import decode_escapes

_F = pb.FieldDescriptorProto
_TYPES: Final = {
    value.number: value.name.removeprefix("TYPE_").lower() for value in _F.DESCRIPTOR.enum_types_by_name["Type"].values
}
_FIRST_OPTIONS: Final = (
    *("java_package", "java_outer_classname", "java_multiple_files", "java_generate_equals_and_hash"),
    *("java_string_check_utf8", "optimize_for", "ctype", "packed", "jstype"),
)
"""The options that Confluent's registry writes first, in its order; the others follow by number."""
_LABELS: Final = {_F.LABEL_OPTIONAL: "optional", _F.LABEL_REQUIRED: "required", _F.LABEL_REPEATED: "repeated"}


def read_descriptor(file: pb.FileDescriptorProto) -> File:
    return _Converter(file).file()


class _Converter:
    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._file = file
        self._numbers = count(1)

    def file(self) -> File:
        file = self._file
        grouped = _find_groups(file.extension, file.message_type)
        return File(
            syntax=file.syntax if file.syntax in {"proto2", "proto3"} else None,
            edition=pb.Edition.Name(file.edition).removeprefix("EDITION_") if file.syntax == "editions" else None,
            package=file.package,
            imports=tuple(self._import(index, name) for index, name in enumerate(file.dependency)),
            options=_options(file.options),
            messages=tuple(self._message(each) for each in file.message_type if each.name not in grouped),
            enums=tuple(self._enum(each) for each in file.enum_type),
            extends=self._extends(file.extension, grouped),
            services=tuple(self._service(each) for each in file.service),
        )

    def _position(self) -> Position:
        return Position(next(self._numbers))

    def _import(self, index: int, name: str) -> Import:
        is_public, is_weak = index in self._file.public_dependency, index in self._file.weak_dependency
        return Import(name, "public" if is_public else "weak" if is_weak else "", self._position())

    def _message(self, message: pb.DescriptorProto) -> Message:
        position = self._position()
        grouped = _find_groups([*message.field, *message.extension], message.nested_type)
        members = [(each, self._member(each, grouped)) for each in message.field]
        top = [member for each, member in members if not _is_in_oneof(each)]
        return Message(
            name=message.name,
            reserved=_reserved(message.reserved_range, message.reserved_name, last_is_excluded=True),
            options=_options(message.options),
            fields=_only_fields(top),
            oneofs=tuple(self._oneofs(message, members)),
            groups=_only_groups(top),
            extensions=tuple(
                Extensions((_span(each.start, each.end - 1),), _options(each.options))
                for each in message.extension_range
            ),
            extends=self._extends(message.extension, grouped),
            messages=tuple(self._message(each) for each in message.nested_type if each.name not in grouped),
            enums=tuple(self._enum(each) for each in message.enum_type),
            position=position,
        )

    @staticmethod
    def _oneofs(
        message: pb.DescriptorProto, members: Sequence[tuple[pb.FieldDescriptorProto, Field | Group]]
    ) -> Iterable[OneOf]:
        by_oneof = defaultdict(list)
        for each, member in members:
            if _is_in_oneof(each):
                by_oneof[each.oneof_index].append(member)
        for index, oneof in enumerate(message.oneof_decl):
            if own := by_oneof.get(index):
                yield OneOf(oneof.name, _options(oneof.options), _only_fields(own), _only_groups(own), own[0].position)

    def _member(self, field: pb.FieldDescriptorProto, grouped: Mapping[str, pb.DescriptorProto]) -> Field | Group:
        if field.type != _F.TYPE_GROUP:
            return self._field(field)
        position = self._position()
        body = grouped.get(_last_part(field.type_name))
        if body is None:
            raise InvalidSchemaError(f'"{field.name}": the message of the group is missing')
        return Group(field.number, self._message(body), self._label(field), _options(field.options), position)

    def _extends(
        self, fields: Iterable[pb.FieldDescriptorProto], grouped: Mapping[str, pb.DescriptorProto]
    ) -> tuple[Extend, ...]:
        by_name: dict[str, list[Field | Group]] = {}
        for each in fields:
            by_name.setdefault(each.extendee, []).append(self._member(each, grouped))
        return tuple(
            Extend(name, _only_fields(members), _only_groups(members), members[0].position)
            for name, members in by_name.items()
        )

    def _field(self, field: pb.FieldDescriptorProto) -> Field:
        return Field(
            name=field.name,
            type=field.type_name or _TYPES.get(field.type, ""),
            number=field.number,
            label=self._label(field),
            options=_options(field.options),
            default=_default(field) if field.HasField("default_value") else None,
            json_name=field.json_name if field.HasField("json_name") else None,
            position=self._position(),
        )

    def _label(self, field: pb.FieldDescriptorProto) -> str | None:
        if _is_in_oneof(field):
            return None
        if field.proto3_optional:
            return "optional"
        is_implied = field.label != _F.LABEL_REPEATED and self._file.syntax in {"proto3", "editions"}
        return None if is_implied else _LABELS[field.label]

    def _enum(self, enum: pb.EnumDescriptorProto) -> Enum:
        return Enum(
            name=enum.name,
            reserved=_reserved(enum.reserved_range, enum.reserved_name, last_is_excluded=False),
            options=_options(enum.options),
            values=tuple(EnumValue(each.name, each.number, _options(each.options)) for each in enum.value),
            position=self._position(),
        )

    def _service(self, service: pb.ServiceDescriptorProto) -> Service:
        rpcs = tuple(
            Rpc(
                each.name,
                each.input_type,
                each.output_type,
                each.client_streaming,
                each.server_streaming,
                _options(each.options),
            )
            for each in service.method
        )
        return Service(service.name, _options(service.options), rpcs, self._position())


def _find_groups(
    fields: Iterable[pb.FieldDescriptorProto], messages: Iterable[pb.DescriptorProto]
) -> dict[str, pb.DescriptorProto]:
    """Return the messages that are groups, by the types of the fields."""
    names = {_last_part(each.type_name) for each in fields if each.type == _F.TYPE_GROUP}
    return {each.name: each for each in messages if each.name in names}


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _only_fields(members: Iterable[Field | Group]) -> tuple[Field, ...]:
    return tuple(each for each in members if isinstance(each, Field))


def _only_groups(members: Iterable[Field | Group]) -> tuple[Group, ...]:
    return tuple(each for each in members if isinstance(each, Group))


def _is_in_oneof(field: pb.FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _default(field: pb.FieldDescriptorProto) -> str | Word:
    if field.type == _F.TYPE_STRING:
        return str(field.default_value)
    if field.type != _F.TYPE_BYTES:
        return Word(field.default_value)
    try:
        return decode_escapes(field.default_value)
    except ValueError as error:
        raise InvalidSchemaError(f'"{field.name}": the default value cannot be read: {error}') from None


def _reserved(
    ranges: Iterable[pb.DescriptorProto.ReservedRange | pb.EnumDescriptorProto.EnumReservedRange],
    names: Iterable[str],
    last_is_excluded: bool,
) -> tuple[Reserved, ...]:
    spans = [_span(each.start, each.end - last_is_excluded) for each in ranges]
    return tuple(Reserved((value,)) for value in (*spans, *names))


def _span(start: int, end: int) -> int | Span:
    return start if start == end else Span(start, end)


def _options(options: AnyMessage) -> Options:
    """Return the options that are set.

    Extensions that the descriptor pool does not know are unknown fields, and missing here. The schema reads the
    descriptor again with a pool that has their files (`schema._recognize_options`).
    """
    found = []
    for field, value in sorted(options.ListFields(), key=_option_rank):
        name = field.full_name if field.is_extension else field.name
        values = value if field.is_repeated else [value]
        found += [Option(name, _value(field, each), field.is_extension) for each in values]
    return tuple(found)


def _option_rank(item: tuple[FieldDescriptor, object]) -> int:
    name = item[0].name
    return _FIRST_OPTIONS.index(name) if name in _FIRST_OPTIONS else len(_FIRST_OPTIONS)


def _value(field: FieldDescriptor, value: object) -> Value:
    if isinstance(value, AnyMessage):
        return _map(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return Word("true" if value else "false")
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return Word(known.name if known is not None else str(value))
    return Word(str(value) if isinstance(value, int) else repr(value))


def _map(message: AnyMessage) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for field, value in message.ListFields():
        key = f"[{field.full_name}]" if field.is_extension else field.name
        if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[key] = tuple(_map_entry(field, each, value[each]) for each in sorted(value))
        elif field.is_repeated:
            found[key] = tuple(_value(field, each) for each in value)
        else:
            found[key] = _value(field, value)
    return found


def _map_entry(field: FieldDescriptor, key: object, value: object) -> dict[str, Value]:
    key_field, value_field = field.message_type.fields
    entry = {"key": _value(key_field, key), "value": _value(value_field, value)}
    # For these two keys Confluent's registry writes the value before the key.
    return dict(reversed(entry.items())) if key in {"precision", "scale"} else entry
