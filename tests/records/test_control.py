import pytest

from rookery.base.errors import InvalidBatchError
from rookery.records.batch import check_batch, read_header, seal
from rookery.records.control import (
    ControlType,
    EndMarker,
    Marker,
    build_marker,
    control_key,
    control_type,
    read_marker,
)
from rookery.records.record import Record, build_batch


@pytest.mark.parametrize("kind", list(ControlType))
def test_type_round_trip(kind: ControlType) -> None:
    assert control_type(build_batch([Record(0, 1, control_key(kind), b"")], control=True)) == kind


def test_commit_marker_key_is_as_brokers_write_it() -> None:
    assert control_key(ControlType.COMMIT) == bytes.fromhex("0000 0001")


def test_emptied_batch_has_no_type() -> None:
    batch = build_batch([Record(0, 1, control_key(ControlType.ABORT), b"")], control=True)
    assert control_type(seal(read_header(batch)._replace(record_count=0), b"")) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_control_record_without_a_type_is_rejected(key: bytes | None) -> None:
    with pytest.raises(InvalidBatchError):
        control_type(build_batch([Record(0, 1, key, b"")], control=True))


# Producer 5 in epoch 2, coordinator epoch 3: Kafka's DumpLogSegments shows it as a COMMIT with these values.
COMMIT = bytes.fromhex(
    "0000000000000000 00000042 ffffffff 02 c3ab43b9 0030 00000000 0000018bcfe56800 0000018bcfe56800"
    "0000000000000005 0002 ffffffff 00000001"
    "20 00 00 00 08 00000001 0c 000000000003 00"
)


def test_marker_is_kafkas() -> None:
    batch = build_marker(Marker(5, 2, True, 3), 1_700_000_000_000)
    assert batch == COMMIT
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert read_marker(batch) == EndMarker(committed=True, coordinator_epoch=3)


def test_abort_marker() -> None:
    batch = build_marker(Marker(5, 2, False, 3, transaction_version=2), 1)
    assert control_type(batch) == ControlType.ABORT
    assert read_marker(batch) == EndMarker(committed=False, coordinator_epoch=3)


def test_batches_that_are_not_markers() -> None:
    assert read_marker(build_batch([Record(0, 1, control_key(ControlType.LEADER_CHANGE), b"")], control=True)) is None
    assert read_marker(seal(read_header(COMMIT)._replace(record_count=0), b"")) is None


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0"])
def test_marker_without_a_coordinator_epoch_is_rejected(value: bytes | None) -> None:
    with pytest.raises(InvalidBatchError):
        read_marker(build_batch([Record(0, 1, control_key(ControlType.ABORT), value)], control=True))


def test_later_versions_may_have_more_fields() -> None:
    batch = build_batch(
        [Record(0, 1, control_key(ControlType.COMMIT), bytes.fromhex("0001 00000003 07"))], control=True
    )
    assert read_marker(batch) == EndMarker(committed=True, coordinator_epoch=3)
