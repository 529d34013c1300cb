"""Helpers of the consumer's tests: batches, the log of a fake broker, appending to a real one."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.consumer import Consumer
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import Codec
from rookery.records.record import Headers, Record, build_batch
from tests.client.fake_broker import FakeBroker, topic_id

TP = TopicPartition("t", 0)
TP1 = TopicPartition("t", 1)
START_MS = 1_700_000_000_000
_names = itertools.count()


def batch(first: int, *values: bytes | None, epoch: int = 0, **fields: Any) -> bytes:
    """Build a batch: the record at offset n has no key, and its timestamp is n seconds after START_MS."""
    records = [
        Record(first + index, START_MS + 1000 * (first + index), None, value) for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, base_offset=first, leader_epoch=epoch, **fields))


def new_topic() -> str:
    """Return a name that no other test of this process uses."""
    return f"topic-{next(_names)}"


async def append(
    bootstrap: str,
    tp: TopicPartition,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Headers = (),
    start_ms: int = START_MS,
    codec: Codec = Codec.NONE,
) -> None:
    """Append one batch, with one record per second from `start_ms` on."""
    records = [
        Record(index, start_ms + 1000 * index, keys[index] if keys else None, value, headers)
        for index, value in enumerate(values)
    ]
    async with Cluster.at(bootstrap) as cluster:
        node = await cluster.leader(tp)
        row = Message(index=tp.partition, records=bytes(build_batch(records, codec=codec)))
        topic = Message(name=tp.topic, topic_id=cluster.metadata.topic_id(tp.topic), partition_data=[row])
        request = Message(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=[topic])
        response = await cluster.call(ApiKey.PRODUCE, request, node=node)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@asynccontextmanager
async def consuming(
    bootstrap: str, *partitions: TopicPartition, config: dict[str, object] | None = None, **options: Any
) -> AsyncIterator[Consumer[Any, Any]]:
    """Run a consumer that reads from the beginning; without a group unless `config` names one."""
    settings: dict[str, object] = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    async with Consumer[Any, Any](settings | (config or {}), **options) as consumer:
        if partitions:
            consumer.assign(partitions)
        yield consumer


async def read_values(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    """Poll until `count` records have arrived, for 10 seconds at most."""
    values: list[Any] = []
    async with asyncio.timeout(10):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(1.0)]
    return values


class FakeLog:
    """The partitions of a `FakeBroker`: serves fetches as a broker does, with sessions, one batch per partition.

    A long poll that finds no data is never answered.
    """

    def __init__(self, *, hands_out_sessions: bool = True) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.errors: dict[TopicPartition, int] = {}
        self.session_error = ErrorCode.NONE
        self.high_watermark = 100
        self.preferred_replica = -1
        self._hands_out_sessions = hands_out_sessions
        self._session_ids = itertools.count(11)
        self.sessions: dict[int, dict[TopicPartition, int]] = {}

    def fetch(self, version: int, request: Message) -> Message | None:
        if self.session_error:
            error, self.session_error = self.session_error, ErrorCode.NONE
            self.sessions.clear()
            return Message(throttle_time_ms=0, error_code=error, session_id=0, responses=[])
        session_id, positions = self._session(request)
        found = [(tp, self.errors.pop(tp, 0), self._read(tp, offset)) for tp, offset in positions.items()]
        rows = [_row(self, tp, error, data) for tp, error, data in found if error or data]
        if not rows and request.max_wait_ms > 0:
            return None
        return Message(throttle_time_ms=0, error_code=0, session_id=session_id, responses=_by_topic(rows))

    def _session(self, request: Message) -> tuple[int, dict[TopicPartition, int]]:
        session_id = request.get("session_id", 0)
        epoch = request.get("session_epoch", -1)
        if epoch <= 0:
            session_id = next(self._session_ids) if epoch == 0 and self._hands_out_sessions else 0
            self.sessions[session_id] = {}
        partitions = self.sessions[session_id]
        for topic in request.get("forgotten_topics_data") or ():
            for index in topic.partitions:
                del partitions[TopicPartition(_name(topic), index)]
        for topic in request.topics:
            for row in topic.partitions:
                partitions[TopicPartition(_name(topic), row.partition)] = row.fetch_offset
        return session_id, partitions

    def _read(self, tp: TopicPartition, offset: int) -> bytes:
        for data in self.batches.get(tp, ()):
            last = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")
            if last >= offset:
                return data
        return b""


def _name(topic: Message) -> str:
    name = topic.get("topic")
    if name:
        return str(name)
    return topic.topic_id.bytes.rstrip(b"\1").decode() if topic.get("topic_id") else ""


def _row(log: FakeLog, tp: TopicPartition, error: int, data: bytes) -> tuple[str, Message]:
    return tp.topic, Message(
        partition_index=tp.partition,
        error_code=error,
        high_watermark=log.high_watermark,
        last_stable_offset=log.high_watermark,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=log.preferred_replica,
        records=data,
    )


def _by_topic(rows: Iterable[tuple[str, Message]]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for name, row in rows:
        topics.setdefault(name, []).append(row)
    return [Message(topic=name, topic_id=topic_id(name), partitions=some) for name, some in topics.items()]


def offsets_answer(by_timestamp: dict[int, int], *, epoch: int = 0) -> Any:
    """Answer ListOffsets with the same offsets for every partition."""

    def answer(version: int, request: Message) -> Message:
        topics = [
            Message(
                name=topic.name,
                partitions=[
                    Message(
                        partition_index=row.partition_index,
                        error_code=0,
                        timestamp=row.timestamp,
                        offset=by_timestamp.get(row.timestamp, -1),
                        leader_epoch=epoch,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return Message(throttle_time_ms=0, topics=topics)

    return answer


def fetch_offsets(broker: FakeBroker) -> list[dict[TopicPartition, int]]:
    """Return the positions that each fetch request names."""
    return [
        {
            TopicPartition(_name(topic), row.partition): row.fetch_offset
            for topic in request.topics
            for row in topic.partitions
        }
        for request in broker.requests_of(ApiKey.FETCH)
    ]
