"""Invalid arguments raise immediately, with an error that says what is valid."""

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
    """Run `work` without a broker: none of these calls sends a request."""

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


def test_a_single_partition_needs_no_list() -> None:
    assert partitions_of(TP) == partitions_of(("t", 0)) == partitions_of([("t", 0)]) == [TP]
    assert partition_of(("t", 1)) == TP1
    assert partitions_of([]) == []


@pytest.mark.parametrize("invalid", ["t", 5, None, ["t"], [5], [("t", "0")], [("t", True)], {"t": 0}, [[["t", 0]]]])
def test_invalid_partitions_are_named(invalid: Any) -> None:
    with pytest.raises(TypeError, match="is not a partition: pass a TopicPartition"):
        partitions_of(invalid)
    with pytest.raises(TypeError, match="is not a partition: pass a TopicPartition"):
        partition_of(invalid)


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
            with pytest.raises(TypeError, match="'t' is not a partition"):
                call("t")
        with pytest.raises(TypeError, match="'t' is not a partition"):
            await consumer.committed("t")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="'t' is not a partition"):
            await consumer.end_offsets("t")  # type: ignore[arg-type]

    with_consumer(work)


@pytest.mark.parametrize("invalid", [-5, True, 1.5, None, "7", OffsetAndMetadata(-1), OffsetAndMetadata(False)])
def test_invalid_offsets_are_named_with_their_partition(invalid: Any) -> None:
    async def work(consumer: Consumer[Any, Any]) -> None:
        consumer.assign([TP])
        with pytest.raises(ValueError, match="partition t-0 has no offset"):
            await consumer.commit({TP: invalid})
        with pytest.raises(ValueError, match="partition t-0 has no offset"):
            consumer.commit_async({TP: invalid})
        with pytest.raises(ValueError, match="partition t-0 has no offset"):
            consumer.seek(TopicPartition("t", 0), invalid)

    with_consumer(work)


def test_a_listener_needs_all_methods() -> None:
    async def work(consumer: Consumer[Any, Any]) -> None:
        with pytest.raises(TypeError, match="not a RebalanceListener: it has no on_partitions_assigned"):
            consumer.subscribe(["t"], print)  # type: ignore[arg-type]
        assert consumer.subscription() == set()

    with_consumer(work)
