"""Control records: what brokers write between the data, in batches that clients skip (KIP-98, KIP-595)."""

import struct
from enum import IntEnum

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Buffer
from rookery.records.record import decode_records

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(_KEY_VERSION, kind)


def control_type(batch: Buffer) -> int | None:
    """The kind of a control batch, which need not be one of `ControlType`; None if compaction has emptied it."""
    records = decode_records(batch)
    if not records:
        return None
    key = records[0].key
    if key is None or len(key) < _KEY.size:
        raise InvalidBatchError(ErrorCode.INVALID_RECORD, "a control record without a type", record_index=0)
    kind: int = _KEY.unpack_from(key)[1]
    return kind
