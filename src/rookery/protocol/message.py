"""The plain object that requests decode into and responses are built from.

A message's fields are attributes with the codec's names: `Message(throttle_time_ms=0, topics=[Message(name="a")])`.
It knows no schema: the codec takes the fields that a version has and ignores the others, so a handler builds one
message for all versions of an API.
"""

from types import SimpleNamespace
from typing import Any


class Message(SimpleNamespace):
    """Fields by name. A field that the request's version does not have is absent: read it with `get`."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.__dict__.get(name, default)


class FrozenMessage(Message):
    """A message, or a part of one, that is encoded often: the codec keeps its bytes. Not to be changed any more.

    `__dict__` stays that of a message, so whoever encodes it in another version gets that version's bytes.
    """

    __slots__ = ("encoded", "encoder")

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.encoder: object = None
        self.encoded = b""
