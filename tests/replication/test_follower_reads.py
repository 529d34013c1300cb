"""Consumers that read from followers (KIP-392), and DeleteRecords, which waits for followers."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.broker.handlers import k21_delete_records
from rookery.protocol.api import ApiKey
from rookery.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from rookery.protocol.message import Message
from tests.replication.nodes import HEADER_SIZE, TOPIC, TOPIC_ID, Node, Nodes, running

_BY_RACK = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


async def consume(node: Node, offset: int = 0, *, rack: str = "", version: int = 18) -> FetchedPartition:
    row = FetchPartition(0, offset, 1000)
    topic = FetchTopic(None, TOPIC_ID, [row]) if version >= 13 else FetchTopic(TOPIC, None, [row])
    request = FetchRequest(-1, 0, 1, 1000, 0, 0, -1, [topic], [], rack)
    reply = await node.serve(ApiKey.FETCH, version, encode_fetch_request(version, request))
    header_size = HEADER_SIZE if version >= 12 else HEADER_SIZE - 1
    response = decode_fetch_response(version, memoryview(reply)[header_size:])
    return response.topics[0][2][0]


def test_a_follower_serves_consumers_up_to_its_high_watermark(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            nodes.running[1].append(b"a")
            await nodes.in_sync(1, 2)
            found = await consume(nodes.running[2])
            assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 1)
            assert found.records
            older = await consume(nodes.running[2], version=10)
            assert older.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(main())


def test_a_consumer_is_referred_to_its_rack(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path, config=_BY_RACK)
        for node_id, rack in ((1, "a"), (2, "b"), (3, None)):
            await nodes.start_node(node_id, rack=rack)
        nodes.create_topic((1, 2, 3))
        nodes.running[1].append(b"a")
        await nodes.in_sync(1, 2, 3)
        found = await consume(nodes.running[1], rack="b")
        assert (found.error_code, found.preferred_read_replica, found.high_watermark) == (ErrorCode.NONE, 2, 1)
        assert not found.records
        for rack in ("a", "c", ""):
            here = await consume(nodes.running[1], rack=rack)
            assert here.preferred_read_replica == -1
            assert here.records
        assert (await consume(nodes.running[1], 5, rack="b")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for node in nodes.running.values():
            await node.kill()

    asyncio.run(main())


async def delete(node: Node, offset: int, *, timeout_ms: int = 10_000) -> tuple[int, int]:
    request = Message(
        topics=[Message(name=TOPIC, partitions=[Message(partition_index=0, offset=offset)])], timeout_ms=timeout_ms
    )
    context = cast(RequestContext, SimpleNamespace(services=node.services))
    response: Any = k21_delete_records.handle(context, cast(Any, request))
    if asyncio.isfuture(response):
        response = await response
    (row,) = response.topics[0].partitions
    return row.error_code, row.low_watermark


def test_delete_records_waits_for_the_followers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, 1, 2) as nodes:
            nodes.create_topic((1, 2))
            for value in (b"a", b"b", b"c"):
                nodes.running[1].append(value)
            await nodes.in_sync(1, 2)
            assert await delete(nodes.running[1], 2) == (ErrorCode.NONE, 2)
            assert nodes.running[2].replica().log.start_offset == 2
            assert await delete(nodes.running[2], 3) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            nodes.cut_off.add(2)
            assert await delete(nodes.running[1], 3, timeout_ms=30) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            nodes.fence(2)
            assert await delete(nodes.running[1], 3, timeout_ms=30) == (ErrorCode.NONE, 3)

    asyncio.run(main())
