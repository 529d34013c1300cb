"""A Protobuf schema: parsed, checked, and in all the forms in which it is asked for."""

import base64
import binascii
from collections import ChainMap
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as AnyMessage

from rookery.schemas.interface import Incompatibility, InvalidSchemaError, Policy, Reference, SchemaType
from rookery.schemas.protobuf.differences import Side, compare, to_incompatibilities
from rookery.schemas.protobuf.elements import File, Message
from rookery.schemas.protobuf.from_descriptor import read_descriptor
from rookery.schemas.protobuf.names import Names, join, visible_files
from rookery.schemas.protobuf.normal_form import normalize
from rookery.schemas.protobuf.parser import read_file
from rookery.schemas.protobuf.pools import build_pool
from rookery.schemas.protobuf.printer import print_file
from rookery.schemas.protobuf.to_descriptor import Built, build_file
from rookery.schemas.protobuf.validator import validate
from rookery.schemas.protobuf.well_known import WELL_KNOWN_FILES, google_descriptor

DESCRIPTOR_NAME: Final = "default"
"""What Confluent's registry calls the file of a schema, which has no name of its own."""
_DESCRIPTOR_PROTO: Final = "google/protobuf/descriptor.proto"


class ProtobufSchema:
    """`raw` is the file's elements; `descriptor` is what protobuf's own library works with."""

    schema_type: Final[SchemaType] = "PROTOBUF"

    def __init__(
        self, file: File, imported: Mapping[str, File], references: tuple[Reference, ...], canonical: str
    ) -> None:
        self.raw = file
        self.references = references
        self.canonical = canonical
        self._imported = imported
        self._known = ChainMap(dict(imported), WELL_KNOWN_FILES)  # type: ignore[arg-type]  # it is only read

    @property
    def name(self) -> str | None:
        """The first message; the first enum if there is none."""
        file = self._effective
        names = [*(each.name for each in file.messages), *(each.name for each in file.enums)]
        return join(file.package, names[0]) if names else None

    @property
    def _effective(self) -> File:
        """The file whose types count: of one that does nothing but import another publicly, that other."""
        file = self.raw
        has_content = file.messages or file.enums or file.extends or file.services
        if has_content or len(file.imports) != 1 or file.imports[0].modifier != "public":
            return file
        imported = self._known.get(file.imports[0].name)
        return imported if imported is not None and (imported.messages or imported.enums) else file

    @cached_property
    def names(self) -> Names:
        """What the schema can see."""
        return Names(visible_files(self.raw, self._known))

    def normalized(self) -> "ProtobufSchema":
        text = print_file(normalize(self.raw, self.names))
        return ProtobufSchema(read_file(text), self._imported, tuple(sorted(set(self.references))), text)

    def formatted(self, form: str) -> str:
        if form != "serialized":
            return self.canonical
        return base64.b64encode(self.descriptor.SerializeToString(deterministic=True)).decode()

    # Descriptors and messages.

    @cached_property
    def descriptor(self) -> pb.FileDescriptorProto:
        return self.descriptors[DESCRIPTOR_NAME]

    @cached_property
    def descriptors(self) -> dict[str, pb.FileDescriptorProto]:
        """That of the schema and those of all files that it needs, by their names."""
        found: dict[str, pb.FileDescriptorProto] = {}
        waiting = []
        pending = [DESCRIPTOR_NAME]
        while pending:
            name = pending.pop()
            if name not in found:
                built = self._build(name)
                found[name] = built.file
                waiting += [built] if built.unset else []
                pending += built.file.dependency
        if waiting:
            _set_extension_options(found, waiting)
        return found

    def _build(self, name: str) -> Built:
        file = self.raw if name == DESCRIPTOR_NAME else self._known[name]
        google = None if name in self._imported else google_descriptor(name)
        if google is not None:
            return Built(google)
        names = self.names if name == DESCRIPTOR_NAME else Names(visible_files(file, self._known))
        return build_file(file, name=name, names=names, imports=self._known)

    @cached_property
    def pool(self) -> DescriptorPool:
        """A pool of its own for the schema and what it imports."""
        return build_pool(self.descriptors, [DESCRIPTOR_NAME])

    def message_class(self, full_name: str) -> type[AnyMessage]:
        """To read and write messages with. Raises KeyError if there is no such message."""
        found: type[AnyMessage] = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(full_name))
        return found

    def find_message_indexes(self, full_name: str) -> tuple[int, ...]:
        """The way to a message, as the wire format has it: its place in the file, then in the message around it, and so
        on. Raises KeyError."""
        package = self._effective.package
        messages = self._effective.messages
        indexes: list[int] = []
        for part in (full_name.removeprefix(f"{package}.") if package else full_name).split("."):
            index = next((index for index, each in enumerate(messages) if each.name == part), None)
            if index is None:
                raise KeyError(full_name)
            indexes.append(index)
            messages = messages[index].messages
        return tuple(indexes)

    def find_message_name(self, indexes: tuple[int, ...]) -> str:
        """No indexes mean the first message. Raises KeyError."""
        messages: tuple[Message, ...] = self._effective.messages
        name = self._effective.package
        for index in indexes or (0,):
            if not 0 <= index < len(messages):
                raise KeyError(indexes)
            name = join(name, messages[index].name)
            messages = messages[index].messages
        return name

    @cached_property
    def side(self) -> Side:
        """For comparisons: all files count there, whether the schema itself sees them or not."""
        imports: dict[str, File] = {}
        pending = [self.raw]
        while pending:
            for each in pending.pop().imports:
                if each.name not in imports and each.name in self._known:
                    imports[each.name] = self._known[each.name]
                    pending.append(imports[each.name])
        names = Names([*imports.items(), ("", self.raw)])
        return Side(self.raw, names, {each.name: each for each in self.references})


