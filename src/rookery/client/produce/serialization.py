"""Keys and values as bytes: by the serializers that the user gave, or as they are.

A serializer is a function of (topic, data), or an object with `serialize`. Without one, keys and values are bytes or
None. What cannot be serialized raises `SerializationError` to who sends it, and no other record is touched.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from rookery.base.types import TopicName
from rookery.client.errors import SerializationError
from rookery.client.produce.records import Serializer

_Serialize: TypeAlias = Callable[[TopicName, Any], Any]


class Serializing:
    """One producer's two serializers."""

    def __init__(self, key: Serializer[Any] | None, value: Serializer[Any] | None) -> None:
        self._key = _function(key)
        self._value = _function(value)

    def __bool__(self) -> bool:
        """Whether there is anything to do for keys and values that are bytes already."""
        return self._key is not None or self._value is not None

    def key(self, topic: TopicName, data: object) -> bytes | None:
        return _serialized(self._key, topic, data, "key")

    def value(self, topic: TopicName, data: object) -> bytes | None:
        return _serialized(self._value, topic, data, "value")


def _function(serializer: Serializer[Any] | None) -> _Serialize | None:
    if serializer is None:
        return None
    method: Any = getattr(serializer, "serialize", serializer)
    if not callable(method):
        raise TypeError(
            f"a serializer is a function of (topic, data) or has serialize(topic, data), not {serializer!r}"
        )
    function: _Serialize = method
    return function


def _serialized(serialize: _Serialize | None, topic: TopicName, data: Any, what: str) -> bytes | None:
    made: Any = data
    if serialize is not None:
        try:
            made = serialize(topic, data)
        except Exception as error:
            raise SerializationError(f"topic {topic}: the {what} cannot be serialized: {error}") from error
    if made is None or made.__class__ is bytes:
        return made
    if isinstance(made, bytes | bytearray | memoryview):
        # A copy: the sender may use its buffer again.
        return bytes(made)
    advice = "its serializer must return bytes" if serialize is not None else f"give bytes, or a {what}_serializer"
    raise SerializationError(f"topic {topic}: the {what} is {type(made).__name__}: {advice}")
