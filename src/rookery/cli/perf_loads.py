"""The loads of `rookery perf`: they run the client, measure it, and show the progress."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.base.types import TopicPartition
from rookery.cli.errors import CommandError
from rookery.cli.histogram import Histogram
from rookery.cli.progress import Progress
from rookery.cli.session import with_consumer, with_producer

if TYPE_CHECKING:
    import pyarrow

    from rookery.client.consume.consumer import Consumer
    from rookery.client.produce.producer import Producer
    from rookery.client.produce.records import RecordMetadata

_VALUES = 1000
_SEED = 7
# Timing every record would change the measurement.
_SAMPLED_EVERY = 16
_PACED_EVERY = 10
_CHUNK = 10_000
_POLL_S = 0.2
_DEFAULTS: Mapping[str, object] = {"auto.offset.reset": "earliest", "max.poll.records": 10_000}

Config = Mapping[str, object]


@dataclass(slots=True)
class Measured:
    records: int = 0
    size_bytes: int = 0
    elapsed_s: float = 0.0
    durations: Histogram = field(default_factory=Histogram)

    @property
    def records_per_s(self) -> float:
        return self.records / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def megabytes_per_s(self) -> float:
        return self.size_bytes / 1e6 / self.elapsed_s if self.elapsed_s else 0.0

    def as_json(self) -> dict[str, Any]:
        bars = [asdict(bar) for bar in self.durations.bars()]
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": self.elapsed_s,
            "records_per_second": self.records_per_s,
            "megabytes_per_second": self.megabytes_per_s,
            "latency_ms": self.durations.summary(),
            "histogram": bars,
        }


def values_of(size_bytes: int, payload_file: Path | None) -> list[bytes]:
    """Return the values to send in turn: the lines of a file, or text that compresses like typical events."""
    if payload_file is not None:
        lines = payload_file.read_bytes().splitlines()
        if not lines:
            raise CommandError(f"{payload_file} has no lines to send")
        return lines
    generator = random.Random(_SEED)
    words = [bytes(generator.choices(b"abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(64)]
    text = b" ".join(generator.choices(words, k=(size_bytes + 7) // 7 + 64))
    return [text[start : start + size_bytes] for start in (generator.randrange(448) for _ in range(_VALUES))]


def produce_records(config: Config, topic: str, values: Sequence[bytes], records: int, rate: int | None) -> Measured:
    async def work(producer: "Producer[bytes, bytes]") -> Measured:
        await producer.partitions_for(topic)
        with Progress("producing", total_bytes=None) as progress:
            return await _RecordSender(producer, topic, progress).run(values, records, rate)

    return with_producer(config, work)


class _RecordSender:
    def __init__(self, producer: "Producer[bytes, bytes]", topic: str, progress: Progress) -> None:
        self._producer = producer
        self._topic = topic
        self._progress = progress
        self._now_s = asyncio.get_running_loop().time
        self._measured = Measured()
        self._failure: BaseException | None = None

    async def run(self, values: Sequence[bytes], records: int, rate: int | None) -> Measured:
        measured, started_s = self._measured, self._now_s()
        chunk = min(_CHUNK, records) if rate is None else max(1, min(_CHUNK, rate // _PACED_EVERY))
        source = cycle(values)
        while measured.records < records and self._failure is None:
            if rate is not None:
                await asyncio.sleep(max(0.0, started_s + measured.records / rate - self._now_s()))
            batch = list(islice(source, min(chunk, records - measured.records)))
            for index, value in enumerate(batch):
                sent = await self._producer.send(self._topic, value)
                if not index % _SAMPLED_EVERY:
                    sent.add_done_callback(partial(self._settle, self._now_s()))
            self._count(len(batch), sum(map(len, batch)))
        await self._producer.flush()
        measured.elapsed_s = self._now_s() - started_s
        self._check()
        return measured

    def _check(self) -> None:
        """Raise the failure of a sampled record, or an error for failures that only the producer counted."""
        if self._failure is not None:
            raise self._failure
        failed = sum(
            value
            for metric, value in self._producer.metrics().items()
            if (metric.group, metric.name) == ("producer-metrics", "record-error-total")
        )
        if failed:
            raise CommandError(f"{failed:,.0f} of {self._measured.records:,} records were not acknowledged")

    def _count(self, records: int, size_bytes: int) -> None:
        self._measured.records += records
        self._measured.size_bytes += size_bytes
        self._progress.advance(records=records, size_bytes=size_bytes)

    def _settle(self, sent_s: float, sent: "asyncio.Future[RecordMetadata]") -> None:
        failure = None if sent.cancelled() else sent.exception()
        self._failure = self._failure or failure
        if failure is None:
            self._measured.durations.add((self._now_s() - sent_s) * 1000)


def produce_columns(config: Config, topic: str, values: Sequence[bytes], records: int) -> Measured:
    import pyarrow as pa

    batch = pa.record_batch({"value": pa.array(list(islice(cycle(values), min(_CHUNK, records))), pa.binary())})

    async def work(producer: "Producer[bytes, bytes]") -> Measured:
        measured, now_s = Measured(), asyncio.get_running_loop().time
        await producer.partitions_for(topic)
        # Load the libraries (and on a new machine, compile) before the measurement.
        await (await producer.send_arrow(batch.slice(0, 0), topic))
        with Progress("producing", total_bytes=None) as progress:
            started_s = now_s()
            pending = []
            while measured.records < records:
                rows = batch.slice(0, min(batch.num_rows, records - measured.records))
                pending.append(_timed(await producer.send_arrow(rows, topic), measured.durations))
                size_bytes = sum(map(len, islice(cycle(values), rows.num_rows)))
                measured.records += rows.num_rows
                measured.size_bytes += size_bytes
                progress.advance(records=rows.num_rows, size_bytes=size_bytes)
            await producer.flush()
            await asyncio.gather(*pending)
            measured.elapsed_s = now_s() - started_s
        return measured

    return with_producer(config, work)


def _timed(sent: "asyncio.Future[Any]", durations: Histogram) -> "asyncio.Future[Any]":
    now_s = asyncio.get_running_loop().time
    started_s = now_s()
    sent.add_done_callback(lambda _: durations.add((now_s() - started_s) * 1000))
    return sent


def consume_topic(config: Config, topic: str, records: int | None, *, columns: bool) -> Measured:
    from rookery.client.consume.records import BEGINNING

    merged = {**_DEFAULTS, **config}

    async def work(consumer: "Consumer[bytes, bytes]") -> Measured:
        if columns:
            # Load the libraries (and on a new machine, compile) before the measurement.
            await consumer.read_arrow(topic, end=BEGINNING)
        reader = _TopicReader(consumer, records, poll_records_max=int(str(merged["max.poll.records"])), columns=columns)
        with Progress("consuming", total_bytes=None) as progress:
            return await reader.run(topic, progress)

    return with_consumer(merged, work)


class _TopicReader:
    """Reads until the wanted number of records, or until the end offsets; there may be fewer records than offsets."""

    def __init__(
        self, consumer: "Consumer[bytes, bytes]", records: int | None, *, poll_records_max: int, columns: bool
    ) -> None:
        self._consumer = consumer
        self._wanted = records
        self._poll_records_max = poll_records_max
        self._columns = columns
        self._measured = Measured()

    async def run(self, topic: str, progress: Progress) -> Measured:
        consumer, measured, now_s = self._consumer, self._measured, asyncio.get_running_loop().time
        partitions = [TopicPartition(topic, p.index) for p in await consumer.partitions_for(topic)]
        first, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        unread = [tp for tp in partitions if first[tp] < ends[tp]]
        started_s = polled_s = now_s()
        consumer.assign(partitions)
        while unread and measured.records != self._wanted:
            count, size_bytes = await self._poll()
            ended_s = now_s()
            if count:
                # After the last record, polls may return only markers or nothing: these are not measured.
                measured.durations.add((ended_s - polled_s) * 1000)
                measured.elapsed_s = ended_s - started_s
                measured.records += count
                measured.size_bytes += size_bytes
                progress.advance(records=count, size_bytes=size_bytes)
            polled_s = ended_s
            unread = [tp for tp in unread if await consumer.position(tp) < ends[tp]]
        return measured

    async def _poll(self) -> tuple[int, int]:
        """Poll once; return the number of records and the size of their keys and values."""
        remaining = None if self._wanted is None else self._wanted - self._measured.records
        if self._columns:
            batch = (await self._consumer.poll_arrow(_POLL_S)).slice(0, remaining)
            return batch.num_rows, _binary_size(batch.column("key")) + _binary_size(batch.column("value"))
        count_max = None if remaining is None else min(remaining, self._poll_records_max)
        found = await self._consumer.poll(_POLL_S, max_records=count_max)
        return len(found), sum(len(record.key or b"") + len(record.value or b"") for record in found)


def _binary_size(column: "pyarrow.Array") -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(column)).as_py() or 0
