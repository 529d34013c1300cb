"""The types of keys and values, by which clients and their records are generic: bytes, unless serializers say other."""

from typing_extensions import TypeVar

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
