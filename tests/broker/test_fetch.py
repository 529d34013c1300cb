"""Fetch: limits, errors, epochs, long polls and sessions, over frames."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode
from rookery.base.files import FileSlice
from rookery.base.types import NO_TOPIC_ID
from rookery.net.listener import Listener
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import iterate_headers
from rookery.replication.offset_search import EARLIEST
from tests.broker.harness import Broker, batch, decode, request_frame, running, settle

VERSION = 12
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def partition(index: int = 0, offset: int = 0, *, max_bytes: int = 1_000_000, **more: Any) -> Message:
    return Message(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def fields(*topics: tuple[str | UUID, list[Message]], **more: Any) -> dict[str, Any]:
    return {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "topics": [
            Message(**{"topic" if isinstance(topic, str) else "topic_id": topic}, partitions=partitions)
            for topic, partitions in topics
        ],
        "forgotten_topics_data": [],
        **more,
    }


def fetch(broker: Broker, *topics: tuple[str | UUID, list[Message]], version: int = VERSION, **more: Any) -> Message:
    return broker.call_now(ApiKey.FETCH, version, **fields(*topics, **more))


def only(response: Message) -> Message:
    (result,) = response.responses[0].partitions
    assert isinstance(result, Message)
    return result


def bases(records: bytes) -> list[int]:
    """Return the base offsets of the complete batches."""
    return [header.base_offset for _, header in iterate_headers(records)]


def test_records_are_returned_as_file_slices(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a" * 1000)
            reply = broker.send(ApiKey.FETCH, VERSION, **fields(("orders", [partition()])))
            assert isinstance(reply, list)
            assert any(isinstance(part, FileSlice) for part in reply)

    asyncio.run(main())


def test_limits(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=3)
            size = len(batch(b"a" * 100))
            for index in range(3):
                for _ in range(4):
                    broker.append("orders", b"a" * 100, partition=index)

            def read(*, max_bytes: int = 1_000_000, partition_max_bytes: int = 1_000_000) -> list[int]:
                wanted = [partition(index, max_bytes=partition_max_bytes) for index in range(3)]
                response = fetch(broker, ("orders", wanted), max_bytes=max_bytes)
                return [len(bases(result.records)) for result in response.responses[0].partitions]

            assert read() == [4, 4, 4]
            assert read(partition_max_bytes=2 * size) == [2, 2, 2]
            assert read(max_bytes=6 * size) == [4, 2, 0]
            # The first batch is returned even if it exceeds the limits.
            assert read(max_bytes=1, partition_max_bytes=1) == [1, 0, 0]
            assert read(max_bytes=0) == [1, 0, 0]

    asyncio.run(main())


def test_broker_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, config={"fetch.max.bytes": "1024"}) as broker:
            await broker.create_topic("orders")
            for _ in range(10):
                broker.append("orders", b"a" * 300)
            assert len(only(fetch(broker, ("orders", [partition()]))).records) <= 1024

    asyncio.run(main())


def test_consumers_stop_at_the_high_watermark_and_followers_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            state = broker.replica("orders").state
            broker.append("orders", b"a")
            state.set_leader(1, leader_epoch=0, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
            broker.append("orders", b"b")
            result = only(fetch(broker, ("orders", [partition()])))
            assert (bases(result.records), result.high_watermark) == ([0], 1)
            assert only(fetch(broker, ("orders", [partition(offset=1)]))).records == b""
            result = only(fetch(broker, ("orders", [partition(offset=1)]), replica_id=2))
            assert bases(result.records) == [1]
            stranger = only(fetch(broker, ("orders", [partition(offset=1)]), replica_id=3))
            assert stranger.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            only(fetch(broker, ("orders", [partition(offset=2)]), replica_id=2))
            assert state.high_watermark == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    ("topic", "wanted", "expected"),
    [
        ("orders", partition(offset=-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", partition(offset=1), ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", partition(offset=5), ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", partition(offset=4), ErrorCode.NONE),
        ("orders", partition(7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", partition(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", partition(offset=2, current_leader_epoch=0), ErrorCode.NONE),
        ("orders", partition(offset=2, current_leader_epoch=3), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_errors(tmp_path: Path, topic: str, wanted: Message, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a", b"b", b"c", b"d")
            broker.replica("orders").delete_records(2)
            result = only(fetch(broker, (topic, [wanted])))
            assert result.error_code == expected
            if expected is not ErrorCode.NONE:
                assert (result.high_watermark, result.log_start_offset, result.records) == (-1, -1, b"")

    asyncio.run(main())


def test_fenced_epoch_names_the_leader_since_v16(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders")
            broker.replica("orders").state.set_leader(1, leader_epoch=5, partition_epoch=1, replicas=(1,), isr=(1,))
            for version in (15, 16):
                response = fetch(broker, (topic_id, [partition(current_leader_epoch=2)]), version=version)
                result = only(response)
                assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
                assert result.current_leader.leader_id == (1 if version == 16 else -1)
                endpoints = [(node.node_id, node.port) for node in response.get("node_endpoints", [])]
                assert endpoints == ([(1, 9092)] if version == 16 else [])

    asyncio.run(main())


def test_diverging_epoch(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            state = broker.replica("orders").state
            broker.append("orders", b"a", b"b")
            state.set_leader(1, leader_epoch=3, partition_epoch=1, replicas=(1,), isr=(1,))
            broker.append("orders", b"c")

            def diverging(offset: int, epoch: int) -> tuple[int, int, int]:
                result = only(fetch(broker, ("orders", [partition(offset=offset, last_fetched_epoch=epoch)])))
                return result.error_code, result.diverging_epoch.epoch, result.diverging_epoch.end_offset

            assert diverging(2, 0) == (0, -1, -1)
            assert diverging(3, 0) == (0, 0, 2)
            assert diverging(2, 1) == (0, 0, 2)
            assert diverging(3, 3) == (0, -1, -1)
            assert diverging(3, 9)[0] == ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(main())


@pytest.mark.parametrize(("version", "expected"), [(9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)])
def test_zstd_topics_need_v10(tmp_path: Path, version: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", compression_type="zstd")
            broker.append("orders", b"a")
            assert only(fetch(broker, ("orders", [partition()]), version=version)).error_code == expected

    asyncio.run(main())


def test_a_damaged_segment_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a")
            broker.append("orders", b"b")
            broker.replica("orders").log.roll()
            broker.append("orders", b"c")
            sealed = broker.replica("orders").log.segments[0]
            sealed.path().write_bytes(b"\xff" * sealed.size_bytes)
        async with running(tmp_path) as broker:
            assert only(fetch(broker, ("orders", [partition(offset=1)]))).error_code == ErrorCode.CORRUPT_MESSAGE
            found = broker.call_now(
                ApiKey.LIST_OFFSETS,
                5,
                replica_id=-1,
                isolation_level=0,
                topics=[
                    Message(
                        name="orders",
                        partitions=[Message(partition_index=0, current_leader_epoch=-1, timestamp=1)],
                    )
                ],
            )
            assert found.topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
            assert bases(only(fetch(broker, ("orders", [partition(offset=2)]))).records) == [2]

    asyncio.run(main())


def test_a_log_whose_epochs_and_producers_cannot_be_rebuilt_is_reported(tmp_path: Path) -> None:
    """Both are read on first use. The error must not close the connection of the request that needs them."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a")
            broker.append("orders", b"b")
            directory = broker.replica("orders").log.directory
        for path in directory.glob("*.snapshot"):
            path.write_bytes(b"damaged")
        (directory / "leader-epoch-checkpoint").write_bytes(b"damaged")
        for path in directory.glob("*.log"):
            path.write_bytes(b"\xff" * path.stat().st_size)
        async with running(tmp_path) as broker:
            replica = broker.replica("orders")
            now_ms = broker.services.clock.now_ms()
            assert replica.append(bytearray(batch(b"c")), acks=1, now_ms=now_ms).error_code is STORAGE_ERROR
            assert replica.find_offset(EARLIEST).error_code is ErrorCode.CORRUPT_MESSAGE
            assert replica.find_epoch_end(0)[0] is STORAGE_ERROR
            assert replica.delete_records(1).error_code is STORAGE_ERROR
            assert replica.read(1, 100, last_fetched_epoch=0).error_code is ErrorCode.CORRUPT_MESSAGE

    asyncio.run(main())


