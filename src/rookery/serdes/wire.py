"""The prefix of a message, by which a reader finds the schema that the message was written with.

    0x00  schema id, 4 bytes, big endian  payload
    0x00  schema id, 4 bytes, big endian  message indexes  payload        Protobuf

Message indexes say which message type of the file it is: their count, and then the position at each nesting level, all
as zigzag varints. The first message type of a file, [0], is so common that it is written as the single byte 0.
"""

import struct
from typing import Final

from rookery.records.batch_writer import encode_varint
from rookery.records.record import read_varint
from rookery.serdes.errors import WireFormatError

_MAGIC: Final = 0
_PREFIX: Final = struct.Struct(">BI")
SCHEMA_ID_MAX: Final = 2**31 - 1
_FIRST_MESSAGE: Final = (0,)
# No file nests messages this deep. The limit rejects garbage before many varints of it are read.
_DEPTH_MAX: Final = 100


def encode_prefix(schema_id: int) -> bytes:
    return _PREFIX.pack(_MAGIC, schema_id)


def read_prefix(data: bytes | bytearray | memoryview) -> tuple[int, bytes]:
    """Return the schema id and the bytes after it. Raises WireFormatError."""
    if len(data) < _PREFIX.size:
        raise WireFormatError(
            f"{len(data)} bytes are too few for a schema id; this was not written by a serializer with a registry"
        )
    magic, schema_id = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise WireFormatError(
            f"the first byte is {magic} instead of {_MAGIC}; this was not written by a serializer that puts the id of "
            "the schema before the message"
        )
    if schema_id > SCHEMA_ID_MAX:
        raise WireFormatError(f"{schema_id} cannot be the id of a schema; this was not written by a serializer")
    return schema_id, bytes(data[_PREFIX.size :])


def encode_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == _FIRST_MESSAGE:
        return encode_varint(0)
    return b"".join(map(encode_varint, (len(indexes), *indexes)))


def read_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the message indexes and the bytes after them. Raises WireFormatError."""
    try:
        count, position = read_varint(data, 0)
        if not 0 <= count <= _DEPTH_MAX:
            raise ValueError
        indexes = []
        for _ in range(count):
            index, position = read_varint(data, position)
            indexes.append(index)
    except (IndexError, ValueError):
        raise WireFormatError("the message indexes cannot be read; this was not written as Protobuf") from None
    if min(indexes, default=0) < 0:
        raise WireFormatError(f"{indexes} cannot be message indexes; this was not written as Protobuf")
    return tuple(indexes) or _FIRST_MESSAGE, data[position:]
