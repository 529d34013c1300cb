"""Produce to topics whose records are inspected: which batches in stage 1, which later, and in which order."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.base.bounds import INSPECTED_BYTES_ON_LOOP, INSPECTED_RECORDS_ON_LOOP, RECORD_ERRORS_MAX, RECORDS_PER_SLICE
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.net.connection import ConnectionInfo
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records import inspection
from rookery.records.batch import Codec, check_batch
from rookery.records.batch_reader import RecordColumns, unpack_pieces
from rookery.records.compression import compress
from rookery.records.record import Record, build_batch, open_records
from tests.broker import harness
from tests.broker.harness import Broker, batch, decode
from tests.broker.transactional import FOLLOWER, lead_with_follower
from tests.records.tiny import tiny_batch

VERSION = 12
MANY = 20 * RECORDS_PER_SLICE


def play(path: Path, scene: Callable[[Broker], Coroutine[Any, Any, None]], **configs: str) -> None:
    """Run `scene` with a broker and the topic "orders": five partitions, which reject keyless and old records."""

    async def main(broker: Broker) -> None:
        limits = {"cleanup_policy": "compact", "message_timestamp_before_max_ms": "1000"}
        await broker.create_topic("orders", partitions=5, **(limits | configs))
        await scene(broker)

    harness.play(path, main, {})


def fields(*records: tuple[int, bytes], **more: Any) -> dict[str, Any]:
    data = [Message(index=index, records=data) for index, data in records]
    return {"acks": -1, "timeout_ms": 60_000, "topic_data": [Message(name="orders", partition_data=data)]} | more


def send(broker: Broker, *records: tuple[int, bytes], **more: Any) -> "asyncio.Task[Reply | None]":
    answer = broker.send(ApiKey.PRODUCE, VERSION, **fields(*records, **more))
    assert answer is not None
    assert not isinstance(answer, list), "the answer did not wait"
    return asyncio.ensure_future(answer)


def results(response: Message) -> list[Message]:
    return [partition for topic in response.responses for partition in topic.partition_responses]


async def answered(task: "asyncio.Task[Reply | None]") -> list[Message]:
    reply = await task
    assert reply is not None
    return results(decode(ApiKey.PRODUCE, VERSION, reply))


def produce(broker: Broker, *records: tuple[int, bytes]) -> list[Message]:
    """Send a request that must be answered in stage 1; return its results."""
    return results(broker.call_now(ApiKey.PRODUCE, VERSION, **fields(*records)))


def many(broker: Broker, *, count: int = MANY, key: bytes | None = b"k", age_ms: int = 0, **more: Any) -> bytes:
    return bytes(tiny_batch(count, broker.services.clock.now_ms() - age_ms, key=key, **more))


def few(broker: Broker, **more: Any) -> bytes:
    return batch(b"v", timestamp_ms=broker.services.clock.now_ms(), **more)


class Probe:
    """Counts the turns of the event loop, and the records that are read in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.records_by_turn: dict[int, int] = {}
        self.open_at_once = 0
        self.threads: list[int] = []
        self._open = 0
        monkeypatch.setattr(inspection, "unpack_pieces", self._unpack)
        monkeypatch.setattr(inspection, "open_records", self._note_thread)

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def _unpack(self, *arguments: Any) -> Iterator[RecordColumns]:
        self._open += 1
        self.open_at_once = max(self.open_at_once, self._open)
        try:
            for columns in unpack_pieces(*arguments):
                self.records_by_turn[self.turn] = self.records_by_turn.get(self.turn, 0) + len(columns.keys)
                yield columns
        finally:
            self._open -= 1

    def _note_thread(self, *arguments: Any, **more: Any) -> bytes:
        payload = open_records(*arguments, **more)
        if len(payload) > INSPECTED_BYTES_ON_LOOP:
            self.threads.append(threading.get_ident())
        return payload


def test_many_records_are_read_a_few_per_turn_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe(monkeypatch)

    async def scene(broker: Broker) -> None:
        counting = asyncio.ensure_future(probe.count_turns())
        # Five partitions of one request, and another connection.
        tasks = [send(broker, *((index, many(broker)) for index in range(5)))]
        broker.connection = ConnectionInfo("127.0.0.1", 50_001, "PLAINTEXT")
        tasks.append(send(broker, (0, many(broker))))
        found = [[result.error_code for result in await answered(task)] for task in tasks]
        counting.cancel()
        assert found == [[0] * 5, [0]]
        assert sum(probe.records_by_turn.values()) == 6 * MANY
        assert max(probe.records_by_turn.values()) <= RECORDS_PER_SLICE
        assert probe.open_at_once == 1, "memory does not grow with the number of batches"
        assert len(probe.threads) == 6
        assert threading.get_ident() not in probe.threads, "decompressed in worker threads"

    play(tmp_path, scene)


