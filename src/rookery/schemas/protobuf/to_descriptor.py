"""Converts elements to a FileDescriptorProto, equal to what protoc generates from the same text (without source
positions, and with JSON names only where the text has one)."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message as AnyMessage

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf.elements import (
    SCALAR_TYPES,
    Enum,
    Extend,
    Field,
    File,
    Group,
    Message,
    OneOf,
    Option,
    Options,
    Reserved,
    Service,
    Span,
    Word,
)
from rookery.schemas.protobuf.names import Names, join
from rookery.schemas.protobuf.options import (
    InvalidOptionError,
    parse_integer,
    set_extension_options,
    set_plain_options,
    to_float,
)
from rookery.schemas.protobuf.parser import is_utf8

_F = pb.FieldDescriptorProto
_UNSIGNED_TYPES: Final = frozenset({_F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_FIXED32, _F.TYPE_FIXED64})
_LABELS: Final = {"optional": _F.LABEL_OPTIONAL, "required": _F.LABEL_REQUIRED, "repeated": _F.LABEL_REPEATED}


@dataclass(frozen=True, slots=True)
class PendingOptions:
    """Extension options that can be set only with a pool that knows them."""

    target: AnyMessage
    options: Options
    scope: str


@dataclass(slots=True)
class Built:
    file: pb.FileDescriptorProto
    pending: list[PendingOptions] = field(default_factory=list)

    def set_extensions(self, pool: DescriptorPool) -> None:
        """Set the pending options. `pool` has the files that define the extensions, which may include this file."""
        for each in self.pending:
            set_extension_options(each.target, each.options, each.scope, pool)
        self.pending.clear()


def build_file(file: File, *, name: str, names: Names, imports: Iterable[str]) -> Built:
    """Build the descriptor of a file. Imports that are not in `imports` are omitted. Raises InvalidSchemaError."""
    return _Builder(file, names).build(name, set(imports))


class _Builder:
    def __init__(self, file: File, names: Names) -> None:
        self._file = file
        self._names = names
        self._built = Built(pb.FileDescriptorProto())

    def build(self, name: str, imports: set[str]) -> Built:
        file, proto = self._file, self._built.file
        proto.name = name
        if file.package:
            proto.package = file.package
        self._syntax(proto)
        for each in file.imports:
            if each.name in imports and each.name not in proto.dependency:
                self._import(proto, each.name, each.modifier)
        messages = [*file.messages, *(group.body for extend in file.extends for group in extend.groups)]
        for message in sorted(messages, key=lambda each: each.position):
            self._message(proto.message_type.add(), message, file.package)
        for enum in file.enums:
            self._enum(proto.enum_type.add(), enum, file.package)
        for service in file.services:
            self._service(proto.service.add(), service)
        self._extends(proto.extension.add, file.extends, file.package)
        self._options(proto, file.options, file.package)
        return self._built

    def _syntax(self, proto: pb.FileDescriptorProto) -> None:
        if self._file.edition is not None:
            proto.syntax = "editions"
            proto.edition = pb.Edition.Value(f"EDITION_{self._file.edition}")
        elif not self._file.is_proto2:
            proto.syntax = "proto3"

    @staticmethod
    def _import(proto: pb.FileDescriptorProto, name: str, modifier: str) -> None:
        if modifier == "public":
            proto.public_dependency.append(len(proto.dependency))
        elif modifier == "weak":
            proto.weak_dependency.append(len(proto.dependency))
        proto.dependency.append(name)

    def _message(self, proto: pb.DescriptorProto, message: Message, scope: str) -> None:
        proto.name = message.name
        scope = join(scope, message.name)
        for member in _members(message):
            if isinstance(member, Message):
                self._message(proto.nested_type.add(), member, scope)
            else:
                self._member(proto, member, scope)
        self._synthetic_oneofs(proto)
        for enum in message.enums:
            self._enum(proto.enum_type.add(), enum, scope)
        self._extends(proto.extension.add, message.extends, scope)
        for extensions in message.extensions:
            for start, end in _spans(extensions.values):
                extension_range = proto.extension_range.add(start=start, end=end + 1)
                self._options(extension_range, extensions.options, scope)
        for start, end in _spans(_reserved_values(message.reserved)):
            proto.reserved_range.add(start=start, end=end + 1)
        proto.reserved_name.extend(each for each in _reserved_values(message.reserved) if isinstance(each, str))
        self._options(proto, message.options, scope)

    def _member(self, proto: pb.DescriptorProto, member: Field | OneOf | Group, scope: str) -> None:
        if isinstance(member, OneOf):
            oneof = proto.oneof_decl.add(name=member.name)
            self._options(oneof, member.options, scope)
            index = len(proto.oneof_decl) - 1
            for each in _in_order(member):
                self._member(proto, each, scope)
                proto.field[-1].oneof_index = index
        elif isinstance(member, Group):
            self._message(proto.nested_type.add(), member.body, scope)
            self._group(proto.field.add(), member, scope)
        else:
            if member.key_type is not None:
                self._map_entry(proto.nested_type.add(), member, scope)
            self._field(proto.field.add(), member, scope)

    def _group(self, proto: pb.FieldDescriptorProto, group: Group, scope: str) -> None:
        proto.name = group.name.lower()
        proto.number = group.number
        proto.label = _LABELS[group.label or "optional"]
        proto.type = _F.TYPE_GROUP
        proto.type_name = f".{join(scope, group.name)}"
        self._options(proto, group.options, scope)

    def _field(self, proto: pb.FieldDescriptorProto, element: Field, scope: str) -> None:
        proto.name = element.name
        proto.number = element.number
        proto.label = _LABELS["repeated" if element.key_type else element.label or "optional"]
        if element.key_type is not None:
            proto.type = _F.TYPE_MESSAGE
            proto.type_name = f".{join(scope, map_entry_name(element.name))}"
        else:
            self._type(proto, element.type, scope)
        if element.label == "optional" and self._file.syntax == "proto3":
            proto.proto3_optional = True
        if element.default is not None:
            proto.default_value = _default_text(proto, element)
        if element.json_name is not None:
            proto.json_name = element.json_name
        self._options(proto, element.options, scope)

    def _type(self, proto: pb.FieldDescriptorProto, type_name: str, scope: str) -> None:
        if type_name in SCALAR_TYPES:
            proto.type = _F.Type.Value(f"TYPE_{type_name.upper()}")
            return
        found = self._names.find(type_name, scope)
        if found is None:
            raise InvalidSchemaError(f'"{type_name}" is not defined in "{scope}"')
        proto.type = _F.TYPE_ENUM if isinstance(found.element, Enum) else _F.TYPE_MESSAGE
        proto.type_name = f".{found.full_name}"

    def _map_entry(self, proto: pb.DescriptorProto, element: Field, scope: str) -> None:
        proto.name = map_entry_name(element.name)
        proto.options.map_entry = True
        assert element.key_type is not None
        for number, (name, type_name) in enumerate((("key", element.key_type), ("value", element.type)), start=1):
            self._type(proto.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL), type_name, scope)

    @staticmethod
    def _synthetic_oneofs(proto: pb.DescriptorProto) -> None:
        """Add a oneof for each `optional` field of proto3, which is its only field, after the other oneofs."""
        taken = {each.name for each in (*proto.field, *proto.oneof_decl)}
        for each in proto.field:
            if each.proto3_optional:
                name = each.name if each.name.startswith("_") else f"_{each.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                each.oneof_index = len(proto.oneof_decl)
                proto.oneof_decl.add(name=name)

    def _extends(self, add: Callable[[], pb.FieldDescriptorProto], extends: Sequence[Extend], scope: str) -> None:
        for extend in extends:
            found = self._names.find(extend.name, scope)
            if found is None:
                raise InvalidSchemaError(f'"{extend.name}" is not defined in "{scope}"')
            for member in _in_order(extend):
                proto = add()
                if isinstance(member, Group):
                    self._group(proto, member, scope)
                else:
                    self._field(proto, member, scope)
                proto.extendee = f".{found.full_name}"

    def _enum(self, proto: pb.EnumDescriptorProto, enum: Enum, scope: str) -> None:
        proto.name = enum.name
        scope = join(scope, enum.name)
        for each in enum.values:
            value = proto.value.add(name=each.name, number=each.number)
            self._options(value, each.options, scope)
        for start, end in _spans(_reserved_values(enum.reserved)):
            proto.reserved_range.add(start=start, end=end)
        proto.reserved_name.extend(each for each in _reserved_values(enum.reserved) if isinstance(each, str))
        self._options(proto, enum.options, scope)

    def _service(self, proto: pb.ServiceDescriptorProto, service: Service) -> None:
        proto.name = service.name
        scope = join(self._file.package, service.name)
        for rpc in service.rpcs:
            method = proto.method.add(name=rpc.name)
            method.input_type = self._message_name(rpc.request, scope)
            method.output_type = self._message_name(rpc.response, scope)
            if rpc.request_streams:
                method.client_streaming = True
            if rpc.response_streams:
                method.server_streaming = True
            self._options(method, rpc.options, scope)
        self._options(proto, service.options, scope)

    def _message_name(self, name: str, scope: str) -> str:
        found = self._names.find(name, scope)
        if found is None:
            raise InvalidSchemaError(f'"{name}" is not defined in "{scope}"')
        return f".{found.full_name}"

    def _options(self, owner: Any, options: Options, scope: str) -> None:
        """Set the options of `owner`, which is a message of the descriptor that has the field `options`."""
        if not options:
            return
        target = owner.options
        extensions = tuple(each for each in options if _has_extension(each))
        try:
            set_plain_options(target, [each for each in options if not _has_extension(each)])
        except InvalidOptionError as error:
            raise InvalidSchemaError(f'"{scope}": {error}') from None
        if extensions:
            self._built.pending.append(PendingOptions(target, extensions, scope))


def map_entry_name(field_name: str) -> str:
    return re.sub(r"(?:^|_)([a-z]?)", lambda match: match[1].upper(), field_name) + "Entry"


def _has_extension(option: Option) -> bool:
    return option.is_extension or (isinstance(option.value, Option) and _has_extension(option.value))


def _members(message: Message) -> list[Field | OneOf | Group | Message]:
    """Return the members that become fields and nested messages, in declaration order.

    A group in an extension becomes a message only.
    """
    bodies = [group.body for extend in message.extends for group in extend.groups]
    members: list[Field | OneOf | Group | Message] = [*message.fields, *message.oneofs, *message.groups]
    return sorted([*members, *message.messages, *bodies], key=lambda each: each.position)


def _in_order(holder: OneOf | Extend) -> list[Field | Group]:
    members: list[Field | Group] = [*holder.fields, *holder.groups]
    return sorted(members, key=lambda each: each.position)


def _reserved_values(reserved: Iterable[Reserved]) -> list[int | Span | str]:
    return [value for each in reserved for value in each.values]


def _spans(values: Iterable[int | Span | str]) -> list[Span]:
    return [each if isinstance(each, Span) else Span(each, each) for each in values if not isinstance(each, str)]


def _default_text(proto: pb.FieldDescriptorProto, element: Field) -> str:
    """Return the default value in the form of descriptors: numbers in decimal, bytes escaped."""
    value = element.default
    if isinstance(value, str):
        if proto.type == _F.TYPE_STRING:
            if not is_utf8(value):
                raise InvalidSchemaError(f'{element.position}: "{element.name}": the default value is not UTF-8')
            return value
        if proto.type == _F.TYPE_BYTES:
            return _escape_bytes(value.encode("utf-8", "surrogateescape"))
    elif isinstance(value, Word) and proto.type not in {_F.TYPE_STRING, _F.TYPE_BYTES}:
        return _default_word(proto, value.text)
    raise InvalidSchemaError(
        f'{element.position}: "{element.name}": the default value is not of the type {element.type}'
    )


def _default_word(proto: pb.FieldDescriptorProto, text: str) -> str:
    if proto.type in {_F.TYPE_ENUM, _F.TYPE_BOOL}:
        return text
    try:
        if proto.type in {_F.TYPE_DOUBLE, _F.TYPE_FLOAT}:
            return float_text(to_float(text))
        number = parse_integer(text)
    except (ValueError, OverflowError) as error:
        raise InvalidSchemaError(f'"{proto.name}": the default value does not match its type: {error}') from None
    bits = 32 if "32" in _F.Type.Name(proto.type) else 64
    smallest = 0 if proto.type in _UNSIGNED_TYPES else -(2 ** (bits - 1))
    if not smallest <= number < smallest + 2**bits:
        raise InvalidSchemaError(f'"{proto.name}": the default value {text} does not fit into {bits} bits')
    return str(number)


def float_text(value: float) -> str:
    """Return the number as C's printf writes it, with 15 digits if they suffice to restore the value, else with 17."""
    short = f"{value:.15g}"
    return short if float(short) == value or value != value else f"{value:.17g}"


def _escape_bytes(data: bytes) -> str:
    signs = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return "".join(signs.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data)
