"""What the fetcher makes of answers, without a network: which it keeps, which it asks for, and of whom."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.consume.decoder import Deserializers
from rookery.client.consume.fetcher import Fetcher
from rookery.client.consume.plans import Node
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

    def answer(self, plan: Any, tp: TopicPartition, records: bytes | memoryview, error: int = 0) -> None:
        row = FetchedPartition(tp.partition, error, 3, 3, 0, None, -1, memoryview(records), None, None)
        self.fetcher._on_row(plan, tp, row, [])

    def offsets(self) -> list[int]:
        return [record.offset for record in self.fetcher.take(100)]


def test_of_two_brokers_answers_one_is_taken() -> None:
    scene = Scene(TP)
    (first,) = scene.fetcher._plans(0.0)
    scene.leader = 2
    (second,) = scene.fetcher._plans(0.0)
    assert (first.node, second.node) == (1, 2)
    data = batch(0, b"a", b"b", b"c")
    scene.answer(first, TP, data)
    # The second may come before the first is handed out, or after.
    (buffer,) = scene.fetcher.take_runs()
    scene.answer(second, TP, data)
    assert scene.fetcher.take_runs() == [buffer]
    assert scene.offsets() == [0, 1, 2]
    scene.answer(second, TP, data)
    assert scene.offsets() == []
    position = scene.subscription.state(TP).position
    assert position is not None
    assert position.offset == 3


def test_a_request_that_waits_at_the_old_leader_is_given_up() -> None:
    async def run() -> None:
        scene = Scene(TP)
        (first,) = scene.fetcher._plans(0.0)
        node = scene.fetcher._nodes[1] = Node()
        node.waiting = first
        node.task = asyncio.ensure_future(asyncio.sleep(600))
        scene.leader = 2
        (second,) = scene.fetcher._plans(0.0)
        scene.fetcher._give_up_elsewhere(second, 0.0)
        assert node.is_given_up
        assert node.task is not None
        with pytest.raises(asyncio.CancelledError):
            await node.task

    asyncio.run(run())


def test_a_look_ahead_that_leads_nowhere_leaves_the_position_alone() -> None:
    """A damaged header may name any offset."""

    async def run() -> None:
        scene = Scene(TP)
        fetcher, state = scene.fetcher, scene.subscription.state(TP)
        (plan,) = fetcher._plans(0.0)
        scene.answer(plan, TP, batch(0, b"a"))
        (buffer,) = fetcher.take_runs()
        fetcher.fetch_behind(buffer, FetchPosition(10**12))
        (plan,) = fetcher._plans(0.0)
        assert plan.asked[TP].position.offset == 10**12
        scene.answer(plan, TP, b"", ErrorCode.OFFSET_OUT_OF_RANGE)
        assert (state.stage, state.position) == (Stage.READY, FetchPosition(0))
        # Not from the position: that is being decoded. And not again at once.
        assert fetcher._plans(asyncio.get_running_loop().time()) == []
        fetcher.note_run_taken(buffer, position=FetchPosition(1), count=1)
        (plan,) = fetcher._plans(0.0)
        assert plan.asked[TP].position.offset == 1

    asyncio.run(run())


def test_a_buffer_that_is_stuck_does_not_starve_the_others() -> None:
    scene = Scene(TP, TP1, value=lambda topic, value: int(value))
    (plan,) = scene.fetcher._plans(0.0)
    scene.answer(plan, TP, batch(0, b"no number"))
    (plan,) = scene.fetcher._plans(0.0)
    assert (plan.is_peek, list(plan.asked)) == (True, [TP1])
    with pytest.raises(SerializationError):
        scene.fetcher.take(10)
    (plan,) = scene.fetcher._plans(0.0)
    assert (plan.is_peek, list(plan.asked)) == (False, [TP1])


@pytest.mark.parametrize("answer", [b"x" * 7, batch(0, b"a")[:-1]])
def test_an_answer_without_a_whole_batch_is_an_error_and_is_asked_for_again(answer: bytes) -> None:
    scene = Scene(TP)
    (plan,) = scene.fetcher._plans(0.0)
    scene.answer(plan, TP, answer)
    assert scene.fetcher._plans(0.0) == []
    failure = scene.subscription.take_failure()
    assert isinstance(failure, CorruptRecordError)
    assert "no whole batch" in str(failure)
    assert "seek to 1" not in str(failure)
    (plan,) = scene.fetcher._plans(0.0)
    scene.answer(plan, TP, batch(0, b"a"))
    assert scene.offsets() == [0]


@pytest.mark.parametrize("share", [1, 2])
def test_what_a_pause_keeps_back_does_not_keep_the_answer_in_memory(share: int) -> None:
    scene = Scene(TP)
    (plan,) = scene.fetcher._plans(0.0)
    data = batch(0, b"a")
    frame = bytearray(data * share)
    scene.answer(plan, TP, memoryview(frame)[: len(data)])
    scene.subscription.pause(TP)
    assert scene.fetcher._buffers[TP].run.data.obj is frame
    assert scene.offsets() == []
    kept = scene.fetcher._buffers[TP].run.data
    assert kept == data
    assert (kept.obj is not frame) == (share > 1)
    scene.subscription.resume(TP)
    assert scene.offsets() == [0]


def test_what_the_broker_found_damaged_has_no_known_end() -> None:
    scene = Scene(TP)
    (plan,) = scene.fetcher._plans(0.0)
    scene.answer(plan, TP, b"", ErrorCode.CORRUPT_MESSAGE)
    assert "seek to 1 " not in str(scene.subscription.take_failure())
