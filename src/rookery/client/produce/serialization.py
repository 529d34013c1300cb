"""Converts keys and values to bytes with the user's serializers.

A serializer is a function of (topic, data), or an object with `serialize`. Without one, keys and values must be bytes
or None. A record that cannot be serialized raises `SerializationError` in its own `send`; other records are unaffected.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from rookery.base.types import TopicName
from rookery.client.errors import SerializationError
from rookery.client.produce.records import Serializer

_Serialize: TypeAlias = Callable[[TopicName, Any], Any]


class Serializers:
    """The two serializers of a producer."""

    def __init__(self, key: Serializer[Any] | None, value: Serializer[Any] | None) -> None:
        self._key = _function(key)
        self._value = _function(value)

    def __bool__(self) -> bool:
        """Whether there is a serializer; without one, bytes need no conversion."""
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
        # Copied, because the caller may reuse its buffer.
        return bytes(made)
    advice = "its serializer must return bytes" if serialize is not None else f"give bytes, or a {what}_serializer"
    raise SerializationError(f"topic {topic}: the {what} is {type(made).__name__}: {advice}")
