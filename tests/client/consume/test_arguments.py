"""Calls that make no sense are refused where they are made, by an error that says what would."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rookery.base.types import TopicPartition
from rookery.client.consume.consumer import Consumer
from rookery.client.consume.records import OffsetAndMetadata, partition_of, partitions_of
from tests.client.consume.support import TP, TP1

CONFIG: dict[str, object] = {"bootstrap.servers": "localhost:1", "group.id": "g"}


def with_consumer(work: Callable[[Consumer[Any, Any]], Awaitable[None]]) -> None:
    """No broker is there: nothing of this asks one."""

    async def run() -> None:
        consumer = Consumer[Any, Any](CONFIG | {"enable.auto.commit": False})
        try:
            await work(consumer)
        finally:
            await consumer.close(timeout_s=0)

    asyncio.run(run())


@pytest.mark.parametrize(
    "given", [[TP, TP1], (TP, TP1), (("t", 0), ("t", 1)), ([TP], TP1), ([TP, TP1],), iter([TP, TP1])]
)
def test_partitions_in_any_form(given: Any) -> None:
    assert partitions_of(given) == [TP, TP1]


def test_one_partition_is_as_good_as_several() -> None:
    assert partitions_of(TP) == partitions_of(("t", 0)) == partitions_of([("t", 0)]) == [TP]
    assert partition_of(("t", 1)) == TP1
    assert partitions_of([]) == []


@pytest.mark.parametrize("nonsense", ["t", 5, None, ["t"], [5], [("t", "0")], [("t", True)], {"t": 0}, [[["t", 0]]]])
def test_what_is_no_partition_is_named(nonsense: Any) -> None:
    with pytest.raises(TypeError, match="is no partition: give a TopicPartition"):
        partitions_of(nonsense)
    with pytest.raises(TypeError, match="is no partition: give a TopicPartition"):
        partition_of(nonsense)


def test_methods_take_one_partition_or_several() -> None:
    async def work(consumer: Consumer[Any, Any]) -> None:
        consumer.assign(TP)
        assert consumer.assignment() == {TP}
        consumer.assign([TP, ("t", 1)])
        for partitions in ((TP, TP1), ([TP, TP1],)):
            consumer.pause(*partitions)
            assert consumer.paused() == {TP, TP1}
            consumer.resume(*partitions)
            assert consumer.paused() == set()
            consumer.seek_to_end(*partitions)
        calls: list[Callable[[Any], object]] = [
            consumer.assign,
            consumer.pause,
            consumer.seek_to_beginning,
            consumer.lag,
        ]
        for call in calls:
            with pytest.raises(TypeError, match="'t' is no partition"):
                call("t")
        with pytest.raises(TypeError, match="'t' is no partition"):
            await consumer.committed("t")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="'t' is no partition"):
            await consumer.end_offsets("t")  # type: ignore[arg-type]

    with_consumer(work)


@pytest.mark.parametrize("nonsense", [-5, True, 1.5, None, "7", OffsetAndMetadata(-1), OffsetAndMetadata(False)])
def test_what_is_no_offset_is_named_with_its_partition(nonsense: Any) -> None:
    async def work(consumer: Consumer[Any, Any]) -> None:
        consumer.assign([TP])
        with pytest.raises(ValueError, match="partition t-0 has no offset"):
            await consumer.commit({TP: nonsense})
        with pytest.raises(ValueError, match="partition t-0 has no offset"):
            consumer.commit_async({TP: nonsense})
        with pytest.raises(ValueError, match="partition t-0 has no offset"):
            consumer.seek(TopicPartition("t", 0), nonsense)

    with_consumer(work)


def test_a_listener_has_to_listen() -> None:
    async def work(consumer: Consumer[Any, Any]) -> None:
        with pytest.raises(TypeError, match="no RebalanceListener: it has no on_partitions_assigned"):
            consumer.subscribe(["t"], print)  # type: ignore[arg-type]
        assert consumer.subscription() == set()

    with_consumer(work)
