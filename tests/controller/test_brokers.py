"""Registration of brokers at each start, and new leader epochs after an unclean shutdown."""

from uuid import UUID

from rookery.controller.brokers import decide_register_broker
from rookery.controller.topics import decide_create_topics
from rookery.metadata.features import (
    GROUP_VERSION,
    GROUP_VERSION_LEVEL,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_LEVEL,
)
from rookery.metadata.image import EMPTY_IMAGE
from rookery.metadata.records import BrokerEndpoint, FeatureLevelRecord, PartitionChangeRecord, RegisterBrokerRecord
from rookery.metadata.requests import NewTopic, Registration
from tests.controller.cluster import carry_out, context

ENDPOINTS = (BrokerEndpoint("PLAINTEXT", "localhost", 9092),)


def registration(*, clean: bool = True, node_id: int = 1) -> Registration:
    return Registration(
        node_id=node_id,
        incarnation_id=UUID(int=7),
        endpoints=ENDPOINTS,
        rack="r",
        log_directories=(UUID(int=8),),
        clean=clean,
    )


def test_the_first_start_sets_the_features() -> None:
    decision = decide_register_broker(EMPTY_IMAGE, registration(), next_offset=1)
    assert decision.records[:3] == (
        FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL),
        FeatureLevelRecord(GROUP_VERSION, GROUP_VERSION_LEVEL),
        FeatureLevelRecord(TRANSACTION_VERSION, TRANSACTION_VERSION_LEVEL),
    )
    assert decision.results == 4, "the offset of the registration"
    image = carry_out(EMPTY_IMAGE, decision)
    broker = image.brokers[1]
    assert (broker.broker_epoch, broker.endpoints, broker.rack, broker.fenced) == (4, ENDPOINTS, "r", False)
    assert broker.log_directories == (UUID(int=8),)


def test_a_log_that_is_older_than_a_feature_gets_it() -> None:
    image, _ = EMPTY_IMAGE.apply([FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL)])
    decision = decide_register_broker(image, registration(), next_offset=9)
    assert decision.records[0] == FeatureLevelRecord(GROUP_VERSION, GROUP_VERSION_LEVEL)
    assert decision.results == 11
    assert carry_out(image, decision).features.keys() == {METADATA_VERSION, GROUP_VERSION, TRANSACTION_VERSION}


def test_a_feature_that_was_switched_off_stays_off() -> None:
    image = carry_out(EMPTY_IMAGE, decide_register_broker(EMPTY_IMAGE, registration(), next_offset=1))
    image, _ = image.apply([FeatureLevelRecord(TRANSACTION_VERSION, 0)])
    again = decide_register_broker(image, registration(), next_offset=9)
    assert [type(record) for record in again.records] == [RegisterBrokerRecord]
    assert carry_out(image, again).feature_level(TRANSACTION_VERSION) == 0


def test_later_starts() -> None:
    image = carry_out(EMPTY_IMAGE, decide_register_broker(EMPTY_IMAGE, registration(), next_offset=1))
    image = carry_out(image, decide_create_topics(image, [NewTopic(name="t", partition_count=2)], context()))
    clean = decide_register_broker(image, registration(), next_offset=9)
    assert [type(record) for record in clean.records] == [RegisterBrokerRecord]
    assert clean.results == 9
    unclean = decide_register_broker(image, registration(clean=False), next_offset=9)
    topic_id = image.topics["t"].topic_id
    assert unclean.records[1:] == tuple(
        PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=1) for index in (0, 1)
    )
    after = carry_out(image, unclean)
    assert [partition.leader_epoch for partition in after.topics["t"].partitions.values()] == [1, 1]
    other = decide_register_broker(image, registration(clean=False, node_id=2), next_offset=9)
    assert len(other.records) == 1, "it leads nothing"
