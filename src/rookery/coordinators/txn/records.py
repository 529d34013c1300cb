"""The records of `__transaction_state`, byte for byte as Kafka writes them, so that Kafka's tools can read this log.

A record's key is a version as 16 bits and the transactional id; its value is a version as 16 bits and the newest
transaction. A record without a value is a tombstone. Version 0 of the value has none of the fields of KIP-890, which
are tags of version 1. `docs/formats/transactions-topic.md` has a worked example. See
transaction-coordinator/src/main/resources/common/message in apache/kafka for the fields.
"""

import struct
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from rookery.base.errors import CorruptionError
from rookery.base.types import (
    NO_PRODUCER_ID,
    Buffer,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicName,
    TopicPartition,
    indexes_by_topic,
)
from rookery.base.values import value_class
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import Transaction
from rookery.protocol import structures
from rookery.protocol.structures import Field, Kind, Schema

_INT16 = struct.Struct(">h")
_KEY_VERSION = 0
_NEVER_FLEXIBLE = 2**15
_STATES = frozenset(State)

PLAIN_VERSION = 0
FLEXIBLE_VERSION = 1


class TransactionRecord(NamedTuple):
    """A record; a `transaction` of None is a tombstone of the transactional id."""

    transactional_id: str
    transaction: Transaction | None


@value_class
class _Key:
    SCHEMA: ClassVar = Schema(0, (Field("transactional_id", structures.STRING),), flexible_from=_NEVER_FLEXIBLE)
    transactional_id: str


@value_class
class _Partitions:
    SCHEMA: ClassVar = Schema(
        1,
        (Field("topic", structures.STRING), Field("partitions", structures.array(structures.INT32))),
        flexible_from=FLEXIBLE_VERSION,
    )
    topic: TopicName
    partitions: tuple[PartitionIndex, ...]


def _partitions_kind() -> Kind:
    """Return the kind of a structure that is encoded in the version of the structure that contains it."""

    def read(data: Buffer, position: int) -> tuple[_Partitions, int]:
        return structures.read_fields(_Partitions, data, position, version=FLEXIBLE_VERSION)

    def read_plain(data: Buffer, position: int) -> tuple[_Partitions, int]:
        return structures.read_fields(_Partitions, data, position, version=PLAIN_VERSION)

    def write(out: bytearray, value: _Partitions) -> None:
        structures.write_fields(out, value, version=FLEXIBLE_VERSION)

    def write_plain(out: bytearray, value: _Partitions) -> None:
        structures.write_fields(out, value, version=PLAIN_VERSION)

    return Kind(read, write, read_plain, write_plain)


@value_class(kw_only=True)
class _Value:
    """Tag 3 is that of two-phase commits (KIP-939), which are not supported."""

    SCHEMA: ClassVar = Schema(
        1,
        (
            Field("producer_id", structures.INT64),
            Field("previous_producer_id", structures.INT64, since=1, tag=0),
            Field("next_producer_id", structures.INT64, since=1, tag=1),
            Field("producer_epoch", structures.INT16),
            Field("timeout_ms", structures.INT32),
            Field("state", structures.INT8),
            Field("topics", structures.array(_partitions_kind())),
            Field("update_ms", structures.INT64),
            Field("start_ms", structures.INT64),
            Field("client_version", structures.INT16, since=1, tag=2),
        ),
        flexible_from=FLEXIBLE_VERSION,
    )
    producer_id: ProducerId
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: int
    topics: tuple[_Partitions, ...] | None
    update_ms: TimestampMs
    start_ms: TimestampMs
    client_version: int = 0


def encode_record(record: TransactionRecord, *, version: int = FLEXIBLE_VERSION) -> tuple[bytes, bytes | None]:
    """Return the record's key, and its value in `version`."""
    key = _INT16.pack(_KEY_VERSION) + structures.encode(_Key(record.transactional_id))
    if record.transaction is None:
        return key, None
    return key, _INT16.pack(version) + structures.encode(_to_value(record.transaction), version=version)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record, or None if its kind is unknown. Raises CorruptionError if it is malformed."""
    if len(key) < _INT16.size or (value is not None and len(value) < _INT16.size):
        raise CorruptionError("a transaction record is truncated")
    if _INT16.unpack_from(key)[0] != _KEY_VERSION:
        return None
    transactional_id = structures.decode(_Key, key, _INT16.size).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = _INT16.unpack_from(value)[0]
    decoded = structures.decode(_Value, value, _INT16.size, version=version)
    return TransactionRecord(transactional_id, _to_transaction(transactional_id, decoded))


def _to_value(transaction: Transaction) -> _Value:
    return _Value(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        state=transaction.state,
        topics=None if transaction.state is State.EMPTY else tuple(_by_topic(transaction.partitions)),
        update_ms=transaction.update_ms,
        start_ms=transaction.start_ms,
        client_version=transaction.client_version,
    )


def _to_transaction(transactional_id: str, value: _Value) -> Transaction:
    if value.state not in _STATES:
        raise CorruptionError(f"transaction {transactional_id} is in the unknown state {value.state}")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        state=State(value.state),
        partitions=frozenset(
            TopicPartition(each.topic, index) for each in value.topics or () for index in each.partitions or ()
        ),
        update_ms=value.update_ms,
        start_ms=value.start_ms,
        client_version=value.client_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[_Partitions]:
    return (_Partitions(topic, tuple(indexes)) for topic, indexes in indexes_by_topic(partitions).items())
