"""Decodes Protobuf in the registry's wire format.

Rows are parsed as the reader's message; Protobuf's rules allow that for older and newer writers. The writer's schema is
fetched only to determine which message of its file a row has: any other than the reader's is an error.
"""

import json
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from rookery.schemas.interface import Reference
from rookery.schemas.protobuf import ProtobufSchema, parse
from rookery.serdes import RegistryClient, Schema
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError, SerdesError
from rookery.serdes.wire import read_indexes
from rookery.spark.formats.arrays import build_isolated
from rookery.spark.formats.columns import Array, ColumnDecoder, DecodedColumn
from rookery.spark.formats.errors import FormatError, wrap_registry_errors
from rookery.spark.formats.framing import read_frames
from rookery.spark.formats.protobuf_shapes import shape_of_message
from rookery.spark.formats.registries import WriterSchemas, registry_of, row_error


def find_message(schema: ProtobufSchema, name: str | None) -> type[Message]:
    """Find a message by its full name or its name in the file's package; None returns the file's first message.

    Raises FormatError.
    """
    wanted = name or schema.name
    if wanted is None:
        raise FormatError("the schema has no message")
    package = schema.raw.package
    for each in (wanted, f"{package}.{wanted}" if package else wanted):
        try:
            return schema.message_class(each)
        except KeyError:
            continue
    raise FormatError(f"the schema has no message {wanted}")


class ParsedReader:
    """A schema and its imports, as texts (the content of a pin) and parsed."""

    def __init__(self, schema: Schema, resolved: Mapping[str, str], message: str | None) -> None:
        self.texts = (schema, dict(resolved), message)
        try:
            self.schema = parse(schema.text, resolved, schema.references)
        except InvalidSchemaError as error:
            raise FormatError(f"not a Protobuf schema: {error}") from error
        self.message_class = find_message(self.schema, message)
        self.name: str = self.message_class.DESCRIPTOR.full_name

    @classmethod
    def of(cls, schema: Schema, message: str | None, settings: Mapping[str, str]) -> "ParsedReader":
        with wrap_registry_errors():
            return cls(schema, registry_of(settings).resolve(schema) if schema.references else {}, message)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> "ParsedReader":
        references = tuple(Reference(*each) for each in values["references"])
        return cls(Schema(values["schema"], "PROTOBUF", references), values["resolved"], values["message"])

    def as_json(self) -> dict[str, Any]:
        schema, resolved, _ = self.texts
        return {
            "schema": schema.text,
            "references": [list(each) for each in schema.references],
            "resolved": resolved,
            "message": self.name,
        }


class ProtobufDecoder(ColumnDecoder):
    def __init__(self, reader: ParsedReader, reader_id: int | None, settings: Mapping[str, str]) -> None:
        self._reader = reader
        self._reader_id = reader_id
        self._settings = dict(settings)
        self._shape = shape_of_message(reader.message_class.DESCRIPTOR)
        self.spark_type = self._shape.spark_type
        # By schema id: the message indexes, as bytes, with which rows of the reader's message start.
        self._indexes: dict[int, bytes] = {}

    @classmethod
    def of_pin(cls, pin: str, settings: Mapping[str, str]) -> "ProtobufDecoder":
        pinned = json.loads(pin)
        return cls(ParsedReader.of_json(pinned), pinned["id"], settings)

    def pin(self) -> str:
        return json.dumps(self._reader.as_json() | {"id": self._reader_id})

    def __reduce__(self) -> tuple[object, ...]:
        return ProtobufDecoder.of_pin, (self.pin(), self._settings)

    def decode(self, column: Array, topic: str) -> DecodedColumn:
        frames = read_frames(column)
        errors, messages = list(frames.errors), [None] * len(column)
        for row, schema_id, payload in frames.payloads():
            try:
                messages[row] = self._read(schema_id, payload)
            except SerdesError as error:
                errors.append(row_error(row, error))
        values = build_isolated(messages, self._shape.build, errors)
        return DecodedColumn(values, sorted(errors), frames.schema_ids())

    def _read(self, schema_id: int, payload: bytes) -> Any:
        indexes = self._indexes.get(schema_id)
        if indexes is None or not payload.startswith(indexes):
            indexes = self._find_indexes(schema_id, payload)
        message = self._reader.message_class()
        try:
            message.ParseFromString(payload[len(indexes) :])
        except DecodeError as error:
            text = f"data of the schema {schema_id} is not a message {self._reader.name}: {error}"
            raise InvalidDataError(text) from error
        return message

    def _find_indexes(self, schema_id: int, payload: bytes) -> bytes:
        """Return the message indexes of the row as bytes. Raises SerdesError if it is not the reader's message."""
        found = self._writers.find(schema_id)
        if isinstance(found, SerdesError):
            raise found
        indexes, data = read_indexes(payload)
        try:
            name = found.find_message_name(indexes)
        except KeyError:
            raise InvalidDataError(f"the schema {schema_id} has no message at {list(indexes)}") from None
        if name != self._reader.name:
            raise InvalidDataError(f"it is a message {name}, but {self._reader.name} is read")
        # The encoding of indexes is prefix-free, so every row that starts with these bytes has the same message.
        self._indexes[schema_id] = payload[: len(payload) - len(data)]
        return self._indexes[schema_id]

    @cached_property
    def _writers(self) -> WriterSchemas[ProtobufSchema]:
        registry = partial(registry_of, self._settings)
        return WriterSchemas(registry, "PROTOBUF", lambda schema: _parse(registry(), schema))


def _parse(registry: RegistryClient, schema: Schema) -> ProtobufSchema:
    return parse(schema.text, registry.resolve(schema), schema.references)
