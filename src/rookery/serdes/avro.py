"""The Avro serializer and deserializer: dictionaries, or objects with conversion functions, in Avro's binary encoding.

With a reader's schema, its own or the latest of the subject, a deserializer reads data that was written with older and
newer schemas, by Avro's schema resolution. Without one it returns the data as the writer's schema describes it.

If the whole schema is `bytes`, the data has no length before the bytes, as in Confluent's serializers.
"""

from collections.abc import Mapping
from functools import partial
from io import BytesIO
from typing import Any

import fastavro

from rookery.records.batch_writer import encode_varint
from rookery.records.record import read_varint
from rookery.serdes.avro_bounds import check_data, check_value
from rookery.serdes.avro_mismatches import explain
from rookery.serdes.avro_schema import AvroSchema, parse_avro
from rookery.serdes.base import TextDeserializer, TextSerializer
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError, describe
from rookery.serdes.settings import (
    AVRO_DESERIALIZER_KEYS,
    AVRO_SERIALIZER_KEYS,
    DeserializerSettings,
    SerializerSettings,
)
from rookery.serdes.subjects import Convert, SerializationContext


class AvroSerializer(TextSerializer[AvroSchema]):
    """Serializes values, or keys if `is_key`, as Avro.

    `schema` may be a text if it has no references. `to_dict(value, context)` converts a program's object to the types
    that Avro can write. The settings in `config` have Confluent's names.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        to_dict: Convert | None = None,
        is_key: bool = False,
        config: Mapping[str, object] = {},
    ) -> None:
        settings = SerializerSettings.parse(AVRO_SERIALIZER_KEYS, config)
        parse = partial(parse_avro, registry, for_writing=True)
        super().__init__(registry, settings, schema, schema_type="AVRO", parse=parse, to_dict=to_dict, is_key=is_key)
        self._strict = settings.values.boolean("validate.strict")
        self._strict_allow_default = settings.values.boolean("validate.strict.allow.default")

    def _encode(self, schema: AvroSchema, value: Any) -> bytes:
        try:
            check_value(schema.risk, value)
        except ValueError as error:
            raise InvalidValueError(str(error)) from None
        out = BytesIO()
        try:
            fastavro.schemaless_writer(
                out, schema.raw, value, strict=self._strict, strict_allow_default=self._strict_allow_default
            )
        except Exception as error:
            raise explain(schema.root, value, error) from error
        data = out.getvalue()
        return data[read_varint(data, 0)[1] :] if schema.is_bytes else data


class AvroDeserializer(TextDeserializer[AvroSchema]):
    """Deserializes values, or keys if `is_key`, from Avro.

    `schema` is the reader's schema, if there is one. `from_dict(value, context)` converts the decoded value to a
    program's object. With `return_record_name` a record in a union is returned as a tuple of its name and the record.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        from_dict: Convert | None = None,
        return_record_name: bool = False,
        is_key: bool = False,
        config: Mapping[str, object] = {},
    ) -> None:
        settings = DeserializerSettings.parse(AVRO_DESERIALIZER_KEYS, config)
        parse = partial(parse_avro, registry)
        super().__init__(
            registry, settings, schema, schema_type="AVRO", parse=parse, from_dict=from_dict, is_key=is_key
        )
        self._return_record_name = return_record_name

    def _decode(self, context: SerializationContext, schema_id: int, payload: bytes) -> Any:
        writer = self._source.writer(schema_id)
        reader = self._source.reader(context, writer)
        if writer.is_bytes:
            payload = encode_varint(len(payload)) + payload
        try:
            check_data(writer.risk, writer.root, payload)
            return self._read(payload, writer.raw, None if reader is None else reader.raw)
        except Exception as error:
            with_reader = "" if reader is None else " with the reader's schema"
            message = f"data of the schema {schema_id} cannot be read{with_reader}: {describe(error)}"
            raise InvalidDataError(message) from error

    def _read(self, payload: bytes, writer: Any, reader: Any) -> Any:
        # fastavro does not check for the end of the data when it skips fields that the reader's schema does not have.
        # The extra byte makes a skip past the end visible; without it, truncated data would be accepted.
        stream = BytesIO(payload + b"\0")
        value = fastavro.schemaless_reader(stream, writer, reader, return_record_name=self._return_record_name)
        if stream.tell() > len(payload):
            raise EOFError("it is cut off")
        return value
