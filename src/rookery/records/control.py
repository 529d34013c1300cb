"""Control records, which brokers write between the data, in batches that clients skip (KIP-98, KIP-595).

An end marker is the control record that matters most to a partition: it says that one producer's transaction has ended
here, and whether it was committed. `docs/formats/record-batch.md` shows one byte by byte.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Buffer, ProducerEpoch, ProducerId, TimestampMs
from rookery.records.record import Record, build_batch, decode_records

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0
# An end marker's value: version and coordinator epoch.
_MARKER_VALUE = struct.Struct(">hi")
_MARKER_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Marker(NamedTuple):
    """The end of a transaction on one partition, as requested by its coordinator."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    coordinator_epoch: int
    # From version 2 on every transaction has its own epoch, so a marker's must be above that of the data (KIP-890).
    transaction_version: int = 0


class EndMarker(NamedTuple):
    """The content of a marker's record; its producer is in the batch header."""

    committed: bool
    coordinator_epoch: int


def control_key(kind: ControlType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(_KEY_VERSION, kind)


def control_type(batch: Buffer) -> int | None:
    """Return the type of a control batch, which need not be a `ControlType`; None if compaction has emptied it."""
    record = _control_record(batch)
    return None if record is None else _type_of(record)


def build_marker(marker: Marker, timestamp_ms: TimestampMs) -> bytearray:
    """Build the batch that ends a transaction, without offset and leader epoch."""
    key = control_key(ControlType.COMMIT if marker.committed else ControlType.ABORT)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp_ms, key, value)],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer) -> EndMarker | None:
    """Return how a transaction ended; None for other control batches and for those that compaction has emptied."""
    record = _control_record(batch)
    if record is None:
        return None
    kind = _type_of(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise _invalid("an end marker without a coordinator epoch")
    # Later versions only append fields to these.
    return EndMarker(kind == ControlType.COMMIT, _MARKER_VALUE.unpack_from(record.value)[1])


def _control_record(batch: Buffer) -> Record | None:
    records = decode_records(batch)
    return records[0] if records else None


def _type_of(record: Record) -> int:
    if record.key is None or len(record.key) < _KEY.size:
        raise _invalid("a control record without a type")
    kind: int = _KEY.unpack_from(record.key)[1]
    return kind


def _invalid(message: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.INVALID_RECORD, message, record_index=0)
