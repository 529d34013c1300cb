"""The records' bytes. The golden ones were written by hand from Kafka's message definitions, field by field."""

import pytest

from rookery.base.errors import CorruptionError
from rookery.coordinators.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
    decode_record,
    encode_record,
)

COMMIT = GroupRecord(
    OffsetCommitKey("g", "t", 3),
    OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp_ms=1000),
)
COMMIT_KEY = "0001 0001 67 0001 74 00000003"
COMMIT_VALUE = "0003 000000000000002a 00000007 0001 6d 00000000000003e8"

EXPIRING = GroupRecord(
    COMMIT.key, OffsetCommitValue(offset=42, metadata="", commit_timestamp_ms=1000, expire_timestamp_ms=2000)
)
EXPIRING_VALUE = "0001 000000000000002a 0000 00000000000003e8 00000000000007d0"

GROUP = GroupRecord(
    GroupMetadataKey("g"),
    GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol="range",
        leader="a-1",
        state_timestamp_ms=1000,
        members=(
            StoredMember(
                member_id="a-1",
                instance_id=None,
                client_id="a",
                client_host="/h",
                rebalance_timeout_ms=256,
                session_timeout_ms=512,
                subscription=b"\x01",
                assignment=b"\x02\x03",
            ),
        ),
    ),
)
GROUP_KEY = "0002 0001 67"
GROUP_VALUE = (
    "0003 0008 636f6e73756d6572 00000002 0005 72616e6765 0003 612d31 00000000000003e8"
    " 00000001 0003 612d31 ffff 0001 61 0002 2f68 00000100 00000200 00000001 01 00000002 0203"
)
EMPTY = GroupRecord(
    GroupMetadataKey("g"),
    GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, state_timestamp_ms=-1),
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (COMMIT, COMMIT_KEY, COMMIT_VALUE),
        (EXPIRING, COMMIT_KEY, EXPIRING_VALUE),
        (GROUP, GROUP_KEY, GROUP_VALUE),
        (EMPTY, GROUP_KEY, "0003 0000 00000000 ffff ffff ffffffffffffffff 00000000"),
        (GroupRecord(GROUP.key, None), GROUP_KEY, None),
        (GroupRecord(COMMIT.key, None), COMMIT_KEY, None),
    ],
)
def test_records_have_the_bytes_of_kafka(record: GroupRecord, key: str, value: str | None) -> None:
    raw = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode_record(record) == raw
    assert decode_record(*raw) == record


def test_the_first_commit_format_is_still_read() -> None:
    key = bytes.fromhex("0000 0001 67 0001 74 00000003")
    value = bytes.fromhex("0000 000000000000002a 0001 6d 00000000000003e8")
    expected = OffsetCommitValue(offset=42, metadata="m", commit_timestamp_ms=1000)
    assert decode_record(key, value) == GroupRecord(COMMIT.key, expected)


def test_the_flexible_commit_format_is_read() -> None:
    value = bytes.fromhex("0004 000000000000002a 00000007 02 6d 00000000000003e8 00")
    assert decode_record(bytes.fromhex(COMMIT_KEY), value) == COMMIT


def test_records_of_unknown_kinds_are_skipped() -> None:
    assert decode_record(bytes.fromhex("000b 0001 67"), b"\x00\x00whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", ""),
        ("00", None),
        ("0001 0001 67", None),
        (COMMIT_KEY + "00", None),
        (COMMIT_KEY, "00"),
        (COMMIT_KEY, "0003 00"),
        (COMMIT_KEY, "0063 000000000000002a"),
        (GROUP_KEY, GROUP_VALUE[:-4]),
        (GROUP_KEY, "0002" + GROUP_VALUE[4:-2]),
    ],
)
def test_malformed_records_are_corruption(key: str, value: str | None) -> None:
    with pytest.raises(CorruptionError):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
