"""Metadata records, compared with bytes that the serialiser of Kafka 4.3 wrote."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError
from rookery.metadata.records import (
    RECORD_TYPES,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)

TOPIC_ID = UUID(int=(1 << 64) + 2)
DIRECTORY = UUID(int=(3 << 64) + 4)

GOLDEN: list[tuple[MetadataRecord, str]] = [
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=TOPIC_ID,
            broker_epoch=5,
            endpoints=(BrokerEndpoint("PLAINTEXT", "localhost", 9092),),
            features=(BrokerFeature("metadata.version", 22, 22),),
            rack="r1",
            fenced=False,
            log_directories=(DIRECTORY,),
        ),
        "0100040000000100000000000000000100000000000000020000000000000005020a504c41494e544558540a6c6f63616c686f73742384"
        "00000002116d657461646174612e76657273696f6e001600160003723100000100110200000000000000030000000000000004",
    ),
    (
        RegisterBrokerRecord(
            broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=5, endpoints=(), cordoned_directories=(DIRECTORY,)
        ),
        "010004000000010000000000000000010000000000000002000000000000000501010001000101110200000000000000030000000000000004",
    ),
    (UnregisterBrokerRecord(1, 5), "01010000000001000000000000000500"),
    (TopicRecord("orders", TOPIC_ID), "010200076f72646572730000000000000001000000000000000200"),
    (
        PartitionRecord(
            partition_id=2,
            topic_id=TOPIC_ID,
            replicas=(1, 2),
            isr=(1,),
            adding_replicas=(2,),
            leader=1,
            leader_recovery_state=1,
            leader_epoch=7,
            partition_epoch=9,
            directories=(DIRECTORY, UUID(int=0)),
            elr=(2,),
            last_known_elr=(1,),
        ),
        "010302000000020000000000000001000000000000000203000000010000000202000000010102000000020000000100000007000000"
        "09030000000000000003000000000000000400000000000000000000000000000000030001010105020000000202050200000001",
    ),
    (
        ConfigRecord(2, "orders", "retention.ms", "1000"),
        "01040002076f72646572730d726574656e74696f6e2e6d73053130303000",
    ),
    (ConfigRecord(4, "", "log.retention.ms", None), "0104000401116c6f672e726574656e74696f6e2e6d730000"),
    (
        PartitionChangeRecord(
            partition_id=2,
            topic_id=TOPIC_ID,
            isr=(1, 2),
            leader=2,
            replicas=(2, 1),
            removing_replicas=(1,),
            adding_replicas=(),
            leader_recovery_state=0,
            directories=(DIRECTORY, DIRECTORY),
            elr=(2,),
            last_known_elr=(),
        ),
        "01050200000002000000000000000100000000000000020900090300000001000000020104000000020209030000000200000001030502"
        "0000000104010105010006050200000002070101082103000000000000000300000000000000040000000000000003000000000000"
        "0004",
    ),
    (
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, leader=1),
        "010502000000020000000000000001000000000000000201010400000001",
    ),
    (FenceBrokerRecord(1, 5), "01070000000001000000000000000500"),
    (UnfenceBrokerRecord(1, 5), "01080000000001000000000000000500"),
    (RemoveTopicRecord(TOPIC_ID), "0109000000000000000001000000000000000200"),
    (FeatureLevelRecord("metadata.version", 22), "010c00116d657461646174612e76657273696f6e001600"),
    (ProducerIdsRecord(1, 5, 1000), "010f0000000001000000000000000500000000000003e800"),
    (
        BrokerRegistrationChangeRecord(
            broker_id=1,
            broker_epoch=5,
            fenced=-1,
            in_controlled_shutdown=1,
            log_directories=(DIRECTORY,),
            cordoned_directories=(DIRECTORY,),
        ),
        "011103000000010000000000000005040001ff0101010211020000000000000003000000000000000403110200000000000000030000"
        "000000000004",
    ),
    (
        RegisterControllerRecord(
            controller_id=3,
            incarnation_id=TOPIC_ID,
            endpoints=(BrokerEndpoint("CONTROLLER", "localhost", 9093),),
            features=(BrokerFeature("kraft.version", 0, 1),),
        ),
        "011b00000000030000000000000001000000000000000200020b434f4e54524f4c4c45520a6c6f63616c686f73742385000000020e6b"
        "726166742e76657273696f6e000000010000",
    ),
    (ClearElrRecord("orders"), "011c00076f726465727300"),
    (NoOpRecord(), "01140000"),
    (
        AccessControlEntryRecord(
            id=TOPIC_ID,
            resource_type=2,
            resource_name="orders",
            pattern_type=4,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=2,
        ),
        "0112000000000000000001000000000000000202076f7264657273040b557365723a616c696365022a030200",
    ),
    (RemoveAccessControlEntryRecord(TOPIC_ID), "0113000000000000000001000000000000000200"),
    (
        UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"\1\2\3", stored_key=b"\4\5", server_key=b"\6", iterations=4096
        ),
        "010b0006616c696365010401020303040502060000100000",
    ),
    (RemoveUserScramCredentialRecord("alice", 2), "01160006616c6963650200"),
    (
        ClientQuotaRecord(
            entity=(QuotaEntityPart("user", "alice"), QuotaEntityPart("client-id", None)),
            key="producer_byte_rate",
            value=1024.5,
        ),
        "010e0003057573657206616c696365000a636c69656e742d696400001370726f64756365725f627974655f7261746540900200000000"
        "000000",
    ),
    (
        ClientQuotaRecord(entity=(QuotaEntityPart("ip", "10.0.0.1"),), key="connection_creation_rate", remove=True),
        "010e00020369700931302e302e302e310019636f6e6e656374696f6e5f6372656174696f6e5f7261746500000000000000000100",
    ),
    (
        DelegationTokenRecord(
            owner="User:alice",
            requester="User:bob",
            renewers=("User:carol", "User:dave"),
            issue_timestamp=1000,
            max_timestamp=3000,
            expiration_timestamp=2000,
            token_id="AAAAAAAAAAEAAAAAAAAAAg",
        ),
        "010a000b557365723a616c69636509557365723a626f62030b557365723a6361726f6c0a557365723a6461766500000000000003e800"
        "00000000000bb800000000000007d0174141414141414141414145414141414141414141416700",
    ),
    (
        RemoveDelegationTokenRecord("AAAAAAAAAAEAAAAAAAAAAg"),
        "011a00174141414141414141414145414141414141414141416700",
    ),
]

OLDER: list[tuple[str, MetadataRecord]] = [
    (
        "010000000000010000000000000001000000000000000200000000000000050101000000",
        RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=5, endpoints=(), fenced=False),
    ),
    (
        "010300000000020000000000000001000000000000000202000000010200000001010100000001000000070000000900",
        PartitionRecord(
            partition_id=2, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1, leader_epoch=7, partition_epoch=9
        ),
    ),
]


# The records of a cluster whose `metadata.version` is 22.
AT_LEVEL_22: list[tuple[MetadataRecord, str]] = [
    (
        RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=5, endpoints=()),
        "0100030000000100000000000000000100000000000000020000000000000005010100010000",
    ),
    (
        PartitionRecord(
            partition_id=2, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1, leader_epoch=7, partition_epoch=9
        ),
        "01030100000002000000000000000100000000000000020200000001020000000101010000000100000007000000090100",
    ),
    (
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, leader=1),
        "010501000000020000000000000001000000000000000201010400000001",
    ),
    (
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=5, fenced=-1, in_controlled_shutdown=1, log_directories=(DIRECTORY,)
        ),
        "011102000000010000000000000005030001ff01010102110200000000000000030000000000000004",
    ),
    (NoOpRecord(), "01140000"),
]


@pytest.mark.parametrize(("record", "golden"), AT_LEVEL_22)
def test_a_cluster_of_a_lower_level_gets_older_versions(record: MetadataRecord, golden: str) -> None:
    assert encode_record(record, metadata_version=22).hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record
    assert encode_record(record, metadata_version=30) == encode_record(record)


def test_every_type_has_golden_bytes() -> None:
    assert {type(record) for record, _ in GOLDEN} == set(RECORD_TYPES)


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_golden_bytes(record: MetadataRecord, golden: str) -> None:
    assert encode_record(record).hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record


@pytest.mark.parametrize(("data", "record"), OLDER)
def test_older_versions_are_read(data: str, record: MetadataRecord) -> None:
    assert decode_record(bytes.fromhex(data)) == record


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_cut_off_or_longer_bytes_are_corruption(record: MetadataRecord, golden: str) -> None:
    data = bytes.fromhex(golden)
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            decode_record(data[:size])
    with pytest.raises(CorruptionError, match="1 bytes are left"):
        decode_record(data + b"\0")


def test_unknown_tags_are_skipped() -> None:
    assert decode_record(bytes.fromhex("01140001630201ff")) == NoOpRecord()


@pytest.mark.parametrize(
    "data",
    ["001400", "02140000", "01630000", "01140100", "010201076f726465727300"],
    ids=["frame 0", "frame 2", "type 99", "version 1 of a no-op", "version 1 of a topic"],
)
def test_unknown_kinds_are_corruption(data: str) -> None:
    with pytest.raises(CorruptionError):
        decode_record(bytes.fromhex(data))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_corruption(data: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        decode_record(data)


def test_equal_values_of_different_records_share_one_object() -> None:
    """Ten thousand partitions have few different topic ids and replica lists."""
    first, second = (
        decode_record(
            encode_record(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=(1, 2),
                    isr=(1, 2),
                    leader=1,
                    directories=(DIRECTORY, DIRECTORY),
                )
            )
        )
        for index in (0, 1)
    )
    assert isinstance(first, PartitionRecord)
    assert isinstance(second, PartitionRecord)
    assert first.topic_id is second.topic_id
    assert first.replicas is second.replicas
    assert first.directories is second.directories
