"""Requests to the leaders of many partitions: the failure of one partition does not affect the others."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster, plain_settings
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import run_with
from tests.client.fake_broker import HANG_UP, FakeBroker

GOOD, STUCK, LEADERLESS, NO_PARTITION = (TopicPartition("t", index) for index in (0, 1, 2, 9))
NEGATIVE = TopicPartition("t", -1)
NO_TOPIC = TopicPartition("missing", 0)
ALL = (GOOD, STUCK, LEADERLESS, NO_PARTITION, NEGATIVE, NO_TOPIC)

# The API of each method, and a call of it.
CALLS: list[tuple[ApiKey, Callable[[Admin], Awaitable[Any]]]] = [
    (ApiKey.LIST_OFFSETS, lambda admin: admin.list_offsets(dict.fromkeys(ALL, -1))),
    (ApiKey.DELETE_RECORDS, lambda admin: admin.delete_records(dict.fromkeys(ALL, 5))),
    (ApiKey.DESCRIBE_PRODUCERS, lambda admin: admin.describe_producers(ALL)),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda admin: admin.epoch_ends(dict.fromkeys(ALL, 0))),
]
EACH_CALL = pytest.mark.parametrize(("api_key", "call"), CALLS, ids=[api_key.name for api_key, _ in CALLS])


def requested(request: Message) -> list[TopicPartition]:
    """Return the partitions of a request of any of the APIs."""
    return [
        TopicPartition(topic.get("name") or topic.topic, index)
        for topic in request.topics
        for index in topic.get("partition_indexes")
        or [row.get("partition_index", row.get("partition")) for row in topic.partitions]
    ]


def answer(version: int, request: Message) -> Message:
    """Answer any of the APIs; partition 1 never has a leader."""
    rows = [
        Message(
            partition_index=tp.partition,
            partition=tp.partition,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if tp == STUCK else ErrorCode.NONE,
            error_message=None,
            offset=7,
            timestamp=-1,
            leader_epoch=0,
            low_watermark=5,
            end_offset=7,
            active_producers=[],
        )
        for tp in requested(request)
    ]
    return Message(throttle_time_ms=0, topics=[Message(name="t", topic="t", partitions=rows)])


@EACH_CALL
def test_each_partition_has_its_own_outcome(api_key: ApiKey, call: Callable[[Admin], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with FakeBroker({api_key: answer}, topics={"t": 3}, leaderless=[2]) as broker:
            settings = plain_settings(str(broker.address), client_id="test", timeout_s=10)
            impatient = replace(settings, default_api_timeout_ms=60, retry_backoff_ms=1, retry_backoff_max_ms=5)
            async with Cluster(impatient) as cluster:
                found = await call(Admin.over(cluster))
            assert {tp: row.error for tp, row in found.items()} == {
                GOOD: ErrorCode.NONE,
                STUCK: ErrorCode.NOT_LEADER_OR_FOLLOWER,
                LEADERLESS: ErrorCode.LEADER_NOT_AVAILABLE,
                NO_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                NEGATIVE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                NO_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            first, *others = [requested(request) for request in broker.requests_of(api_key)]
            assert first == [GOOD, STUCK]
            assert [partitions for partitions in others if partitions != [STUCK]] == []

    asyncio.run(run())


@EACH_CALL
def test_transient_errors_are_retried(api_key: ApiKey, call: Callable[[Admin], Awaitable[Any]]) -> None:
    """A broker that closes the connection once, and a partition that gets a leader."""
    turns = iter([HANG_UP, None])

    def recovering(version: int, request: Message) -> Message:
        hung_up = next(turns, Message())
        if hung_up is HANG_UP:
            return HANG_UP
        response = answer(version, request)
        for row in response.topics[0].partitions if hung_up is not None else ():
            row.error_code = ErrorCode.NONE
        return response

    found, _ = run_with({api_key: recovering}, call)
    assert [found[tp].error for tp in (GOOD, STUCK, LEADERLESS)] == [ErrorCode.NONE] * 3
    assert found[NO_TOPIC].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_api_that_no_leader_serves_is_raised() -> None:
    with pytest.raises(ApiError, match="DELETE_RECORDS") as caught:
        run_with({}, lambda admin: admin.delete_records({GOOD: 5, STUCK: 5}))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_cluster_that_cannot_be_reached_is_an_error() -> None:
    async def run() -> None:
        settings = plain_settings("127.0.0.1:1", client_id="test", timeout_s=10)
        cluster = Cluster(replace(settings, default_api_timeout_ms=1))
        with pytest.raises(ApiError, match="cannot connect"):
            await Admin.over(cluster).list_offsets({GOOD: -1})
        await cluster.close()

    asyncio.run(run())


def test_a_partition_without_a_row_is_an_error() -> None:
    nothing = Message(throttle_time_ms=0, topics=[])
    found, _ = run_with({ApiKey.DELETE_RECORDS: lambda v, r: nothing}, lambda admin: admin.delete_records({GOOD: 5}))
    assert found[GOOD].error == ErrorCode.UNKNOWN_SERVER_ERROR
