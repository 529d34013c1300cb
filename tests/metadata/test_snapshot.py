"""Images as records: what a snapshot holds gives an equal image."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.codes import ResourceType
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage
from rookery.metadata.loader import MetadataLoader
from rookery.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from rookery.metadata.snapshot import snapshot_records, snapshot_values
from tests.metadata.replay import replay
from tests.metadata.test_image import STEPS, A, B, Model
from tests.metadata.test_security_image import SECURITY

FULL: tuple[MetadataRecord, ...] = (
    FeatureLevelRecord("group.version", 0),
    FeatureLevelRecord("metadata.version", 30),
    RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=A,
        broker_epoch=7,
        endpoints=(BrokerEndpoint("PLAIN", "h", 9092),),
        features=(BrokerFeature("metadata.version", 22, 22),),
        rack="r",
        fenced=False,
        in_controlled_shutdown=True,
        log_directories=(B,),
        cordoned_directories=(B,),
    ),
    RegisterControllerRecord(
        controller_id=1, incarnation_id=B, endpoints=(BrokerEndpoint("CONTROLLER", "h", 9093),), features=()
    ),
    TopicRecord("orders", A),
    PartitionRecord(partition_id=0, topic_id=A, replicas=(1, 2), isr=(1,), leader=1, directories=(B, UUID(int=0))),
    PartitionChangeRecord(partition_id=0, topic_id=A, leader=2, adding_replicas=(3,), removing_replicas=(1,)),
    PartitionChangeRecord(partition_id=0, topic_id=A, elr=(2,), last_known_elr=(1,), leader_recovery_state=1),
    TopicRecord("empty", B),
    ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "1"),
    ConfigRecord(ResourceType.BROKER, "", "log.cleaner.threads", "2"),
    ProducerIdsRecord(1, 7, 3000),
    *SECURITY,
)


def through_a_snapshot(image: ClusterImage) -> ClusterImage:
    loader = MetadataLoader()
    return replay(loader, [], snapshot=snapshot_values(image), snapshot_end=image.offset + 1).image


def test_every_kind_of_thing_is_in_it() -> None:
    image, _ = EMPTY_IMAGE.apply(FULL, last_offset=41)
    assert all((image.acls, image.scram, image.client_quotas, image.tokens))
    assert through_a_snapshot(image) == image


def test_the_empty_image_has_no_records() -> None:
    assert list(snapshot_records(EMPTY_IMAGE)) == []
    assert through_a_snapshot(EMPTY_IMAGE) == EMPTY_IMAGE


def test_the_metadata_version_comes_first() -> None:
    image, _ = EMPTY_IMAGE.apply(FULL)
    first, second, *_ = snapshot_records(image)
    assert first == FeatureLevelRecord("metadata.version", 30)
    assert second == FeatureLevelRecord("group.version", 0)


@given(STEPS, st.integers(0, 100))
def test_a_snapshot_and_the_rest_of_the_log_give_what_the_whole_log_gives(
    steps: list[tuple[str, object]], cut: int
) -> None:
    model = Model()
    for step in steps:
        model.step(*step)
    records = model.records
    cut = min(cut, len(records))
    values = [[encode_record(record)] for record in records]
    whole, partial = MetadataLoader(), MetadataLoader()
    replay(whole, enumerate(values))
    head, _ = EMPTY_IMAGE.apply(records[:cut], last_offset=cut - 1)
    tail = [(offset, value) for offset, value in enumerate(values) if offset >= cut]
    replay(partial, tail, snapshot=snapshot_values(head), snapshot_end=cut)
    assert partial.image == whole.image
    assert through_a_snapshot(whole.image) == whole.image
    removed = {record.topic_id for record in records[cut:] if isinstance(record, RemoveTopicRecord)}
    assert partial.removed_topics == {topic_id: whole.removed_topics[topic_id] for topic_id in removed}


def test_a_level_of_zero_and_an_unknown_offset_stay() -> None:
    image, _ = EMPTY_IMAGE.apply([FeatureLevelRecord("group.version", 0)])
    assert replace(through_a_snapshot(image), offset=-1) == image


def test_a_snapshot_has_the_record_versions_of_its_level() -> None:
    image, _ = EMPTY_IMAGE.apply([FeatureLevelRecord("metadata.version", 22), TopicRecord("orders", A)])
    image, _ = image.apply([PartitionRecord(partition_id=0, topic_id=A, replicas=(1,), isr=(1,), leader=1)])
    assert [(value[1], value[2]) for value in snapshot_values(image)] == [(12, 0), (2, 0), (3, 1)], "types, versions"