def test_the_small_batches_of_a_request_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe(monkeypatch)

    async def scene(broker: Broker) -> None:
        counting = asyncio.ensure_future(probe.count_turns())
        size = RECORDS_PER_SLICE + 1
        found = await answered(send(broker, *((index % 5, many(broker, count=size)) for index in range(30))))
        counting.cancel()
        assert [(result.error_code, result.base_offset) for result in found] == [
            (0, index // 5 * size) for index in range(30)
        ]
        assert max(probe.records_by_turn.values()) <= INSPECTED_RECORDS_ON_LOOP

    play(tmp_path, scene)


@pytest.mark.parametrize("waits", [True, False])
def test_all_invalid_records_are_reported(tmp_path: Path, waits: bool) -> None:
    async def scene(broker: Broker) -> None:
        now_ms = broker.services.clock.now_ms()
        count = MANY if waits else 100
        records = [Record(index, now_ms, None if index % 50 == 7 else b"key", b"v") for index in range(count)]
        data = bytes(build_batch(records, codec=Codec.LZ4))
        (result,) = await answered(send(broker, (0, data))) if waits else produce(broker, (0, data))
        assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert [error.batch_index for error in result.record_errors] == list(range(7, count, 50))
        assert broker.replica("orders").log.end_offset == 0

    play(tmp_path, scene)


def test_the_number_of_reported_records_is_bounded(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        bad = many(broker, key=None, count=RECORD_ERRORS_MAX - 1)
        found = await answered(send(broker, *((index, bad) for index in range(4))))
        assert [len(result.record_errors) for result in found] == [RECORD_ERRORS_MAX - 1, 1, 0, 0]
        assert {result.error_code for result in found} == {ErrorCode.INVALID_RECORD}

    play(tmp_path, scene)


def test_later_batches_of_a_producer_wait_for_an_inspection(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0}
        first = send(broker, (0, many(broker, base_sequence=0, **producer)))
        second = send(broker, (0, few(broker, base_sequence=MANY, **producer)))
        third = send(broker, (0, many(broker, base_sequence=MANY + 1, **producer)))
        found = [(await answered(task))[0] for task in (first, second, third)]
        assert [(result.error_code, result.base_offset) for result in found] == [(0, 0), (0, MANY), (0, MANY + 1)]
        (result,) = produce(broker, (0, few(broker, base_sequence=2 * MANY + 1, **producer)))
        assert result.base_offset == 2 * MANY + 1, "answered in stage 1 again"

    play(tmp_path, scene)


def test_other_partitions_and_connections_do_not_wait(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        task = send(broker, (0, many(broker)))
        assert produce(broker, (1, few(broker)))[0].base_offset == 0
        broker.connection = ConnectionInfo("127.0.0.1", 50_001, "PLAINTEXT")
        assert produce(broker, (0, few(broker)))[0].base_offset == 0
        assert (await answered(task))[0].base_offset == 1

    play(tmp_path, scene)


def test_a_batch_that_is_acknowledged_during_the_inspection_of_another(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        replica = broker.replica("orders", 0)
        lead_with_follower(replica)
        task = send(broker, (0, few(broker)), (1, many(broker)), timeout_ms=2**31 - 1)
        assert replica.log.end_offset == 1
        replica.read(1, 1000, node_id=FOLLOWER)
        assert replica.state.high_watermark == 1
        found = await asyncio.wait_for(answered(task), 60)
        assert [result.error_code for result in found] == [0, 0]

    play(tmp_path, scene)


def test_a_topic_that_is_deleted_during_the_inspection_of_its_batch(tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        task = send(broker, (0, many(broker)))
        topics = [Message(name="orders", topic_id=NO_TOPIC_ID)]
        await broker.call(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=60_000)
        assert (await answered(task))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(tmp_path, scene)


def test_large_batches_are_compressed_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def spy(*arguments: Any) -> bytes:
        threads.append(threading.get_ident())
        return compress(*arguments)

    async def scene(broker: Broker) -> None:
        monkeypatch.setattr(inspection, "compress", spy)
        assert (await answered(send(broker, (0, many(broker)))))[0].error_code == 0
        assert produce(broker, (1, few(broker)))[0].error_code == 0
        assert [thread == threading.get_ident() for thread in threads] == [False, True]
        (part,) = broker.replica("orders").read(0, 10_000_000).slices
        assert check_batch(part.file.read_at(part.position, part.size)).codec_id == Codec.LZ4

    play(tmp_path, scene, compression_type="lz4")