def parse(text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()) -> ProtobufSchema:
    """`text` is .proto or the base64 of a FileDescriptorProto, and so is each text of `resolved`."""
    schema = parse_registered(text, resolved, references)
    # A schema that is valid but breaks a limit of protobuf's library could be registered and never used.
    schema.pool  # noqa: B018
    return schema


def parse_registered(
    text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
) -> ProtobufSchema:
    """Without asking protobuf's own library whether it can read messages with it."""
    imported = {}
    for name, each in resolved.items():
        try:
            imported[name] = _read(each).file
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f'"{name}": {error}') from None
    read = _read(text)
    schema = ProtobufSchema(read.file, imported, references, print_file(read.file))
    validate(schema.raw, schema.names)
    if read.descriptor is not None:
        file = _recognize_options(schema, read.descriptor)
        schema = ProtobufSchema(file, imported, references, print_file(file))
        _check_can_be_written(schema.canonical)
    # Values that do not fit their options are found here.
    schema.descriptor  # noqa: B018
    return schema


def check(reader: ProtobufSchema, writer: ProtobufSchema, policy: Policy = "STRICT") -> list[Incompatibility]:
    """The policy makes no difference to Protobuf."""
    return to_incompatibilities(compare(writer.side, reader.side))


class _ReadText(NamedTuple):
    """`descriptor` is there if the text was one."""

    file: File
    descriptor: pb.FileDescriptorProto | None = None


@lru_cache(maxsize=512)
def _read(text: str) -> _ReadText:
    """Remembered, because the same imports come again and again."""
    try:
        return _ReadText(read_file(text))
    except InvalidSchemaError:
        descriptor = _decode_descriptor(text)
        if descriptor is None:
            raise
        return _ReadText(read_descriptor(descriptor), descriptor)


def _decode_descriptor(text: str) -> pb.FileDescriptorProto | None:
    try:
        descriptor = pb.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return descriptor if _is_utf8(descriptor) else None


def _is_utf8(message: AnyMessage) -> bool:
    """protobuf's library gives strings that are not UTF-8 as bytes. Extensions may have such; the rest may not."""
    for field, value in message.ListFields():
        if field.is_extension:
            continue
        values = value if field.is_repeated else [value]
        if field.message_type is not None and not all(map(_is_utf8, values)):
            return False
        if field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(each, str) for each in values):
            return False
    return True


def _recognize_options(schema: ProtobufSchema, descriptor: pb.FileDescriptorProto) -> File:
    """In a descriptor, options that are extensions are bytes. With the files that define them they can be read."""
    file = schema.raw
    if not (file.extends or file.imports):
        return file
    try:
        pool = _options_pool(schema.descriptors)
    except InvalidSchemaError:
        return file
    known = message_factory.GetMessageClass(pool.FindMessageTypeByName(descriptor.DESCRIPTOR.full_name))
    try:
        return read_descriptor(known.FromString(descriptor.SerializeToString()))
    except DecodeError as error:
        raise InvalidSchemaError(f"the descriptor's options cannot be read: {error}") from None


def _check_can_be_written(canonical: str) -> None:
    """A descriptor may have names that no text can have."""
    try:
        read_file(canonical)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"the descriptor cannot be written as text: {error}") from None


def _set_extension_options(files: dict[str, pb.FileDescriptorProto], waiting: list[Built]) -> None:
    """Without those that are not known; without all if protobuf's library does not take the files."""
    try:
        pool = _options_pool(files)
    except InvalidSchemaError:
        return
    for built in waiting:
        built.set_extensions(pool)


def _options_pool(files: Mapping[str, pb.FileDescriptorProto]) -> DescriptorPool:
    """With the options themselves, which the files may extend."""
    descriptor_proto = google_descriptor(_DESCRIPTOR_PROTO)
    assert descriptor_proto is not None
    return build_pool({_DESCRIPTOR_PROTO: descriptor_proto, **files}, [_DESCRIPTOR_PROTO, *files])
