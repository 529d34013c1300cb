"""Produce and Fetch requests over a bare connection, in every version that a broker serves."""

import asyncio

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from rookery.protocol.produce import decode_produce_response, encode_produce_request
from rookery.records.record import Record, build_batch, decode_records
from rookery.testing import EmbeddedBroker

TP = TopicPartition("t", 0)
PRODUCE_VERSIONS = range(DEFINED[ApiKey.PRODUCE].minimum, DEFINED[ApiKey.PRODUCE].maximum + 1)
FETCH_VERSIONS = range(DEFINED[ApiKey.FETCH].minimum, DEFINED[ApiKey.FETCH].maximum + 1)


async def produce(cluster: Cluster, version: int, value: bytes) -> int:
    """Write one record and return its offset."""
    batch = build_batch([Record(0, 1, None, value)])
    connection = await cluster.connection(await cluster.leader(TP))
    partitions = [(0, [memoryview(batch)[:61], memoryview(batch)[61:]])]
    parts = encode_produce_request(
        version,
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topics=[("t", cluster.metadata.topic_id("t"), partitions)],
    )
    body = await connection.exchange(ApiKey.PRODUCE, version, parts, timeout_s=10)
    ((_, _, (result,)),) = decode_produce_response(version, body).topics
    assert result.error_code == ErrorCode.NONE
    return result.base_offset


async def fetch(cluster: Cluster, version: int, offset: int) -> FetchedPartition:
    topic = FetchTopic("t", cluster.metadata.topic_id("t"), [FetchPartition(0, offset, 1_000_000)])
    request = FetchRequest(-1, 100, 1, 1_000_000, 0, 0, -1, [topic], [])
    connection = await cluster.connection(await cluster.leader(TP))
    parts = [encode_fetch_request(version, request)]
    body = await connection.exchange(ApiKey.FETCH, version, parts, timeout_s=10)
    ((_, _, (partition,)),) = decode_fetch_response(version, body).topics
    return partition


def test_every_fetch_version_returns_the_records_of_every_produce_version() -> None:
    values = [b"produced in version %d " % version * 1000 for version in PRODUCE_VERSIONS]

    async def run(bootstrap: str) -> None:
        async with Cluster.at(bootstrap) as cluster:
            offsets = [
                await produce(cluster, version, value) for version, value in zip(PRODUCE_VERSIONS, values, strict=True)
            ]
            assert offsets == list(range(len(values)))
            for version in FETCH_VERSIONS:
                partition = await fetch(cluster, version, 0)
                assert partition.error_code == ErrorCode.NONE
                assert partition.high_watermark == len(values)
                assert read_values(partition) == values

    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        asyncio.run(run(broker.bootstrap_servers))


def read_values(partition: FetchedPartition) -> list[bytes | None]:
    values: list[bytes | None] = []
    data = partition.records or memoryview(b"")
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        values += [record.value for record in decode_records(data[:size])]
        data = data[size:]
    return values
