"""The Arrow methods of the consumer, against a real broker."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import arrow
from rookery.client.consume.columns import ColumnMethods
from rookery.client.consume.ranges import FetchedRange, OffsetRange, _check
from rookery.client.consume.records import BEGINNING, END, Timestamp
from rookery.client.errors import ClientStateError, CorruptRecordError, OffsetOutOfRangeError
from rookery.protocol.fetch import FetchedPartition
from rookery.records.batch import Codec
from rookery.testing import EmbeddedBroker
from tests.client.consume.support import START_MS, TP, append, batch, consuming, new_topic, read_values

Test = Callable[[str, TopicPartition, TopicPartition], Coroutine[Any, Any, None]]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def run(broker: EmbeddedBroker, work: Test) -> None:
    """Call `work(bootstrap, partition 0, partition 1)`: the first has values 0 to 9, in three batches, the second 100
    to 102."""
    topic = new_topic()
    broker.create_topic(topic, partitions=2, config={"retention.ms": "-1"})

    async def bounded() -> None:
        tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
        bootstrap = broker.bootstrap_servers
        async with asyncio.timeout(60):
            for first, last, codec in ((0, 4, Codec.NONE), (4, 7, Codec.ZSTD), (7, 10, Codec.NONE)):
                values = [b"%d" % number for number in range(first, last)]
                await append(bootstrap, tp, values, keys=values, codec=codec, start_ms=START_MS + 1000 * first)
            await append(bootstrap, other, [b"100", b"101", b"102"])
            await work(bootstrap, tp, other)

    asyncio.run(bounded())


def values_of(batch: Any, partition: int) -> list[int]:
    rows = zip(batch["partition"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return [int(value) for index, value in rows if index == partition]


def test_polls_in_columns(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        async with consuming(bootstrap, tp, other, config={"group.id": tp.topic}) as consumer:
            batches: list[Any] = []
            while sum(batch.num_rows for batch in batches) < 13:
                batches.append(await consumer.poll_arrow(10))
            assert batches[0].schema.names == COLUMNS
            assert [n for batch in batches for n in values_of(batch, 0)] == list(range(10))
            assert [n for batch in batches for n in values_of(batch, 1)] == [100, 101, 102]
            assert (await consumer.position(tp), consumer.lag(tp)) == (10, 0)
            await consumer.commit()
            committed = await consumer.committed([tp, other])
            assert [(tp.offset, tp.leader_epoch) for tp in committed.values()] == [(10, 0), (3, 0)]
            nothing = await consumer.poll_arrow(0.01)
            assert (nothing.num_rows, nothing.schema.names) == (0, COLUMNS)

    run(broker, work)


def test_records_and_columns_share_positions(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        async with consuming(bootstrap, tp) as consumer:
            assert [record.value for record in await consumer.poll(10, max_records=2)] == [b"0", b"1"]
            batch = await consumer.poll_arrow(10)
            assert values_of(batch, 0) == list(range(2, 10))
            consumer.seek(tp, 8)
            assert await read_values(consumer, 2) == [b"8", b"9"]

    run(broker, work)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (BEGINNING, END, (list(range(10)), [100, 101, 102])),
        (2, 5, ([2, 3, 4], [102])),
        ({0: 6}, END, ([6, 7, 8, 9], [])),
        ({0: BEGINNING, 1: 1}, {0: 3}, ([0, 1, 2], [101, 102])),
        (BEGINNING, {1: 1}, ([], [100])),
        (Timestamp(START_MS + 7500), END, ([8, 9], [])),
        (0, Timestamp(START_MS + 1000), ([0], [100])),
        (0, 1000, (list(range(10)), [100, 101, 102])),
        (END, END, ([], [])),
    ],
)
def test_ranges(broker: EmbeddedBroker, start: Any, end: Any, expected: tuple[list[int], list[int]]) -> None:
    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        async with consuming(bootstrap) as consumer:
            batch = await consumer.read_arrow(tp.topic, start, end)
            assert batch.schema.names == COLUMNS
            assert (values_of(batch, 0), values_of(batch, 1)) == expected
            assert consumer.assignment() == set()

    run(broker, work)


def test_reading_a_range_in_pieces_does_not_change_positions(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        config: dict[str, object] = {"max.partition.fetch.bytes": 80, "fetch.max.bytes": 100}
        async with consuming(bootstrap, tp, config=config) as consumer:
            position = await consumer.position(tp)
            batches = [batch async for batch in consumer.iterate_arrow(tp.topic)]
            assert len(batches) > 2
            assert [n for batch in batches for n in values_of(batch, 0)] == list(range(10))
            assert (await consumer.read_arrow(tp.topic)).num_rows == 13
            assert await consumer.position(tp) == position

    run(broker, work)


def test_ranges_that_do_not_exist(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        async with consuming(bootstrap) as consumer:
            with pytest.raises(ApiError) as caught:
                await consumer.read_arrow("no-such-topic")
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for invalid in ("end", 1.5, None, True, {0: "end"}, {0: b""}, Timestamp("1")):  # type: ignore[arg-type]
                for start, end in ((invalid, END), (BEGINNING, invalid)):
                    with pytest.raises(TypeError, match="offset, BEGINNING, END or Timestamp"):
                        await consumer.read_arrow(tp.topic, start, end)  # type: ignore[arg-type]
            for negative in (-1, {0: -5}, Timestamp(-1)):
                with pytest.raises(ValueError, match="negative"):
                    await consumer.read_arrow(tp.topic, negative)
            with pytest.raises(TypeError, match="'0' is not a partition"):
                await consumer.read_arrow(tp.topic, {"0": 1})  # type: ignore[dict-item]
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.read_arrow(tp.topic)

    run(broker, work)


def test_errors_of_a_range() -> None:
    deleted = FetchedPartition(0, ErrorCode.OFFSET_OUT_OF_RANGE, 9, 9, 5, None, -1, None, None, None)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 has no offset 3") as caught:
        _check(TP, OffsetRange(3, 9), deleted)
    assert "auto.offset.reset" not in str(caught.value)
    with pytest.raises(CorruptRecordError, match="no whole batch"):
        _check(TP, OffsetRange(3, 9), deleted._replace(error_code=0, records=memoryview(b"x" * 70)))


def _pieces(*runs: bytes) -> list[FetchedRange]:
    return [
        FetchedRange(TopicPartition("t", index), OffsetRange(0, 50), memoryview(data), None)
        for index, data in enumerate(runs)
    ]


def _decoded(pieces: list[FetchedRange]) -> tuple[dict[int, list[int]], CorruptRecordError | None]:
    settings: Any = SimpleNamespace(_settings=SimpleNamespace(read_committed=False, check_crcs=True))
    batches, failure = ColumnMethods._decode_pieces(settings, pieces)
    found: dict[int, list[int]] = {}
    for each in batches:
        for index, offset in zip(each["partition"].to_pylist(), each["offset"].to_pylist(), strict=True):
            found.setdefault(index, []).append(offset)
    return found, failure


def test_a_round_that_does_not_fit_one_batch_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_DECODED_SIZE_MAX", 2500)
    run_of_five = b"".join(batch(first, *[b"x" * 100] * 10) for first in range(0, 50, 10))
    found, failure = _decoded(_pieces(run_of_five, run_of_five, run_of_five))
    assert found == {index: list(range(50)) for index in range(3)}
    assert failure is None


@pytest.mark.parametrize("place", [-2, 16])
def test_the_error_of_a_damaged_run_follows_the_records_of_the_others(place: int) -> None:
    damaged = bytearray(batch(0, b"a") + batch(1, b"b"))
    damaged[place if place > 0 else len(batch(0, b"a")) + place] ^= 1
    found, failure = _decoded(_pieces(bytes(damaged), batch(0, b"a", b"b")))
    assert found == {1: [0, 1]}
    assert failure is not None
    assert failure.partition == TP


def test_records_of_partitions_unassigned_during_a_poll_are_dropped(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task assigns while a thread decodes: positions move only for the records that the poll returns."""
    may_decode = threading.Event()
    really = arrow.decode_fetched

    def decode_later(runs: Any) -> Any:
        assert may_decode.wait(10)
        return really(runs)

    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        await append(bootstrap, other, [b"." * 2000] * 200)
        async with consuming(bootstrap, tp, other) as consumer:
            while len(consumer._fetcher._buffers) < 2:
                await asyncio.sleep(0.01)
            _gone, kept = list(consumer._fetcher._buffers)
            await consumer._load_arrow()
            monkeypatch.setattr(arrow, "decode_fetched", decode_later)
            poll = asyncio.create_task(consumer.poll_arrow(10))
            while consumer._fetcher._buffers:
                await asyncio.sleep(0)
            consumer.assign([kept])
            may_decode.set()
            offsets = await poll
            assert set(offsets.column("partition").to_pylist()) == {kept.partition}
            assert await consumer.position(kept) == offsets.num_rows

    run(broker, work)


