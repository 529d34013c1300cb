"""The cluster image: the effect of each record, the delta, and equality with a simple model."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.codes import ResourceType
from rookery.base.errors import CorruptionError
from rookery.metadata.image import (
    EMPTY_IMAGE,
    ClusterImage,
    ConfigResource,
    Delta,
    PartitionImage,
    TopicImage,
    difference,
)
from rookery.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def partition_record(topic_id: UUID, index: int) -> PartitionRecord:
    return PartitionRecord(partition_id=index, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1)


def partition(index: int, *, leader_epoch: int = 0, partition_epoch: int = 0) -> PartitionImage:
    return PartitionImage(
        index=index, replicas=(1,), isr=(1,), leader=1, leader_epoch=leader_epoch, partition_epoch=partition_epoch
    )


def broker_record(node_id: int = 1, epoch: int = 5) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id, incarnation_id=A, broker_epoch=epoch, endpoints=(BrokerEndpoint("P", "h", 1),), fenced=False
    )


def apply(image: ClusterImage, *changes: MetadataRecord) -> tuple[ClusterImage, Delta]:
    return image.apply(changes)


ONE_TOPIC, _ = apply(EMPTY_IMAGE, TopicRecord("a", A), partition_record(A, 0), partition_record(A, 1))
ONE_BROKER, _ = apply(EMPTY_IMAGE, broker_record())


def test_create_topic() -> None:
    topic = TopicImage("a", A, {0: partition(0), 1: partition(1)})
    image, delta = apply(EMPTY_IMAGE, TopicRecord("a", A), partition_record(A, 0), partition_record(A, 1))
    assert image.topics == {"a": topic}
    assert image.topic_by_id(A) == topic
    assert image.topic_by_id(B) is None
    assert image.partition_count() == 2
    assert delta.created == (topic,)
    assert not delta.deleted
    assert not delta.changed
    assert EMPTY_IMAGE.topics == {}


def test_partitions_are_added_and_changed() -> None:
    image, delta = apply(ONE_TOPIC, partition_record(A, 2), PartitionChangeRecord(partition_id=0, topic_id=A, leader=1))
    assert image.topics["a"].partitions == {
        0: partition(0, leader_epoch=1, partition_epoch=1),
        1: partition(1),
        2: partition(2),
    }
    assert delta.changed == {A: frozenset({0, 2})}
    assert not delta.created


def test_a_change_without_a_leader_keeps_its_epoch() -> None:
    change = PartitionChangeRecord(
        partition_id=0,
        topic_id=A,
        isr=(2, 1),
        replicas=(1, 2),
        adding_replicas=(2,),
        removing_replicas=(1,),
        directories=(B, C),
    )
    image, _ = apply(ONE_TOPIC, change)
    assert image.topics["a"].partitions[0] == PartitionImage(
        index=0,
        replicas=(1, 2),
        isr=(2, 1),
        adding_replicas=(2,),
        removing_replicas=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=1,
        directories=(B, C),
    )


def test_eligible_leaders_and_recovery() -> None:
    change = PartitionChangeRecord(
        partition_id=0, topic_id=A, isr=(), elr=(1,), last_known_elr=(2,), leader=-1, leader_recovery_state=1
    )
    image, _ = apply(ONE_TOPIC, change)
    changed = image.topics["a"].partitions[0]
    assert (changed.isr, changed.elr, changed.last_known_elr) == ((), (1,), (2,))
    assert (changed.leader, changed.recovery_state) == (-1, 1)
    after, delta = apply(image, PartitionChangeRecord(partition_id=0, topic_id=A, isr=(1,), leader=1))
    assert after.topics["a"].partitions[0] == replace(changed, isr=(1,), leader=1, leader_epoch=2, partition_epoch=2)
    assert delta.changed == {A: frozenset({0})}


@pytest.mark.parametrize("name", ["a", ""])
def test_eligible_leaders_are_cleared(name: str) -> None:
    image, _ = apply(ONE_TOPIC, PartitionChangeRecord(partition_id=1, topic_id=A, elr=(1,)))
    cleared, delta = apply(image, ClearElrRecord(name))
    assert cleared.topics["a"].partitions == {0: partition(0), 1: partition(1, partition_epoch=2)}
    assert delta.changed == {A: frozenset({1})}
    together, _ = apply(ONE_TOPIC, PartitionChangeRecord(partition_id=1, topic_id=A, elr=(1,)), ClearElrRecord(name))
    assert together == cleared


def test_clearing_an_unknown_topic_is_corruption() -> None:
    with pytest.raises(CorruptionError):
        apply(ONE_TOPIC, ClearElrRecord("b"))


def test_the_directory_of_a_replica() -> None:
    change = PartitionChangeRecord(partition_id=0, topic_id=A, replicas=(1, 2), directories=(B, C))
    changed = apply(ONE_TOPIC, change)[0].topics["a"].partitions[0]
    assert [changed.directory_of(node) for node in (1, 2, 3)] == [B, C, UUID(int=0)]
    assert ONE_TOPIC.topics["a"].partitions[0].directory_of(1) == UUID(int=0), "none is recorded"


def test_controllers() -> None:
    record = RegisterControllerRecord(
        controller_id=3, incarnation_id=B, endpoints=(BrokerEndpoint("CONTROLLER", "h", 1),)
    )
    image, delta = apply(ONE_BROKER, record)
    assert image.controllers[3].endpoints == (BrokerEndpoint("CONTROLLER", "h", 1),)
    assert delta.is_empty, "no component of a node follows the controllers"


def test_a_broker_reports_its_directories() -> None:
    broker = ONE_BROKER.brokers[1]
    assert broker.is_active
    assert broker.has_directory(UUID(int=0)), "an unknown directory counts as online"
    assert not broker.has_directory(B)
    change = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=5, log_directories=(B,), cordoned_directories=(B,), in_controlled_shutdown=1
    )
    changed = apply(ONE_BROKER, change)[0].brokers[1]
    assert changed.has_directory(B)
    assert changed.cordoned_directories == (B,)
    assert not changed.is_active
    again = apply(apply(ONE_BROKER, change)[0], BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5))[0]
    assert again.brokers[1] == changed, "a record without the fields changes none of them"


def test_deleting_a_topic_deletes_its_configs() -> None:
    configured, _ = apply(ONE_TOPIC, ConfigRecord(ResourceType.TOPIC, "a", "retention.ms", "1"))
    image, delta = apply(configured, RemoveTopicRecord(A))
    assert image == EMPTY_IMAGE
    assert delta.deleted == (configured.topics["a"],)
    assert delta.configs == {ConfigResource(ResourceType.TOPIC, "a")}


def test_a_topic_can_be_created_again_under_its_name() -> None:
    image, delta = apply(ONE_TOPIC, RemoveTopicRecord(A), TopicRecord("a", B), partition_record(B, 0))
    assert image.topics["a"].topic_id == B
    assert image.topic_by_id(A) is None
    assert [topic.topic_id for topic in delta.deleted] == [A]
    assert [topic.topic_id for topic in delta.created] == [B]


def test_a_topic_that_is_created_and_deleted_in_one_change_is_not_in_the_delta() -> None:
    image, delta = apply(ONE_TOPIC, TopicRecord("b", B), partition_record(B, 0), RemoveTopicRecord(B))
    assert image == ONE_TOPIC
    assert delta.is_empty


def test_configs() -> None:
    image, delta = apply(
        EMPTY_IMAGE,
        ConfigRecord(ResourceType.TOPIC, "a", "x", "1"),
        ConfigRecord(ResourceType.BROKER, "", "y", "2"),
        ConfigRecord(ResourceType.BROKER, "7", "z", "3"),
    )
    assert image.topic_config("a") == {"x": "1"}
    assert image.topic_config("b") == {}
    assert image.broker_default_config() == {"y": "2"}
    assert image.broker_config(7) == {"z": "3"}
    assert len(delta.configs) == 3
    image, delta = apply(image, ConfigRecord(ResourceType.TOPIC, "a", "x", None), ConfigRecord(4, "7", "z", "3"))
    assert image.topic_config("a") == {}
    assert ConfigResource(ResourceType.TOPIC, "a") not in image.configs
    assert delta.configs == {ConfigResource(ResourceType.TOPIC, "a")}


def test_brokers() -> None:
    image, delta = apply(ONE_BROKER, FenceBrokerRecord(1, 5))
    assert image.brokers[1].fenced
    assert delta.brokers == {1}
    image, _ = apply(image, UnfenceBrokerRecord(1, 5))
    assert image == ONE_BROKER
    image, _ = apply(
        image,
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1, in_controlled_shutdown=1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_directories=(B,)),
    )
    assert image.brokers[1] == replace(
        ONE_BROKER.brokers[1], fenced=True, in_controlled_shutdown=True, log_directories=(B,)
    )
    image, _ = apply(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert not image.brokers[1].fenced
    image, delta = apply(image, UnregisterBrokerRecord(1, 5))
    assert image == EMPTY_IMAGE
    assert delta.brokers == {1}


def test_features_and_producer_ids() -> None:
    image, delta = apply(EMPTY_IMAGE, FeatureLevelRecord("f", 2), ProducerIdsRecord(1, 5, 1000), NoOpRecord())
    assert image.features == {"f": 2}
    assert image.next_producer_id == 1000
    assert delta.features == {"f"}
    image, delta = apply(image, FeatureLevelRecord("f", 0))
    assert image.features == {"f": 0}, "switched off, not unknown"
    assert delta.features == {"f"}
    assert (image.feature_level("f"), image.feature_level("other")) == (0, 0)


def test_an_image_has_the_offset_of_its_last_record() -> None:
    assert EMPTY_IMAGE.offset == -1
    image, _ = EMPTY_IMAGE.apply([NoOpRecord()], last_offset=7)
    assert image.offset == 7
    assert image.apply([NoOpRecord()])[0].offset == 7


@pytest.mark.parametrize(
    "change",
    [
        TopicRecord("a", B),
        TopicRecord("b", A),
        RemoveTopicRecord(B),
        partition_record(B, 0),
        PartitionChangeRecord(partition_id=0, topic_id=B),
        PartitionChangeRecord(partition_id=9, topic_id=A),
        FenceBrokerRecord(1, 5),
        UnregisterBrokerRecord(1, 5),
    ],
)
def test_records_that_contradict_the_image(change: MetadataRecord) -> None:
    with pytest.raises(CorruptionError):
        apply(ONE_TOPIC, change)


def test_a_record_for_another_broker_epoch_is_rejected() -> None:
    with pytest.raises(CorruptionError):
        apply(ONE_BROKER, UnfenceBrokerRecord(1, 6))


def test_a_partition_of_a_topic_that_was_just_removed() -> None:
    with pytest.raises(CorruptionError):
        apply(ONE_TOPIC, partition_record(A, 2), RemoveTopicRecord(A), partition_record(A, 3))


def test_a_name_created_twice_in_one_call() -> None:
    with pytest.raises(CorruptionError):
        apply(EMPTY_IMAGE, TopicRecord("a", A), TopicRecord("a", B))


NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("grow"), NAMES),
        st.tuples(st.just("lead"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("config"), NAMES, st.sampled_from("xy"), st.sampled_from(["1", "2", None])),
        st.tuples(st.just("broker"), st.integers(1, 3)),
    ),
    max_size=25,
)


class Model:
    """The cluster as plain dicts, and the records that describe it."""

    def __init__(self) -> None:
        self.records: list[MetadataRecord] = []
        # name -> id, [(leader, epoch), ...]
        self.topics: dict[str, tuple[UUID, list[tuple[int, int]]]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.brokers: dict[int, int] = {}

    def step(self, kind: str, *arguments: object) -> None:
        getattr(self, f"_{kind}")(*arguments)

    def _create(self, name: str, count: int) -> None:
        if name not in self.topics:
            topic_id = UUID(int=len(self.records) + 1)
            self.topics[name] = topic_id, [(1, 0)] * count
            self.records.append(TopicRecord(name, topic_id))
            self.records += [partition_record(topic_id, index) for index in range(count)]

    def _delete(self, name: str) -> None:
        if name in self.topics:
            self.records.append(RemoveTopicRecord(self.topics.pop(name)[0]))
            self.configs.pop(name, None)

    def _grow(self, name: str) -> None:
        if name in self.topics:
            topic_id, partitions = self.topics[name]
            self.records.append(partition_record(topic_id, len(partitions)))
            partitions.append((1, 0))

    def _lead(self, name: str, leader: int) -> None:
        if name in self.topics:
            topic_id, partitions = self.topics[name]
            self.records.append(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader))
            partitions[0] = leader, partitions[0][1] + 1

    def _config(self, name: str, key: str, value: str | None) -> None:
        if name in self.topics:
            self.records.append(ConfigRecord(ResourceType.TOPIC, name, key, value))
            values = self.configs.setdefault(name, {})
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value

    def _broker(self, node_id: int) -> None:
        self.brokers[node_id] = len(self.records)
        self.records.append(broker_record(node_id, self.brokers[node_id]))

    def check(self, image: ClusterImage) -> None:
        assert {
            name: (topic.topic_id, [(part.leader, part.leader_epoch) for _, part in sorted(topic.partitions.items())])
            for name, topic in image.topics.items()
        } == self.topics
        assert image.topic_names == {topic_id: name for name, (topic_id, _) in self.topics.items()}
        assert {name: image.topic_config(name) for name in self.topics} == {
            name: self.configs.get(name, {}) for name in self.topics
        }
        assert {node: broker.broker_epoch for node, broker in image.brokers.items()} == self.brokers


@given(STEPS, st.integers(0, 100))
def test_image_equals_model(steps: list[tuple[str, object]], cut: int) -> None:
    model = Model()
    for step in steps:
        model.step(*step)
    whole, _ = EMPTY_IMAGE.apply(model.records)
    model.check(whole)
    one_by_one = EMPTY_IMAGE
    for record in model.records:
        one_by_one, _ = one_by_one.apply([record])
    assert one_by_one == whole
    first, _ = EMPTY_IMAGE.apply(model.records[:cut])
    second, delta = first.apply(model.records[cut:])
    assert second == whole
    check_delta(first, second, delta)
    assert difference(first, second) == delta
    assert difference(second, second).is_empty


def check_delta(before: ClusterImage, after: ClusterImage, delta: Delta) -> None:
    """Check that the delta has exactly the differences."""
    assert {topic.topic_id for topic in delta.created} == after.topic_names.keys() - before.topic_names.keys()
    assert {topic.topic_id for topic in delta.deleted} == before.topic_names.keys() - after.topic_names.keys()
    for topic_id in after.topic_names.keys() & before.topic_names.keys():
        old, new = before.topic_by_id(topic_id), after.topic_by_id(topic_id)
        assert old is not None
        assert new is not None
        differing = {i for i in new.partitions if old.partitions.get(i) != new.partitions[i]}
        assert delta.changed.get(topic_id, frozenset()) == differing
    resources = before.configs.keys() | after.configs.keys()
    assert delta.configs == {key for key in resources if before.configs.get(key) != after.configs.get(key)}
