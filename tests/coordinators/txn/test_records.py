"""The records' bytes. The golden ones were written by Apache Kafka 4.3.1's own serializer."""

import pytest

from rookery.base.errors import CorruptionError
from rookery.base.types import TopicPartition
from rookery.coordinators.txn.records import TransactionRecord, decode_record, encode_record
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import Transaction

PARTITIONS = frozenset({TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)})
EMPTY = Transaction(transactional_id="tx", producer_id=7, producer_epoch=3, timeout_ms=60_000, update_ms=2000)
ONGOING = Transaction(
    transactional_id="tx",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=PARTITIONS,
    update_ms=2000,
    start_ms=1000,
)
PREPARED = Transaction(
    transactional_id="tx",
    producer_id=7,
    producer_epoch=32767,
    previous_producer_id=6,
    next_producer_id=8,
    timeout_ms=60_000,
    state=State.PREPARE_COMMIT,
    partitions=PARTITIONS,
    update_ms=2000,
    start_ms=1000,
    client_version=2,
)
COMPLETE = Transaction(
    transactional_id="tx",
    producer_id=8,
    producer_epoch=0,
    previous_producer_id=7,
    timeout_ms=60_000,
    state=State.COMPLETE_COMMIT,
    update_ms=2000,
    start_ms=1000,
    client_version=2,
)

KEY = "0000 0002 7478"
ONGOING_PLAIN = (
    "0000 0000000000000007 0003 0000ea60 01 00000002 0001 74 00000002 00000000 00000002 0001 75 00000001 00000001"
    " 00000000000007d0 00000000000003e8"
)
ONGOING_FLEXIBLE = (
    "0001 0000000000000007 0003 0000ea60 01 03 02 74 03 00000000 00000002 00 02 75 02 00000001 00"
    " 00000000000007d0 00000000000003e8 00"
)
PREPARED_FLEXIBLE = (
    "0001 0000000000000007 7fff 0000ea60 02 03 02 74 03 00000000 00000002 00 02 75 02 00000001 00"
    " 00000000000007d0 00000000000003e8 03 00 08 0000000000000006 01 08 0000000000000008 02 02 0002"
)


@pytest.mark.parametrize(
    ("transaction", "version", "value"),
    [
        (EMPTY, 0, "0000 0000000000000007 0003 0000ea60 00 ffffffff 00000000000007d0 ffffffffffffffff"),
        (EMPTY, 1, "0001 0000000000000007 0003 0000ea60 00 00 00000000000007d0 ffffffffffffffff 00"),
        (ONGOING, 0, ONGOING_PLAIN),
        (ONGOING, 1, ONGOING_FLEXIBLE),
        (PREPARED, 1, PREPARED_FLEXIBLE),
        (
            COMPLETE,
            1,
            "0001 0000000000000008 0000 0000ea60 04 01 00000000000007d0 00000000000003e8"
            " 02 00 08 0000000000000007 02 02 0002",
        ),
        (None, 1, None),
    ],
)
def test_records_have_the_bytes_of_kafka(transaction: Transaction | None, version: int, value: str | None) -> None:
    record = TransactionRecord("tx", transaction)
    raw = bytes.fromhex(KEY), None if value is None else bytes.fromhex(value)
    assert encode_record(record, version=version) == raw
    assert decode_record(*raw) == record


def test_fields_of_two_phase_commits_are_ignored() -> None:
    value = bytes.fromhex(ONGOING_FLEXIBLE[:-2] + "01 03 02 0005")
    assert decode_record(bytes.fromhex(KEY), value) == TransactionRecord("tx", ONGOING)


def test_an_empty_list_of_partitions_is_none() -> None:
    value = bytes.fromhex("0000 0000000000000007 0003 0000ea60 00 00000000 00000000000007d0 ffffffffffffffff")
    assert decode_record(bytes.fromhex(KEY), value) == TransactionRecord("tx", EMPTY)


def test_records_of_unknown_kinds_are_skipped() -> None:
    assert decode_record(bytes.fromhex("0001 0002 7478"), b"\x00\x00whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("00", None),
        ("0000 0003 7478", None),
        (KEY + "00", None),
        (KEY, "00"),
        (KEY, "0002" + ONGOING_FLEXIBLE[4:]),
        (KEY, "ffff" + ONGOING_FLEXIBLE[4:]),
        (KEY, ONGOING_PLAIN[:-2]),
        (KEY, ONGOING_PLAIN + "00"),
        (KEY, "0000 0000000000000007 0003 0000ea60 07 00000000 00000000000007d0 ffffffffffffffff"),
        (KEY, "0000 0000000000000007 0003 0000ea60 ff 00000000 00000000000007d0 ffffffffffffffff"),
    ],
)
def test_malformed_records_are_corruption(key: str, value: str | None) -> None:
    with pytest.raises(CorruptionError):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
