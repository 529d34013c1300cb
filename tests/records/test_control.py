import pytest

from rookery.base.errors import InvalidBatchError
from rookery.records.batch import read_header, seal
from rookery.records.control import ControlType, control_key, control_type
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
def test_control_record_without_a_type_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidBatchError):
        control_type(build_batch([Record(0, 1, key, b"")], control=True))
