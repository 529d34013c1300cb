"""Every administrative request in every version, against a scripted broker."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from rookery.base.codes import ConfigOperation, ConfigSource, ResourceType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import (
    EARLIEST,
    Admin,
    ConfigChange,
    ConfigResource,
    DeletedRecords,
    EpochEnd,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    Outcome,
)
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.fake_broker import NODE_ID, Responder, topic_id

Result = TypeVar("Result")

TP = TopicPartition("t", 0)
TOPIC = ConfigResource(ResourceType.TOPIC, "t")


def call(
    api_key: ApiKey, answer: Responder, work: Callable[[Admin], Awaitable[Result]], version: int | None = None
) -> tuple[Result, list[Message]]:
    """Return the result of `work`, and the requests of this API that the broker received."""
    result, broker = run_with({api_key: answer}, work, **({} if version is None else {api_key.name: version}))
    return result, broker.requests_of(api_key)


def versions_of(api_key: ApiKey) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(DEFINED[api_key].minimum, DEFINED[api_key].maximum + 1))


def outcome_row(name: str, error: ErrorCode = ErrorCode.NONE) -> Message:
    return Message(
        name=name,
        topic_id=topic_id(name),
        error_code=error,
        error_message=None,
        num_partitions=1,
        replication_factor=1,
        configs=None,
    )


@versions_of(ApiKey.CREATE_TOPICS)
def test_create_topics(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        rows = [outcome_row("t"), outcome_row("u", ErrorCode.TOPIC_ALREADY_EXISTS)]
        return Message(throttle_time_ms=0, topics=rows)

    new = [
        NewTopic(name="t", partitions=3, replication_factor=1, configs={"retention.ms": "5"}),
        NewTopic(name="u", assignments={0: [7]}),
    ]
    outcomes, (request,) = call(ApiKey.CREATE_TOPICS, answer, lambda admin: admin.create_topics(new), version)
    assert [(outcome.name, outcome.error) for outcome in outcomes] == [
        ("t", ErrorCode.NONE),
        ("u", ErrorCode.TOPIC_ALREADY_EXISTS),
    ]
    first, second = request.topics
    assert (first.num_partitions, first.configs[0].value) == (3, "5")
    assert (second.num_partitions, second.assignments[0].broker_ids) == (-1, [7])


@versions_of(ApiKey.DELETE_TOPICS)
def test_delete_topics(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        return Message(throttle_time_ms=0, responses=[outcome_row("t")])

    outcomes, (request,) = call(ApiKey.DELETE_TOPICS, answer, lambda admin: admin.delete_topics(["t"]), version)
    assert outcomes == [Outcome("t", ErrorCode.NONE, None)]
    requested = [topic.name for topic in request.topics] if version >= 6 else request.topic_names
    assert requested == ["t"]


@versions_of(ApiKey.CREATE_PARTITIONS)
def test_create_partitions(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        return Message(throttle_time_ms=0, results=[outcome_row("t", ErrorCode.INVALID_PARTITIONS)])

    (outcome,), (request,) = call(
        ApiKey.CREATE_PARTITIONS, answer, lambda admin: admin.create_partitions({"t": 6}), version
    )
    assert request.topics[0].count == 6
    with pytest.raises(ApiError) as caught:
        outcome.check()
    assert caught.value.code == ErrorCode.INVALID_PARTITIONS


@versions_of(ApiKey.DELETE_RECORDS)
def test_delete_records(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        rows = [Message(partition_index=0, low_watermark=9, error_code=0)]
        return Message(throttle_time_ms=0, topics=[Message(name="t", partitions=rows)])

    deleted, _ = call(ApiKey.DELETE_RECORDS, answer, lambda admin: admin.delete_records({TP: 9}), version)
    assert deleted == {TP: DeletedRecords(9, ErrorCode.NONE)}


@versions_of(ApiKey.DESCRIBE_CONFIGS)
def test_describe_configs(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        entry = Message(
            name="retention.ms",
            value="5",
            read_only=False,
            config_source=1,
            is_sensitive=False,
            synonyms=[Message(name="log.retention.ms", value="7", source=99)],
            config_type=5,
            documentation="How long.",
        )
        result = Message(error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[entry])
        return Message(throttle_time_ms=0, results=[result])

    (described,), (request,) = call(
        ApiKey.DESCRIBE_CONFIGS, answer, lambda admin: admin.describe_configs([TOPIC], documentation=True), version
    )
    (entry,) = described.check().entries
    assert request.resources[0].configuration_keys is None
    assert (entry.name, entry.value, entry.source) == ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [synonym.source for synonym in entry.synonyms] == [ConfigSource.UNKNOWN]
    assert not entry.is_default


@versions_of(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def test_alter_configs(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        row = Message(error_code=40, error_message="not so", resource_type=2, resource_name="t")
        return Message(throttle_time_ms=0, responses=[row])

    changes = [ConfigChange("a", ConfigOperation.SET, "1"), ConfigChange("b", ConfigOperation.DELETE)]

    (outcome,), (request,) = call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, answer, lambda admin: admin.alter_configs({TOPIC: changes}), version
    )
    assert outcome == Outcome("topic t", ErrorCode.INVALID_CONFIG, "not so")
    with pytest.raises(ApiError, match="INVALID_CONFIG: not so"):
        outcome.check()
    assert [(row.name, row.config_operation, row.value) for row in request.resources[0].configs] == [
        ("a", 0, "1"),
        ("b", 1, None),
    ]


@versions_of(ApiKey.DESCRIBE_CLUSTER)
def test_describe_cluster(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        brokers = [Message(broker_id=n, host="h", port=n, rack=None, is_fenced=False) for n in (2, 1)]
        return Message(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=1,
            cluster_id="c",
            controller_id=2,
            brokers=brokers,
            cluster_authorized_operations=-1,
        )

    described, _ = call(ApiKey.DESCRIBE_CLUSTER, answer, lambda admin: admin.describe_cluster(), version)
    assert (described.cluster_id, described.controller_id) == ("c", 2)
    assert [broker.node_id for broker in described.brokers] == [1, 2]


@versions_of(ApiKey.DESCRIBE_LOG_DIRS)
def test_describe_log_dirs(version: int) -> None:
    def answer(version: int, request: Message) -> Message:
        partition = Message(partition_index=0, partition_size=44, offset_lag=0, is_future_key=False)
        row = Message(
            error_code=0,
            log_dir="/d",
            topics=[Message(name="t", partitions=[partition])],
            total_bytes=10,
            usable_bytes=5,
            is_cordoned=False,
        )
        return Message(throttle_time_ms=0, error_code=0, results=[row])

    (found,), _ = call(ApiKey.DESCRIBE_LOG_DIRS, answer, lambda admin: admin.describe_log_dirs([NODE_ID]), version)
    assert (found.node_id, found.path, found.partition_sizes) == (NODE_ID, "/d", {TP: 44})


def test_a_missing_controller_is_retried() -> None:
    errors = iter([ErrorCode.NOT_CONTROLLER, ErrorCode.NONE])

    def answer(version: int, request: Message) -> Message:
        return Message(throttle_time_ms=0, responses=[outcome_row("t", next(errors))])

    outcomes, requests = call(ApiKey.DELETE_TOPICS, answer, lambda admin: admin.delete_topics(["t"]))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE]
    assert len(requests) == 2


def test_only_partitions_with_a_transient_error_are_retried() -> None:
    second = TopicPartition("t", 1)
    errors = {0: iter([ErrorCode.NONE]), 1: iter([ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE])}

    def answer(version: int, request: Message) -> Message:
        rows = [
            Message(
                partition_index=row.partition_index,
                error_code=next(errors[row.partition_index]),
                timestamp=-1,
                offset=5,
                leader_epoch=0,
            )
            for row in request.topics[0].partitions
        ]
        return Message(throttle_time_ms=0, topics=[Message(name="t", partitions=rows)])

    found, requests = call(
        ApiKey.LIST_OFFSETS, answer, lambda admin: admin.list_offsets({TP: EARLIEST, second: EARLIEST})
    )
    assert set(found.values()) == {OffsetResult(5, -1, 0, ErrorCode.NONE)}
    assert [len(request.topics[0].partitions) for request in requests] == [2, 1]


def test_an_unknown_topic_is_not_retried() -> None:
    async def work(admin: Admin) -> ErrorCode:
        (topic,) = await admin.describe_topics(["nope"])
        return topic.error

    error, _ = call(ApiKey.LIST_OFFSETS, lambda version, request: None, work)
    assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_error_code_is_an_unknown_server_error() -> None:
    assert ErrorCode(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_api_that_the_broker_lacks_is_named() -> None:
    with pytest.raises(ApiError, match="CREATE_TOPICS") as caught:
        run_with({}, lambda admin: admin.create_topics([NewTopic(name="t")]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("api_key", "version", "work"),
    [
        (ApiKey.DELETE_TOPICS, 5, lambda admin: admin.delete_topics([topic_id("t")])),
        (ApiKey.METADATA, 11, lambda admin: admin.describe_topics([topic_id("t")])),
        (ApiKey.LIST_CONFIG_RESOURCES, 0, lambda admin: admin.list_config_resources()),
        (ApiKey.DESCRIBE_CLUSTER, 1, lambda admin: admin.describe_cluster(include_fenced=True)),
        (ApiKey.LEAVE_GROUP, 2, lambda admin: admin.remove_members("g", member_ids=["m"])),
    ],
)
def test_requests_that_the_broker_is_too_old_for(
    api_key: ApiKey, version: int, work: Callable[[Admin], Awaitable[Any]]
) -> None:
    answers: dict[ApiKey, Responder] = {} if api_key is ApiKey.METADATA else {api_key: lambda version, request: None}
    with pytest.raises(ApiError, match=api_key.name) as caught:
        run_with(answers, work, **{api_key.name: version})
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_committed_offsets_wait_for_open_transactions() -> None:
    def answer(code: ErrorCode) -> Responder:
        row = Message(partition_index=0, committed_offset=5, committed_leader_epoch=-1, metadata="", error_code=code)
        topics = [Message(name="t", partitions=[row])]
        group = Message(group_id="g", topics=topics, error_code=0)
        return lambda version, request: Message(throttle_time_ms=0, groups=[group])

    answers = in_turn(answer(ErrorCode.UNSTABLE_OFFSET_COMMIT), answer(ErrorCode.NONE))
    found, (_, request) = call(
        ApiKey.OFFSET_FETCH, answers, lambda admin: admin.committed_offsets("g", [TP], require_stable=True)
    )
    assert found == {TP: OffsetAndMetadata(5)}
    assert request.require_stable


@versions_of(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def test_epoch_ends(version: int) -> None:
    def answer(code: ErrorCode) -> Responder:
        row = Message(error_code=code, partition=0, leader_epoch=3, end_offset=9)
        return lambda version, request: Message(throttle_time_ms=0, topics=[Message(topic="t", partitions=[row])])

    found, (_, request) = call(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        in_turn(answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), answer(ErrorCode.NONE)),
        lambda admin: admin.epoch_ends({TP: 4}),
        version,
    )
    assert found == {TP: EpochEnd(3, 9, ErrorCode.NONE)}
    assert request.topics[0].partitions[0].leader_epoch == 4