@pytest.mark.parametrize(
    ("version", "expected"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_failed_disk(tmp_path: Path, version: int, expected: ErrorCode) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.replica("orders").log.log_directory.fail(OSError(5, "Input/output error"))
            result = only(fetch(broker, ("orders", [partition()]), version=version, replica_id=-1))
            assert result.error_code == expected

    asyncio.run(main())


def test_topic_ids(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders")
            unknown = fetch(broker, (UUID(int=3), [partition()]), version=13)
            assert unknown.responses[0].topic_id == UUID(int=3)
            assert only(unknown).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            response = fetch(broker, (topic_id, [partition()]), version=13, session_epoch=0)
            assert only(response).error_code == ErrorCode.NONE
            session = {"version": 13, "session_id": response.session_id}
            await delete(broker, "orders")
            gone = fetch(broker, session_epoch=1, **session)
            assert only(gone).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await broker.create_topic("orders")
            renewed = fetch(broker, session_epoch=2, **session)
            assert only(renewed).error_code == ErrorCode.INCONSISTENT_TOPIC_ID

    asyncio.run(main())


async def delete(broker: Broker, name: str) -> None:
    topics = [Message(name=name, topic_id=NO_TOPIC_ID)]
    response = await broker.call(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=60_000)
    assert response.responses[0].error_code == ErrorCode.NONE


def test_session_errors_over_the_wire(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            topic_id = await broker.create_topic("orders")
            session_id = fetch(broker, ("orders", [partition()]), session_epoch=0).session_id
            assert session_id > 0
            by_name: list[tuple[int, int, ErrorCode]] = [
                (session_id + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
                (session_id, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
                (session_id, 1, ErrorCode.NONE),
            ]
            for wanted_id, epoch, expected in by_name:
                response = fetch(broker, session_id=wanted_id, session_epoch=epoch)
                assert (response.error_code, response.responses) == (expected, [])
            with_ids = fetch(broker, (topic_id, [partition()]), version=13, session_id=session_id, session_epoch=2)
            assert with_ids.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    asyncio.run(main())


async def waiting(answer: Reply | Awaitable[Reply | None] | None) -> "asyncio.Task[Reply | None]":
    assert answer is not None
    assert not isinstance(answer, list), "the answer did not wait"
    task: asyncio.Task[Reply | None] = asyncio.ensure_future(answer)
    await settle()
    assert not task.done()
    return task


async def response_of(task: "asyncio.Task[Reply | None]", version: int = VERSION) -> Message:
    reply = await task
    assert reply is not None
    return decode(ApiKey.FETCH, version, reply)


def poll(broker: Broker, *topics: tuple[str | UUID, list[Message]], **more: Any) -> Any:
    return broker.send(ApiKey.FETCH, VERSION, **fields(*topics, **{"max_wait_ms": 60_000, **more}))


def test_an_append_wakes_a_long_poll(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            task = await waiting(poll(broker, ("orders", [partition(0), partition(1)])))
            broker.append("orders", b"a", partition=1)
            response = await response_of(task)
            assert [bases(result.records) for result in response.responses[0].partitions] == [[], [0]]
            assert len(broker.services.pending) == 0

    asyncio.run(main())


def test_uncommitted_records_wake_followers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            state = broker.replica("orders").state
            state.set_leader(1, leader_epoch=0, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
            follower = await waiting(poll(broker, ("orders", [partition()]), replica_id=2))
            consumer = await waiting(poll(broker, ("orders", [partition()])))
            broker.append("orders", b"a")
            assert bases(only(await response_of(follower)).records) == [0]
            await settle()
            assert not consumer.done()
            follower = await waiting(poll(broker, ("orders", [partition(offset=1)]), replica_id=2))
            assert bases(only(await response_of(consumer)).records) == [0]
            follower.cancel()

    asyncio.run(main())


def test_long_poll_waits_for_min_bytes_over_all_partitions(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            broker.append("orders", b"a")
            size = len(batch(b"a"))
            task = await waiting(poll(broker, ("orders", [partition(0), partition(1)]), min_bytes=3 * size))
            broker.append("orders", b"b", partition=1)
            await settle()
            assert not task.done()
            broker.append("orders", b"c", partition=1)
            response = await response_of(task)
            assert [bases(result.records) for result in response.responses[0].partitions] == [[0], [0, 1]]

    asyncio.run(main())


def test_long_poll_ends_at_its_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            broker.append("orders", b"a")
            answer = poll(broker, ("orders", [partition()]), max_wait_ms=1, min_bytes=10_000)
            assert answer is not None
            assert not isinstance(answer, list), "the answer did not wait"
            assert bases(only(await response_of(asyncio.ensure_future(answer))).records) == [0]

    asyncio.run(main())


def test_long_poll_ends_when_the_topic_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            task = await waiting(poll(broker, ("orders", [partition()])))
            await delete(broker, "orders")
            assert only(await response_of(task)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(main())


def test_long_poll_ends_when_the_epoch_changes(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            task = await waiting(poll(broker, ("orders", [partition(current_leader_epoch=0)])))
            replica = broker.replica("orders")
            replica.state.set_leader(1, leader_epoch=1, partition_epoch=1, replicas=(1,), isr=(1,))
            broker.services.pending.wake(replica.state.topic_partition)
            assert only(await response_of(task)).error_code == ErrorCode.FENCED_LEADER_EPOCH

    asyncio.run(main())


def test_an_error_ends_the_wait_but_a_missing_topic_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            at_once = poll(broker, ("orders", [partition(offset=9)]))
            assert isinstance(at_once, list)
            assert isinstance(poll(broker, ("missing", [partition()])), list)
            assert isinstance(poll(broker), list)
            task = await waiting(poll(broker, ("orders", [partition()]), ("missing", [partition()])))
            broker.append("orders", b"a")
            response = await response_of(task)
            codes = [topic.partitions[0].error_code for topic in response.responses]
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    asyncio.run(main())


def test_lost_connection_leaves_no_waiter(tmp_path: Path) -> None:
    """Without the limit, a client could fill the memory with fetches that wait for weeks."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            listener = Listener("127.0.0.1", 0, broker.dispatcher.handle)
            await listener.start()
            _, writer = await asyncio.open_connection("127.0.0.1", listener.bound_port)
            frame = request_frame(ApiKey.FETCH, VERSION, **fields(("orders", [partition()]), max_wait_ms=2**31 - 1))
            writer.write(len(frame).to_bytes(4, "big") + frame)
            while len(broker.services.pending) == 0:
                await asyncio.sleep(0.001)
            writer.transport.abort()
            while len(broker.services.pending) > 0:
                await asyncio.sleep(0.001)
            await listener.close()

    asyncio.run(main())


def test_min_bytes_zero_does_not_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            assert isinstance(poll(broker, ("orders", [partition()]), min_bytes=0), list)

    asyncio.run(main())


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 2)),
        st.tuples(st.just("subscribe"), st.integers(0, 2)),
        st.tuples(st.just("fetch"), st.integers(1, 3)),
    ),
    min_size=5,
    max_size=40,
)


class IncrementalReader:
    """A consumer with a session, and the state of each partition that it has received."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._session_id, self._epoch = 0, 0
        self._sent: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.known: dict[int, tuple[int, int, int]] = {}
        self.batches: dict[int, list[bytes]] = {}

    def fetch(self, max_batches: int) -> None:
        wanted = {i: offset for i, offset in self.positions.items() if self._sent.get(i) != offset}
        forgotten = [index for index in self._sent if index not in self.positions]
        response = fetch(
            self._broker,
            ("orders", [partition(index, offset) for index, offset in wanted.items()]),
            session_id=self._session_id,
            session_epoch=self._epoch,
            max_bytes=max_batches * len(batch(b"a")),
            forgotten_topics_data=[Message(topic="orders", partitions=forgotten)] if forgotten else [],
        )
        assert response.error_code == ErrorCode.NONE
        self._sent = dict(self.positions)
        self._session_id, self._epoch = response.session_id, self._epoch + 1 if response.session_id else 0
        if not response.session_id:
            self._sent = {}
        for topic in response.responses:
            for result in topic.partitions:
                self._learn(result)

    def _learn(self, result: Message) -> None:
        index = result.partition_index
        self.known[index] = (result.error_code, result.high_watermark, result.log_start_offset)
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions[index] = self._broker.replica("orders", index).log.start_offset
        for position, header in iterate_headers(result.records):
            assert header.base_offset >= self.positions[index]
            self.positions[index] = header.last_offset + 1
            self.batches[index].append(result.records[position : position + header.size_bytes])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_incremental_fetches_return_the_same_as_full_ones(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    async def main() -> None:
        async with running(tmp_path_factory.mktemp("model")) as broker:
            await broker.create_topic("orders", partitions=3)
            reader = IncrementalReader(broker)
            for action, number in steps:
                if action == "append":
                    broker.append("orders", b"a", partition=number)
                elif action == "delete":
                    broker.replica("orders", number).delete_records(-1)
                elif action == "subscribe" and number in reader.positions:
                    del reader.positions[number]
                elif action == "subscribe":
                    reader.positions[number] = broker.replica("orders", number).log.start_offset
                    reader.batches.setdefault(number, [])
                elif reader.positions:
                    before = dict(reader.positions)
                    reader.fetch(number)
                    check_against_full_fetch(broker, reader, before)

    asyncio.run(main())


def check_against_full_fetch(broker: Broker, reader: IncrementalReader, before: dict[int, int]) -> None:
    for index, offset in before.items():
        full = only(fetch(broker, ("orders", [partition(index, offset)])))
        assert reader.known[index] == (full.error_code, full.high_watermark, full.log_start_offset)
        if full.error_code == ErrorCode.NONE and reader.positions[index] > offset:
            assert full.records.startswith(reader.batches[index][-1]) or reader.batches[index][-1] in full.records
