"""A Protobuf schema: parsed, validated, and in the forms that the registry and the serializers need."""

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
"""The name that Confluent's registry gives to the file of a schema, which has no name itself."""
_DESCRIPTOR_PROTO: Final = "google/protobuf/descriptor.proto"


class ProtobufSchema:
    """`raw` are the elements of the file; `descriptor` is the form of protobuf's own library."""

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
        """The full name of the first message; of the first enum if there is no message."""
        file = self._effective
        names = [*(each.name for each in file.messages), *(each.name for each in file.enums)]
        return join(file.package, names[0]) if names else None

    @property
    def _effective(self) -> File:
        """The file whose types count. For a file that only imports another one publicly, it is the imported file."""
        file = self.raw
        has_content = file.messages or file.enums or file.extends or file.services
        if has_content or len(file.imports) != 1 or file.imports[0].modifier != "public":
            return file
        imported = self._known.get(file.imports[0].name)
        return imported if imported is not None and (imported.messages or imported.enums) else file

    @cached_property
    def names(self) -> Names:
        """The names that the schema can use."""
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
        """The descriptors of the schema and of all files that it imports, by file name."""
        found: dict[str, pb.FileDescriptorProto] = {}
        waiting = []
        pending = [DESCRIPTOR_NAME]
        while pending:
            name = pending.pop()
            if name not in found:
                built = self._build(name)
                found[name] = built.file
                waiting += [built] if built.pending else []
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
        """A pool with only the schema and the files that it imports."""
        return build_pool(self.descriptors, [DESCRIPTOR_NAME])

    def message_class(self, full_name: str) -> type[AnyMessage]:
        """Return a class to read and write messages. Raises KeyError if there is no such message."""
        found: type[AnyMessage] = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(full_name))
        return found

    def find_message_indexes(self, full_name: str) -> tuple[int, ...]:
        """Return the message indexes of the wire format: the index of the outermost message in the file, then of the
        message inside it, and so on. Raises KeyError."""
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
        """Return the full name of the message with these indexes; empty indexes mean the first. Raises KeyError."""
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
        """The schema for comparisons, with the names of all imported files, whether the schema can use them or not."""
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
    """Parse a new schema. The texts are .proto, or FileDescriptorProtos in base64."""
    schema = parse_registered(text, resolved, references)
    # Without this check, a valid schema that exceeds a limit of protobuf's library could be registered, but not used.
    schema.pool  # noqa: B018
    return schema


def parse_registered(
    text: str, resolved: Mapping[str, str] = {}, references: tuple[Reference, ...] = ()
) -> ProtobufSchema:
    """Parse a registered schema, without checking whether protobuf's own library can use it."""
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
        _check_printable(schema.canonical)
    # Building the descriptor raises for invalid values of options.
    schema.descriptor  # noqa: B018
    return schema


def check(reader: ProtobufSchema, writer: ProtobufSchema, policy: Policy = "STRICT") -> list[Incompatibility]:
    """Return the reasons why `reader` cannot read data of `writer`. The policy does not matter for Protobuf."""
    return to_incompatibilities(compare(writer.side, reader.side))


class _ReadText(NamedTuple):
    """A parsed text. `descriptor` is set if the text was a descriptor."""

    file: File
    descriptor: pb.FileDescriptorProto | None = None


@lru_cache(maxsize=512)
def _read(text: str) -> _ReadText:
    """Parse a text; cached, because the same imports occur in many schemas."""
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
    """Whether all strings are UTF-8, except in extensions. protobuf's library returns other strings as bytes."""
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
    """Read the descriptor again with the files that define extension options.

    Without these files such options are unknown fields, and would be missing from the elements.
    """
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


def _check_printable(canonical: str) -> None:
    """Check that the printed text can be parsed: a descriptor may contain names that are not valid in a text."""
    try:
        read_file(canonical)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"the descriptor cannot be written as text: {error}") from None


def _set_extension_options(files: dict[str, pb.FileDescriptorProto], waiting: list[Built]) -> None:
    """Set the extension options that are known; none of them if protobuf's library rejects the files."""
    try:
        pool = _options_pool(files)
    except InvalidSchemaError:
        return
    for built in waiting:
        built.set_extensions(pool)


def _options_pool(files: Mapping[str, pb.FileDescriptorProto]) -> DescriptorPool:
    """Return a pool of the files and of the option messages themselves, which the files may extend."""
    descriptor_proto = google_descriptor(_DESCRIPTOR_PROTO)
    assert descriptor_proto is not None
    return build_pool({_DESCRIPTOR_PROTO: descriptor_proto, **files}, [_DESCRIPTOR_PROTO, *files])
