"""CreateTopics, DeleteTopics, CreatePartitions: every error code, and the records of valid requests."""

from uuid import UUID

import pytest

from rookery.base.codes import ConfigSource
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.controller.topics import decide_create_partitions, decide_create_topics, decide_delete_topics
from rookery.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from rookery.metadata.requests import OK, DeletedTopic, MorePartitions, NewTopic, Outcome
from tests.controller.cluster import ONE, THREE, broker, carry_out, context, image_of

FIRST_ID = UUID(int=1)
FENCED = image_of(broker(1, fenced=True))
WITH_A = carry_out(ONE, decide_create_topics(ONE, [NewTopic(name="a.b", partition_count=2)], context()))
A_ID = WITH_A.topics["a.b"].topic_id


def partition_record(index: int, replicas: tuple[int, ...], topic_id: UUID = FIRST_ID) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        directories=(UUID(int=0),) * len(replicas),
    )


def test_create() -> None:
    topic = NewTopic(name="t", partition_count=2, replication_factor=1, configs=(("retention.ms", "5"),))
    decision = decide_create_topics(ONE, [topic], context())
    assert decision.records == (
        TopicRecord("t", UUID(int=1)),
        ConfigRecord(2, "t", "retention.ms", "5"),
        partition_record(0, (1,)),
        partition_record(1, (1,)),
    )
    (result,) = decision.results
    assert result[:5] == ("t", OK, UUID(int=1), 2, 1)
    (entry,) = [entry for entry in result.configs if entry.name == "retention.ms"]
    assert (entry.value, entry.source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)


def test_create_with_the_brokers_defaults() -> None:
    static = {"num.partitions": "3", "default.replication.factor": "2"}
    decision = decide_create_topics(THREE, [NewTopic(name="t")], context(static, placement_start=1))
    assert decision.records[1:] == (
        partition_record(0, (2, 3)),
        partition_record(1, (3, 1)),
        partition_record(2, (1, 2)),
    )


def test_create_with_an_assignment() -> None:
    topic = NewTopic(name="t", assignments=((1, (3, 1)), (0, (2, 3))))
    decision = decide_create_topics(THREE, [topic], context())
    assert decision.records[1:] == (partition_record(0, (2, 3)), partition_record(1, (3, 1)))
    assert decision.results[0][2:5] == (UUID(int=1), 2, 2)


def test_fenced_brokers_are_not_in_sync() -> None:
    image = image_of(broker(1), broker(2, fenced=True))
    decision = decide_create_topics(image, [NewTopic(name="t", assignments=((0, (2, 1)),))], context())
    record = decision.records[1]
    assert isinstance(record, PartitionRecord)
    assert (record.replicas, record.isr, record.leader) == ((2, 1), (1,), 1)