def test_a_cancelled_poll_loses_no_records_and_a_seek_takes_effect(broker: EmbeddedBroker) -> None:
    async def work(bootstrap: str, tp: TopicPartition, other: TopicPartition) -> None:
        for _ in range(3):
            await append(bootstrap, other, [b"." * 2000] * 200)
        async with consuming(bootstrap, other) as consumer:
            while other not in consumer._fetcher._buffers:
                await asyncio.sleep(0.01)
            await consumer._load_arrow()
            poll = asyncio.create_task(consumer.poll_arrow(10))
            # Wait until the thread is decoding.
            while other in consumer._fetcher._buffers:
                await asyncio.sleep(0)
            assert await consumer.position(other) == 0
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            offsets: list[int] = []
            while len(offsets) < 603:
                offsets += (await consumer.poll_arrow(10)).column("offset").to_pylist()
            assert offsets == list(range(603))
            consumer.seek(other, 0)
            while other not in consumer._fetcher._buffers:
                await asyncio.sleep(0.01)
            poll = asyncio.create_task(consumer.poll_arrow(10))
            while other in consumer._fetcher._buffers:
                await asyncio.sleep(0)
            consumer.seek(other, 600)
            # The records that were being decoded are left out.
            assert (await poll).column("offset").to_pylist() == [600, 601, 602]
            assert await consumer.position(other) == 603

    run(broker, work)
