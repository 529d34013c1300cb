"""Avro: dictionaries, or objects with the functions that turn them into such and back, as Avro's binary encoding.

The reader's schema decides what a program sees: with one of its own, or with the latest of the subject, it reads what
was written with older and with newer schemas, as Avro's rules of schema resolution have it. Without one it sees what
the writer wrote.

A schema that is just `bytes` has no length before the bytes, here as in Confluent's serializers.
"""

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro._read_py import schemaless_reader as careful_reader
from fastavro.validation import ValidationError, ValidationErrorData

from rookery.records.packing import encode_varint
from rookery.records.record import read_varint
from rookery.serdes.avro_schema import AvroSchema, parse_avro, type_name
from rookery.serdes.client import RegistryClient
from rookery.serdes.entities import Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError
from rookery.serdes.reading import Sources
from rookery.serdes.registration import Registration, as_schema, field_of
from rookery.serdes.settings import (
    AVRO_DESERIALIZER_KEYS,
    AVRO_SERIALIZER_KEYS,
    DeserializerSettings,
    SerializerSettings,
)
from rookery.serdes.subjects import Convert, SerializationContext
from rookery.serdes.wire import read_prefix

_DEPTH_SAFE: Final = 200


class AvroSerializer:
    """Of the values of topics, or of their keys. `schema` may be a text that refers to no other schema.

    `to_dict(value, context)` makes what Avro can write out of a value. `config` has Confluent's names.
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
        own = as_schema(schema, "AVRO")
        self._registration = Registration(
            registry,
            settings,
            schema_type="AVRO",
            parse=lambda chosen: parse_avro(registry, chosen.schema),
            complete=None if own is None else lambda: own,
            record_name=None if own is None else parse_avro(registry, own).name,
            field=field_of(is_key=is_key),
        )
        self._to_dict = to_dict
        self._field = field_of(is_key=is_key)
        self._strict = settings.values.boolean("validate.strict")
        self._strict_allow_default = settings.values.boolean("validate.strict.allow.default")

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        target = self._registration.target(topic)
        if self._to_dict is not None:
            value = self._to_dict(value, SerializationContext(topic, self._field))
        return target.prefix + self._encode(target.schema, value)

    def _encode(self, schema: AvroSchema, value: Any) -> bytes:
        out = BytesIO()
        try:
            fastavro.schemaless_writer(
                out, schema.raw, value, strict=self._strict, strict_allow_default=self._strict_allow_default
            )
        except Exception as error:
            raise _misfit(schema, value, error) from error
        data = out.getvalue()
        return data[read_varint(data, 0)[1] :] if schema.is_bytes else data


class AvroDeserializer:
    """`schema` is the reader's, if it has one; `from_dict(value, context)` makes objects of what was read.

    With `return_record_name` a record in a union is a tuple of its name and itself.
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
        self._sources = Sources(
            registry,
            DeserializerSettings.parse(AVRO_DESERIALIZER_KEYS, config),
            schema_type="AVRO",
            parse=partial(parse_avro, registry),
            own=as_schema(schema, "AVRO"),
        )
        self._from_dict = from_dict
        self._return_record_name = return_record_name
        self._field = field_of(is_key=is_key)

    def __call__(self, topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id, payload = read_prefix(data)
        context = SerializationContext(topic, self._field)
        writer = self._sources.writer(schema_id)
        value = self._decode(payload, writer, self._sources.reader(context, writer), schema_id)
        return value if self._from_dict is None else self._from_dict(value, context)

    def _decode(self, payload: bytes, writer: AvroSchema, reader: AvroSchema | None, schema_id: int) -> Any:
        if writer.is_bytes:
            payload = encode_varint(len(payload)) + payload
        # fastavro skips what the reader does not want without a look at it: it must not get behind the end unseen.
        stream = BytesIO(payload + b"\0")
        try:
            value = _find_reader(writer, len(payload))(
                stream,
                writer.raw,
                None if reader is None else reader.raw,
                return_record_name=self._return_record_name,
            )
            if stream.tell() > len(payload):
                raise EOFError("it is cut off")
            return value
        except Exception as error:
            with_reader = "" if reader is None else " with the reader's schema"
            told = f"data of the schema {schema_id} cannot be read{with_reader}: {str(error) or type(error).__name__}"
            raise InvalidDataError(told) from error


def _find_reader(writer: AvroSchema, size_bytes: int) -> Callable[..., Any]:
    """fastavro's compiled reader ends the process if records are in records some thousand times; its other one, which
    is slower, raises RecursionError. A level takes a byte at least."""
    is_risky = writer.is_recursive and size_bytes > _DEPTH_SAFE
    return careful_reader if is_risky else fastavro.schemaless_reader


def _misfit(schema: AvroSchema, value: Any, error: Exception) -> InvalidValueError:
    """fastavro's writer does not say where; its validation does, but is too slow to come first."""
    try:
        fastavro.validate(value, schema.raw, raise_errors=True)
    except ValidationError as found:
        return _explained(found) or _unexplained(error)
    except Exception as other:
        return _unexplained(other)
    return _unexplained(error)


def _explained(found: ValidationError) -> InvalidValueError | None:
    errors = [each for each in found.errors if isinstance(each, ValidationErrorData)]
    if not errors:
        return None
    first = errors[0]
    expected = " or ".join(type_name(each.schema) for each in errors if each.field == first.field)
    return InvalidValueError(f"expected {expected}, not {first.datum!r}", path=first.field or "")


def _unexplained(error: Exception) -> InvalidValueError:
    return InvalidValueError(str(error) or type(error).__name__)
