"""Helpers of the producer's tests: answers for the fake broker, and reading records back from a real one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from rookery.base.errors import ErrorCode
from rookery.client.cluster import Cluster
from rookery.client.produce.producer import Producer
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import BatchHeader, iterate_headers, read_header
from rookery.records.record import Record, decode_records
from tests.client.fake_broker import HANG_UP, FakeBroker, Responder

BytesProducer = Producer[bytes, bytes]
# Short pauses before retries, so that tests do not wait.
QUICK: Mapping[str, object] = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 2, "linger.ms": 0}


def in_turn(*answers: Responder) -> Responder:
    """Return an answer that uses each of `answers` once, and then repeats the last."""
    remaining = list(answers)

    def answer(version: int, request: Message) -> Message | None:
        current = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return current(version, request)

    return answer


def producer_ids(first: int = 100, *, error_code: int = 0) -> Responder:
    numbers = iter(range(first, first + 100))
    return lambda version, request: Message(
        throttle_time_ms=0,
        error_code=error_code,
        producer_id=next(numbers),
        producer_epoch=0,
        ongoing_txn_producer_id=-1,
        ongoing_txn_producer_epoch=-1,
    )


def hang_up(version: int, request: Message) -> Message:
    return HANG_UP


def silence(version: int, request: Message) -> None:
    return None


def configured(broker: FakeBroker | str, **settings: object) -> dict[str, object]:
    """Return a configuration; `linger_ms=5` sets `linger.ms`, and so on."""
    address = broker if isinstance(broker, str) else str(broker.address)
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": address, **QUICK, **own}


def run_with(
    produce: Responder,
    work: Callable[[FakeBroker], Awaitable[None]],
    *,
    topics: Mapping[str, int] | None = None,
    identify: Responder | None = None,
    **versions: int,
) -> tuple[list[bytes], FakeBroker]:
    """Run `work` against a broker with the topic t of two partitions; return the batches that it received."""

    async def run() -> FakeBroker:
        answers = {ApiKey.PRODUCE: produce, ApiKey.INIT_PRODUCER_ID: identify or producer_ids()}
        async with FakeBroker(answers, topics=topics or {"t": 2}, versions=versions) as broker:
            await work(broker)
        return broker

    broker = asyncio.run(run())
    return batches_of(broker), broker


async def until_a_sender_waits(producer: BytesProducer) -> None:
    while not producer._memory_waiters:
        await asyncio.sleep(0.001)


def batches_of(broker: FakeBroker) -> list[bytes]:
    return [
        bytes(partition.records)
        for request in broker.requests_of(ApiKey.PRODUCE)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def numbers_of(batch: bytes) -> tuple[int, int, int, int]:
    """Return producer id, epoch, base sequence and record count."""
    header = read_header(batch)
    return header.producer_id, header.producer_epoch, header.base_sequence, header.record_count


def values_of(batches: list[bytes]) -> list[bytes | None]:
    return [record.value for batch in batches for record in decode_records(batch)]


async def read_batches(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[BatchHeader, list[Record]]]:
    """Return all batches of a partition of a real broker."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    async with Cluster.at(bootstrap, timeout_s=10) as cluster:
        await cluster.refresh([topic])
        while data := await _fetch(cluster, topic, partition, found[-1][0].last_offset + 1 if found else 0):
            for position, header in iterate_headers(data):
                found.append((header, decode_records(data[position : position + header.size_bytes])))
    return found


async def read_values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | None]:
    batches = await read_batches(bootstrap, topic, partition)
    return [record.value for header, records in batches if not header.is_control for record in records]


async def _fetch(cluster: Cluster, topic: str, partition: int, offset: int) -> bytes:
    row = Message(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=10_000_000,
    )
    request = Message(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=10_000_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=topic, topic_id=cluster.metadata.topic_id(topic), partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
    )
    response = await cluster.call(ApiKey.FETCH, request)
    (row,) = response.responses[0].partitions
    assert row.error_code == ErrorCode.NONE
    return bytes(row.records or b"")
