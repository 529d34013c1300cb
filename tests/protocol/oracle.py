"""kio's reader and writer as the oracle: random kio messages, their bytes, and the equivalent `Message`s."""

import dataclasses
import datetime
import io
import random
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from rookery.protocol.message import Message

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TIME_TYPES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def all_messages() -> Iterator[tuple[int, int, str]]:
    """Yield (api key, version, direction) of every message that kio has."""
    for api_key, name in api_key_map.items():
        for version in schema_name_map[name]:
            yield api_key, version, "request"
            yield api_key, version, "response"


def load(api_key: int, version: int, direction: str) -> Any:
    return (load_request_schema if direction == "request" else load_response_schema)(api_key, version)


def encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decode(schema: Any, data: bytes) -> Any:
    return entity_reader(schema)(data, 0)[0]


def random_entity(schema: Any, chance: random.Random, *, items_max: int = 3) -> Any:
    values = {}
    for field in dataclasses.fields(schema):
        if field.default is not dataclasses.MISSING and chance.random() < 0.4:
            continue
        values[field.name] = _random_value(field, chance, items_max)
    return schema(**values)


def _random_value(field: "dataclasses.Field[Any]", chance: random.Random, items_max: int) -> Any:
    kafka_type = field.metadata.get("kafka_type", "")
    annotation, nullable = _without_none(field.type)
    # kio cannot write null into a tagged field: for most of them null is the default, which is left out.
    if nullable and "tag" not in field.metadata and chance.random() < 0.3:
        return None
    if get_origin(annotation) is tuple:
        item, _ = _without_none(get_args(annotation)[0])
        count = chance.randint(0, items_max)
        return tuple(_random_single(item, kafka_type, chance, items_max - 1) for _ in range(count))
    return _random_single(annotation, kafka_type, chance, items_max)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    arguments = [argument for argument in get_args(annotation) if argument is not NoneType]
    return (arguments[0], True) if NoneType in get_args(annotation) else (annotation, False)


def _random_single(annotation: Any, kafka_type: str, chance: random.Random, items_max: int) -> Any:
    if dataclasses.is_dataclass(annotation):
        return random_entity(annotation, chance, items_max=max(items_max, 1))
    return _PRIMITIVES[kafka_type](chance)


def _random_integer(bits: int) -> Callable[[random.Random], int]:
    limit = 2 ** (bits - 1)
    return lambda chance: chance.choice((0, 1, -1, -limit, limit - 1, chance.randint(-limit, limit - 1)))


def _random_text(chance: random.Random) -> str:
    return "".join(chance.choice("abcé漢🦜-") for _ in range(chance.choice((0, 1, 5, 70))))


_PRIMITIVES: dict[str, Callable[[random.Random], Any]] = {
    **{name: _random_integer(bits) for name, bits in _BITS.items()},
    "bool": lambda chance: chance.random() < 0.5,
    "uint16": lambda chance: chance.randint(0, 2**16 - 1),
    "float64": lambda chance: chance.uniform(-1e9, 1e9),
    "uuid": lambda chance: UUID(int=chance.getrandbits(128) | 1),
    "string": _random_text,
    "bytes": lambda chance: chance.randbytes(chance.choice((0, 1, 7, 140))),
    "records": lambda chance: chance.randbytes(chance.choice((0, 1, 7, 140))),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "timedelta_i32": lambda chance: datetime.timedelta(milliseconds=chance.randint(-(2**31), 2**31 - 1)),
    "timedelta_i64": lambda chance: datetime.timedelta(milliseconds=chance.randint(-(2**40), 2**40)),
    "datetime_i64": lambda chance: _EPOCH + datetime.timedelta(seconds=chance.randint(0, 2**32)),
}


def to_message(entity: Any) -> Message:
    """Convert a kio message to a `Message`, with the naming rules of the codec."""
    message = Message()
    for field in dataclasses.fields(entity):
        kafka_type = field.metadata.get("kafka_type", "")
        is_time = kafka_type in _TIME_TYPES and not field.name.endswith("_ms")
        name = f"{field.name}_ms" if is_time else field.name
        value = getattr(entity, field.name)
        is_null_array = value is None and get_origin(_without_none(field.type)[0]) is tuple
        setattr(message, name, None if is_null_array else _to_plain(value, kafka_type))
    return message


def _to_plain(value: Any, kafka_type: str) -> Any:
    if isinstance(value, tuple):
        return [_to_plain(item, kafka_type) for item in value]
    if dataclasses.is_dataclass(value):
        return to_message(value)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, ErrorCode):
        return value.value
    if value is None:
        return {"uuid": UUID(int=0), "datetime_i64": -1}.get(kafka_type)
    return value
