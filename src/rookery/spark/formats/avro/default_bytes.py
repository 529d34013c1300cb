"""Encodes defaults of Avro fields: the bytes that are written for a field without a column."""

import struct
from typing import Any

from rookery.records.batch_writer import encode_varint
from rookery.schemas.avro.defaults import is_valid_default
from rookery.schemas.avro.model import MISSING, Array, Enum, Field, Map, Node, Record, Union

_UNUSABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, struct.error)


def encode_default(field: Field) -> bytes | None:
    """Return the encoded default; None if the field has none, or one that is not a value of its type."""
    if field.default is MISSING or not is_valid_default(field.type, field.default):
        return None
    try:
        return _encode(field.type, field.default)
    except _UNUSABLE:
        return None


def _encode(node: Node, value: Any) -> bytes:
    match node:
        case Union():
            return encode_varint(0) + _encode(node.branches[0], value)
        case Record():
            fields = node.fields.values()
            return b"".join(_encode(each.type, value.get(each.name, each.default)) for each in fields)
        case Array():
            return _block([_encode(node.items, each) for each in value])
        case Map():
            return _block([_sized(key.encode()) + _encode(node.values, each) for key, each in value.items()])
        case Enum():
            return encode_varint(node.symbols.index(value))
    return _encode_scalar(node, value)


def _encode_scalar(node: Node, value: Any) -> bytes:
    match node.type:
        case "null":
            return b""
        case "boolean":
            return b"\1" if value else b"\0"
        case "int" | "long":
            return encode_varint(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "string":
            return _sized(value.encode())
        case "bytes":
            return _sized(value.encode("latin-1"))
    data: bytes = value.encode("latin-1")
    return data


def _sized(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (encode_varint(len(items)) + b"".join(items) if items else b"") + encode_varint(0)