def test_validate_only_writes_nothing() -> None:
    topics = [NewTopic(name="t"), NewTopic(name="a.b")]
    decision = decide_create_topics(WITH_A, topics, context(), validate_only=True)
    assert decision.records == ()
    assert [result.outcome.code for result in decision.results] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partition_count=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partition_count=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", partition_count=1, assignments=((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", replication_factor=1, assignments=((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments=((0, (9,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments=((0, (1,)), (0, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", configs=(("nope", "1"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs=(("retention.ms", "x"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs=(("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topics(topic: NewTopic, code: ErrorCode) -> None:
    good = NewTopic(name="good")
    decision = decide_create_topics(WITH_A, [topic, good], context())
    assert [result.outcome.code for result in decision.results] == [code, ErrorCode.NONE]
    assert decision.results[0].outcome.message
    assert len(decision.records) == 2, "the other topic is created"


def test_uneven_assignments() -> None:
    topic = NewTopic(name="t", assignments=((0, (1, 2)), (1, (1,))))
    (result,) = decide_create_topics(THREE, [topic], context()).results
    assert result.outcome.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(name="t"), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", assignments=((0, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_no_broker_can_lead(topic: NewTopic, code: ErrorCode) -> None:
    (result,) = decide_create_topics(FENCED, [topic], context()).results
    assert result.outcome.code is code


def test_names_that_collide_within_one_request() -> None:
    topics = [NewTopic(name=name) for name in ("t", "u.v", "t", "u_v", "w")]
    decision = decide_create_topics(ONE, topics, context())
    assert [(result.name, result.outcome.code) for result in decision.results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u.v", ErrorCode.NONE),
        ("u_v", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("w", ErrorCode.NONE),
    ]


def test_too_many_topics_in_one_request() -> None:
    topics = [NewTopic(name=f"t{i}", partition_count=6000) for i in range(2)]
    decision = decide_create_topics(ONE, topics, context())
    assert decision.records == ()
    assert {result.outcome.code for result in decision.results} == {ErrorCode.POLICY_VIOLATION}


def test_delete_by_name_and_by_id() -> None:
    for item in (("a.b", NO_TOPIC_ID), (None, A_ID)):
        decision = decide_delete_topics(WITH_A, [item], context())
        assert decision.records == (RemoveTopicRecord(A_ID),)
        assert decision.results == [DeletedTopic("a.b", A_ID, OK)]


@pytest.mark.parametrize(
    ("items", "codes"),
    [
        ([("nope", NO_TOPIC_ID)], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([(None, UUID(int=77))], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([(None, NO_TOPIC_ID)], [ErrorCode.INVALID_REQUEST]),
        ([("a.b", A_ID)], [ErrorCode.INVALID_REQUEST]),
        ([("a.b", NO_TOPIC_ID), ("a.b", NO_TOPIC_ID)], [ErrorCode.INVALID_REQUEST]),
        ([(None, A_ID), (None, A_ID)], [ErrorCode.INVALID_REQUEST]),
        ([("a.b", NO_TOPIC_ID), (None, A_ID)], [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]),
    ],
)
def test_invalid_deletions(items: list[tuple[str | None, UUID]], codes: list[ErrorCode]) -> None:
    decision = decide_delete_topics(WITH_A, items, context())
    assert [result.outcome.code for result in decision.results] == codes
    assert len(decision.records) == codes.count(ErrorCode.NONE)


def test_deletion_may_be_disabled() -> None:
    decision = decide_delete_topics(WITH_A, [("a.b", NO_TOPIC_ID)], context({"delete.topic.enable": "false"}))
    assert decision.records == ()
    assert decision.results == [DeletedTopic("a.b", NO_TOPIC_ID, Outcome(ErrorCode.TOPIC_DELETION_DISABLED))]


def test_more_partitions() -> None:
    decision = decide_create_partitions(WITH_A, [MorePartitions("a.b", 4)], context())
    assert decision.records == (partition_record(2, (1,), A_ID), partition_record(3, (1,), A_ID))
    decision = decide_create_partitions(WITH_A, [MorePartitions("a.b", 3, ((1,),))], context())
    assert decision.records == (partition_record(2, (1,), A_ID),)
    decision = decide_create_partitions(WITH_A, [MorePartitions("a.b", 4)], context(), validate_only=True)
    assert decision.records == ()
    assert [result.outcome for result in decision.results] == [OK]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (MorePartitions("nope", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("a.b", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a.b", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a.b", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a.b", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (MorePartitions("a.b", 4, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a.b", 3, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a.b", 3, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a.b", 3, ((1, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a.b", 3, ((),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_new_partitions(request_: MorePartitions, code: ErrorCode) -> None:
    decision = decide_create_partitions(WITH_A, [request_], context())
    assert decision.records == ()
    assert [result.outcome.code for result in decision.results] == [code]


def test_a_topic_named_twice_gets_no_partitions() -> None:
    decision = decide_create_partitions(WITH_A, [MorePartitions("a.b", 3), MorePartitions("a.b", 4)], context())
    assert decision.records == ()
    assert [(result.name, result.outcome.code) for result in decision.results] == [("a.b", ErrorCode.INVALID_REQUEST)]


def test_too_many_partitions_in_one_request() -> None:
    image = carry_out(WITH_A, decide_create_topics(WITH_A, [NewTopic(name="c")], context(first_id=2)))
    requests = [MorePartitions("a.b", 6000), MorePartitions("c", 6000)]
    decision = decide_create_partitions(image, requests, context())
    assert decision.records == ()
    assert {result.outcome.code for result in decision.results} == {ErrorCode.POLICY_VIOLATION}
