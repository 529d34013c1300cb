"""Type parameters of clients and records: the types of keys and values, which are bytes without serializers."""

from typing_extensions import TypeVar

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
