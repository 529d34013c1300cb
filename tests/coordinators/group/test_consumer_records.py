"""The records of groups of the new protocol: the documented bytes, and round trips of every value."""

from uuid import UUID

import pytest

from rookery.base.errors import CorruptionError
from rookery.coordinators.group.consumer_records import (
    ClassicMemberValue,
    ClassicProtocolValue,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    PartitionRacks,
    RegexKey,
    RegexValue,
    SubscribedTopic,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    TopicPartitions,
    TopicsKey,
    TopicsValue,
)
from rookery.coordinators.group.records import GroupRecord, decode_record, encode_record

TOPIC_ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
OWNED = (TopicPartitions(TOPIC_ID, (0, 2)),)
MEMBER = MemberValue(
    instance_id=None,
    rack_id="east",
    client_id="client",
    client_host="/127.0.0.1",
    topic_names=("orders",),
    topic_regex=None,
    rebalance_timeout_ms=300_000,
    server_assignor="range",
)
CLASSIC = MemberValue(
    instance_id="one",
    rack_id=None,
    client_id="client",
    client_host="/127.0.0.1",
    topic_names=(),
    topic_regex="o.*",
    rebalance_timeout_ms=-1,
    server_assignor=None,
    classic=ClassicMemberValue(10_000, (ClassicProtocolValue("range", b"\x00\x01"),)),
)
CURRENT = CurrentValue(member_epoch=5, previous_member_epoch=4, state=0, assigned=OWNED, pending_revocation=())

RECORDS = [
    GroupRecord(GroupKey("g"), GroupValue(7)),
    GroupRecord(TopicsKey("g"), TopicsValue((SubscribedTopic(TOPIC_ID, "orders", 4),))),
    GroupRecord(TopicsKey("g"), TopicsValue((SubscribedTopic(TOPIC_ID, "o", 1, (PartitionRacks(0, ("east",)),)),))),
    GroupRecord(MemberKey("g", "a-1"), MEMBER),
    GroupRecord(MemberKey("g", "a-1"), CLASSIC),
    GroupRecord(TargetEpochKey("g"), TargetEpochValue(7)),
    GroupRecord(TargetKey("g", "a-1"), TargetValue(OWNED)),
    GroupRecord(CurrentKey("g", "a-1"), CURRENT),
    GroupRecord(RegexKey("g", "o.*"), RegexValue(("orders",), 0, 1000)),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record.value).__name__)
def test_records_round_trip(record: GroupRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(key, value) == record
    assert decode_record(key, None) == GroupRecord(record.key, None)
    assert value is not None
    for end in range(2, len(value)):
        with pytest.raises(CorruptionError):
            decode_record(key, value[:end])


def test_the_documented_bytes() -> None:
    key, value = encode_record(GroupRecord(CurrentKey("g", "a-1"), CURRENT))
    assert key == bytes.fromhex("0008 0001 67 0003 612d31")
    assert value == bytes.fromhex(
        "0000 00000005 00000004 00 02 0102030405060708090a0b0c0d0e0f10 03 00000000 00000002 00 01 00"
    )


def test_a_group_record_of_a_newer_kafka_is_read() -> None:
    """Kafka 4.1 adds a hash of the topics as a tagged field, which is ignored here."""
    value = bytes.fromhex("0000 00000007 01 00 08 0000000000000001")
    assert decode_record(encode_record(RECORDS[0])[0], value) == RECORDS[0]
