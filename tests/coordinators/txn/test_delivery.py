"""Markers are delivered until every partition has them, with a writer that fails on demand."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.txn import delivery
from rookery.coordinators.txn.delivery import Delivery
from rookery.records.control import Marker

MARKER = Marker(7, 2, True, 5)
A, B, C = (TopicPartition("t", index) for index in range(3))


class Writer:
    """Resolves each write with the partition's next code; with `wait`, after a short delay."""

    def __init__(self, codes: dict[TopicPartition, list[ErrorCode]], *, wait: bool = False) -> None:
        self._codes = codes
        self._wait = wait
        self.written: list[TopicPartition] = []

    def write(
        self, partition: TopicPartition, marker: Marker, is_wanted: Callable[[], bool]
    ) -> "asyncio.Future[ErrorCode]":
        assert marker == MARKER
        self.written.append(partition)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ErrorCode] = loop.create_future()
        codes = self._codes.get(partition, [])
        code = codes.pop(0) if codes else ErrorCode.NONE
        if self._wait:
            loop.call_later(0.001, future.set_result, code)
        else:
            future.set_result(code)
        return future


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_RETRY_FIRST_S", 0.001)


def deliver(
    writer: Writer,
    partitions: Iterable[TopicPartition],
    *,
    is_wanted: Callable[[], bool] = lambda: True,
    expect_done: bool = True,
) -> None:
    async def main() -> None:
        done = asyncio.Event()
        times: list[None] = []

        def finish() -> None:
            times.append(None)
            done.set()

        Delivery(writer, MARKER, partitions, is_wanted=is_wanted, done=finish).start()
        if expect_done:
            await asyncio.wait_for(done.wait(), 60)
        await asyncio.sleep(0.02)
        assert len(times) == expect_done

    asyncio.run(main())


@pytest.mark.parametrize("wait", [False, True])
def test_all_partitions_get_the_marker_once(wait: bool) -> None:
    writer = Writer({}, wait=wait)
    deliver(writer, {C, A, B})
    assert writer.written == [A, B, C]


def test_a_transaction_without_partitions_is_done_immediately() -> None:
    times: list[None] = []

    async def main() -> None:
        Delivery(Writer({}), MARKER, (), is_wanted=lambda: True, done=lambda: times.append(None)).start()
        assert len(times) == 1, "within the call"

    asyncio.run(main())


@pytest.mark.parametrize("wait", [False, True])
def test_only_failed_writes_are_retried(wait: bool) -> None:
    writer = Writer({B: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]}, wait=wait)
    deliver(writer, (A, B))
    assert writer.written == [A, B, B, B]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_partition_that_cannot_be_ended_counts_as_ended(code: ErrorCode) -> None:
    writer = Writer({A: [code]})
    deliver(writer, (A, B))
    assert writer.written == [A, B]


def test_a_fenced_coordinator_stops() -> None:
    writer = Writer({A: [ErrorCode.TRANSACTION_COORDINATOR_FENCED]})
    deliver(writer, (A, B), expect_done=False)
    assert writer.written == [A, B]


def test_a_partition_whose_leader_does_not_respond_delays_no_other() -> None:
    class SlowWriter(Writer):
        def write(
            self, partition: TopicPartition, marker: Marker, is_wanted: Callable[[], bool]
        ) -> "asyncio.Future[ErrorCode]":
            if partition == A:
                return asyncio.get_running_loop().create_future()
            return super().write(partition, marker, is_wanted)

    writer = SlowWriter({B: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2})
    deliver(writer, (A, B), expect_done=False)
    assert writer.written == [B, B, B]


def test_no_write_is_tried_for_an_unloaded_shard() -> None:
    wanted = [True]
    writer = Writer({A: [ErrorCode.NOT_ENOUGH_REPLICAS] * 100})
    deliver(writer, (A,), is_wanted=lambda: bool(wanted) and wanted.pop(), expect_done=False)
    assert writer.written == [A]
