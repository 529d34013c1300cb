"""The fetcher without a network: which replies it keeps, and which partitions it requests from which broker."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.consume.decoder import Deserializers
from rookery.client.consume.fetch_requests import BrokerState
from rookery.client.consume.fetcher import Fetcher
from rookery.client.consume.subscription import FetchPosition, Stage, Subscription
from rookery.client.errors import CorruptRecordError, SerializationError
from rookery.client.settings.consumer import ConsumerSettings
from rookery.protocol.fetch import FetchedPartition
from tests.client.consume.support import TP, TP1, batch


class Scene:
    """Partitions at offset 0, all led by broker `leader`."""

    def __init__(self, *partitions: TopicPartition, value: Callable[[str, bytes], Any] | None = None) -> None:
        self.leader = 1
        self.subscription = Subscription(has_group=False)
        self.subscription.choose_manually()
        self.subscription.replace_assignment(partitions)
        for tp in partitions:
            self.subscription.seek(tp, FetchPosition(0))
        metadata = SimpleNamespace(
            leader=lambda topic, partition: self.leader, brokers={1: 1, 2: 2}, topics={}, topic_id=lambda topic: None
        )
        cluster: Any = SimpleNamespace(metadata=metadata, backoff_s=lambda attempts: 0.1)
        positions: Any = SimpleNamespace(advance=lambda: None, may_reset=True)
        self.fetcher = Fetcher(
            cluster,
            ConsumerSettings.parse({"bootstrap.servers": "localhost:1"}),
            self.subscription,
            positions,
            deserializers=Deserializers(None, value),
            metrics=None,
            arrived=asyncio.Event(),
        )

    def reply(self, plan: Any, tp: TopicPartition, records: bytes | memoryview, error: int = 0) -> None:
        row = FetchedPartition(tp.partition, error, 3, 3, 0, None, -1, memoryview(records), None, None)
        self.fetcher._on_row(plan, tp, row, [])

    def offsets(self) -> list[int]:
        return [record.offset for record in self.fetcher.take(100)]


def test_of_the_replies_of_two_brokers_one_is_taken() -> None:
    scene = Scene(TP)
    (first,) = scene.fetcher._plans(0.0)
    scene.leader = 2
    (second,) = scene.fetcher._plans(0.0)
    assert (first.node, second.node) == (1, 2)
    data = batch(0, b"a", b"b", b"c")
    scene.reply(first, TP, data)
    # The second may arrive before or after the records of the first are taken.
    (buffer,) = scene.fetcher.take_runs()
    scene.reply(second, TP, data)
    assert scene.fetcher.take_runs() == [buffer]
    assert scene.offsets() == [0, 1, 2]
    scene.reply(second, TP, data)
    assert scene.offsets() == []
    position = scene.subscription.state(TP).position
    assert position is not None
    assert position.offset == 3


def test_a_long_poll_at_the_old_leader_is_abandoned() -> None:
    async def run() -> None:
        scene = Scene(TP)
        (first,) = scene.fetcher._plans(0.0)
        broker = scene.fetcher._brokers[1] = BrokerState()
        broker.long_poll = first
        broker.task = asyncio.ensure_future(asyncio.sleep(600))
        scene.leader = 2
        (second,) = scene.fetcher._plans(0.0)
        scene.fetcher._abandon_at_other_brokers(second, 0.0)
        assert broker.is_abandoned
        assert broker.task is not None
        with pytest.raises(asyncio.CancelledError):
            await broker.task

    asyncio.run(run())


def test_a_fetch_ahead_out_of_range_does_not_change_the_position() -> None:
    """A damaged header may contain any offset."""

    async def run() -> None:
        scene = Scene(TP)
        fetcher, state = scene.fetcher, scene.subscription.state(TP)
        (plan,) = fetcher._plans(0.0)
        scene.reply(plan, TP, batch(0, b"a"))
        (buffer,) = fetcher.take_runs()
        fetcher.fetch_ahead(buffer, FetchPosition(10**12))
        (plan,) = fetcher._plans(0.0)
        assert plan.requested[TP].position.offset == 10**12
        scene.reply(plan, TP, b"", ErrorCode.OFFSET_OUT_OF_RANGE)
        assert (state.stage, state.position) == (Stage.READY, FetchPosition(0))
        # No fetch from the position, whose records are being decoded, and no immediate retry.
        assert fetcher._plans(asyncio.get_running_loop().time()) == []
        fetcher.note_run_taken(buffer, position=FetchPosition(1), count=1)
        (plan,) = fetcher._plans(0.0)
        assert plan.requested[TP].position.offset == 1

    asyncio.run(run())


def test_a_stuck_buffer_does_not_starve_other_partitions() -> None:
    scene = Scene(TP, TP1, value=lambda topic, value: int(value))
    (plan,) = scene.fetcher._plans(0.0)
    scene.reply(plan, TP, batch(0, b"no number"))
    (plan,) = scene.fetcher._plans(0.0)
    assert (plan.is_peek, list(plan.requested)) == (True, [TP1])
    with pytest.raises(SerializationError):
        scene.fetcher.take(10)
    (plan,) = scene.fetcher._plans(0.0)
    assert (plan.is_peek, list(plan.requested)) == (False, [TP1])


@pytest.mark.parametrize("records", [b"x" * 7, batch(0, b"a")[:-1]])
def test_a_reply_without_a_whole_batch_is_an_error_and_is_fetched_again(records: bytes) -> None:
    scene = Scene(TP)
    (plan,) = scene.fetcher._plans(0.0)
    scene.reply(plan, TP, records)
    assert scene.fetcher._plans(0.0) == []
    failure = scene.subscription.take_failure()
    assert isinstance(failure, CorruptRecordError)
    assert "no whole batch" in str(failure)
    assert "seek to 1" not in str(failure)
    (plan,) = scene.fetcher._plans(0.0)
    scene.reply(plan, TP, batch(0, b"a"))
    assert scene.offsets() == [0]


@pytest.mark.parametrize("share", [1, 2])
def test_the_buffer_of_a_paused_partition_does_not_keep_the_response_in_memory(share: int) -> None:
    scene = Scene(TP)
    (plan,) = scene.fetcher._plans(0.0)
    data = batch(0, b"a")
    frame = bytearray(data * share)
    scene.reply(plan, TP, memoryview(frame)[: len(data)])
    scene.subscription.pause(TP)
    assert scene.fetcher._buffers[TP].run.data.obj is frame
    assert scene.offsets() == []
    kept = scene.fetcher._buffers[TP].run.data
    assert kept == data
    assert (kept.obj is not frame) == (share > 1)
    scene.subscription.resume(TP)
    assert scene.offsets() == [0]


def test_the_end_of_a_batch_that_the_broker_found_damaged_is_unknown() -> None:
    scene = Scene(TP)
    (plan,) = scene.fetcher._plans(0.0)
    scene.reply(plan, TP, b"", ErrorCode.CORRUPT_MESSAGE)
    assert "seek to 1 " not in str(scene.subscription.take_failure())
