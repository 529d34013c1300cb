"""`Message`, the object that requests are decoded into and responses are built from, and its types for type checkers.

A message's fields are attributes with the codec's names: `Message(throttle_time_ms=0, topics=[Message(name="a")])`.
It has no schema: the codec encodes the fields that a version has and ignores the others, so that a handler builds one
message for all versions of an API.

`rookery.protocol.messages` has a class for each message and each struct in a message. To type checkers these are
subclasses of `Struct` with the fields of Kafka's definitions; at run time each of them is `Message` itself
(docs/decisions/0021). Code that works on any message takes a `Struct`, or a `Message` if it reads fields by name.
"""

from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

StructT = TypeVar("StructT", bound="Struct")
ResponseT = TypeVar("ResponseT", bound="Struct")
ResponseT_co = TypeVar("ResponseT_co", bound="Struct", covariant=True)


class Struct:
    """A message or a part of one, of any type. Only `Message` and `FrozenMessage` have instances."""

    __slots__ = ()


class Request(Struct, Generic[ResponseT_co]):
    """For type checkers: a request whose response is a `ResponseT_co`."""


class Message(SimpleNamespace, Request["Message"]):
    """Fields by name, unchecked. A field that the request's version does not have is absent: read it with `get`.

    To type checkers, the response to a `Message` is a `Message`.
    """

    def get(self, name: str, default: Any = None) -> Any:
        return self.__dict__.get(name, default)


class FrozenMessage(Message):
    """A message, or a part of one, that is encoded often: the codec caches its bytes. It must not be changed.

    It keeps its fields, so that it can still be encoded in another version.
    """

    __slots__ = ("encoded", "encoder")

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.encoder: object = None
        self.encoded = b""


def freeze(message: StructT) -> StructT:
    """Return a `FrozenMessage` with the fields of `message`. To type checkers it has the type of `message`."""
    return cast(StructT, FrozenMessage(**vars(message)))


def message_class(name: str) -> type[Message]:
    """Return the run-time class of a name in `rookery.protocol.messages`; it is the `__getattr__` of that package."""
    if not name[0].isupper():
        raise AttributeError(f"rookery.protocol.messages has no {name}")
    return Message
