"""Fetches fixed ranges of offsets for `read_arrow` and `iterate_arrow`, independently of the consumer's own fetching.

It uses no fetch session, has its own connection, and changes neither the assignment nor positions. The next round of
fetches is in flight while the user processes the last one: its offsets come from the batch headers alone, before the
records are decoded.

`RangeProbe` uses the same fetches to find out whether there is anything to read, and how large it is.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, Offset, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.decoder import end_offset, has_whole_batch, no_whole_batch_error
from rookery.client.consume.fetch_requests import CONSUMER_REPLICA_ID, exchange_fetch
from rookery.client.consume.positions import leader_epoch
from rookery.client.errors import OffsetOutOfRangeError
from rookery.client.settings.consumer import ConsumerSettings
from rookery.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from rookery.records.batch import iterate_headers

# A separate connection: on the consumer's own, a range would wait for the long poll.
_LANE: Final = "ranges"
# Another separate connection: a probe may be a long poll, and ranges must not wait for it.
_PROBE_LANE: Final = "probe"
_NO_SESSION: Final = 0
_NO_SESSION_EPOCH: Final = -1


class OffsetRange(NamedTuple):
    position: Offset
    end: Offset


class FetchedRange(NamedTuple):
    """The batches that one fetch returned for a partition; only records from the range's position to its end count."""

    tp: TopicPartition
    range: OffsetRange
    data: memoryview
    aborted: list[tuple[int, Offset]] | None


class StoredRun(NamedTuple):
    """The size of consecutive batches as the broker stores them, compressed or not."""

    size_bytes: int
    offset_count: int


class RangeReader:
    def __init__(self, cluster: Cluster, settings: ConsumerSettings, lane: str = _LANE) -> None:
        self._cluster = cluster
        self._settings = settings
        self._lane = lane

    async def read(self, ranges: Mapping[TopicPartition, OffsetRange]) -> AsyncIterator[list[FetchedRange]]:
        """Yield the data in rounds, with at most one piece per partition in each."""
        left = {tp: each for tp, each in ranges.items() if each.position < each.end}
        next_round: asyncio.Task[list[tuple[TopicPartition, FetchedPartition]]] | None = None
        try:
            while left:
                rows = await (next_round or self._fetch_all(left))
                found = [
                    FetchedRange(tp, left[tp], row.records, row.aborted_transactions) for tp, row in rows if row.records
                ]
                left = {tp: each for tp, each in _remaining(left, rows).items() if each.position < each.end}
                next_round = asyncio.get_running_loop().create_task(self._fetch_all(left)) if left else None
                if found:
                    yield found
        finally:
            if next_round is not None:
                next_round.cancel()
                # Its exception is ignored: either it is the one that ends this generator, or the data is not used.
                await asyncio.gather(next_round, return_exceptions=True)

    async def _fetch_all(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> list[tuple[TopicPartition, FetchedPartition]]:
        """Send one fetch to each leader; retry transient errors."""
        return await self._cluster.retry(lambda: self._fetch_once(ranges))

    async def _fetch_once(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> list[tuple[TopicPartition, FetchedPartition]]:
        by_leader = await self.by_leader(ranges)
        replies = await asyncio.gather(*(self.fetch(node, theirs) for node, theirs in by_leader.items()))
        return [row for rows in replies for row in rows]

    async def by_leader(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[NodeId, dict[TopicPartition, OffsetRange]]:
        found: dict[NodeId, dict[TopicPartition, OffsetRange]] = {}
        for tp, each in ranges.items():
            found.setdefault(await self._cluster.leader(tp), {})[tp] = each
        return found

    async def fetch(
        self, node: NodeId, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> list[tuple[TopicPartition, FetchedPartition]]:
        connection = await self._cluster.connection(node, self._lane)
        metadata = self._cluster.metadata
        topics = {tp.topic: FetchTopic(tp.topic, metadata.topic_id(tp.topic), []) for tp in ranges}
        for tp, each in ranges.items():
            row = FetchPartition(
                tp.partition,
                each.position,
                self._settings.max_partition_fetch_bytes,
                leader_epoch(self._cluster, tp),
            )
            topics[tp.topic].partitions.append(row)
        has_ids = all(topic.topic_id and topic.topic_id.int for topic in topics.values())
        timeout_s = self._settings.common.request_timeout_ms / 1000
        request = self._request(topics.values())
        response = await exchange_fetch(connection, request, by_topic_id=has_ids, timeout_s=timeout_s)
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), f"broker {node} rejected the fetch request")
        found = list(_rows(response, topics))
        for tp, fetched in found:
            _check(tp, ranges[tp], fetched)
        return found

    def _request(self, topics: Iterable[FetchTopic]) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            CONSUMER_REPLICA_ID,
            settings.fetch_max_wait_ms,
            1,
            settings.fetch_max_bytes,
            int(settings.read_committed),
            _NO_SESSION,
            _NO_SESSION_EPOCH,
            list(topics),
            [],
            settings.common.client_rack,
        )


class RangeProbe:
    """Finds out about records after positions, without returning them. One attempt each: errors are not retried."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    async def wait(self, positions: Mapping[TopicPartition, Offset], *, timeout_s: float) -> bool:
        """Return whether there is a record at or after any of `positions`; wait for one up to the time-out."""
        reader = self._reader(wait_ms=int(timeout_s * 1000), size_max=1)
        by_leader = await reader.by_leader(_open_ranges(positions))
        fetches = [asyncio.ensure_future(reader.fetch(node, theirs)) for node, theirs in by_leader.items()]
        try:
            for fetched in asyncio.as_completed(fetches):
                if any(row.records for _, row in await fetched):
                    return True
            return False
        finally:
            for each in fetches:
                each.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)

    async def measure(
        self, positions: Mapping[TopicPartition, Offset], *, size_max: int
    ) -> dict[TopicPartition, StoredRun]:
        """Return the size of the first batches from each position on, up to about `size_max` bytes per partition.

        Partitions without records at their position are left out.
        """
        reader = self._reader(wait_ms=0, size_max=size_max)
        by_leader = await reader.by_leader(_open_ranges(positions))
        replies = await asyncio.gather(*(reader.fetch(node, theirs) for node, theirs in by_leader.items()))
        return {tp: _stored_run(row.records) for rows in replies for tp, row in rows if row.records}

    def _reader(self, *, wait_ms: int, size_max: int) -> RangeReader:
        settings = replace(self._settings, fetch_max_wait_ms=wait_ms, max_partition_fetch_bytes=size_max)
        return RangeReader(self._cluster, settings, _PROBE_LANE)


def _open_ranges(positions: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetRange]:
    return {tp: OffsetRange(offset, offset) for tp, offset in positions.items()}


def _stored_run(data: memoryview) -> StoredRun:
    headers = [header for _, header in iterate_headers(data)]
    offset_count = headers[-1].last_offset + 1 - headers[0].base_offset if headers else 0
    return StoredRun(sum(header.size_bytes for header in headers), offset_count)


def _rows(
    response: FetchResponse, topics: Mapping[TopicName, FetchTopic]
) -> Iterator[tuple[TopicPartition, FetchedPartition]]:
    names = {topic.topic_id: name for name, topic in topics.items()}
    for name, topic_id, rows in response.topics:
        known = name if topic_id is None else names.get(topic_id)
        if known is not None:
            yield from ((TopicPartition(known, row.partition), row) for row in rows)


def _check(tp: TopicPartition, requested: OffsetRange, row: FetchedPartition) -> None:
    code = ErrorCode(row.error_code)
    if row.records and not has_whole_batch(row.records):
        raise no_whole_batch_error(tp, requested.position, len(row.records))
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRangeError(tp, requested.position, "or has deleted it")
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"partition {tp}, offset {requested.position}")


def _remaining(
    ranges: Mapping[TopicPartition, OffsetRange], rows: Iterable[tuple[TopicPartition, FetchedPartition]]
) -> dict[TopicPartition, OffsetRange]:
    """Return `ranges` without what `rows` contain, those with a row last, so that the others come first next time."""
    left = dict(ranges)
    for tp, row in rows:
        position, end = left.pop(tp)
        if row.records:
            position = max(position, end_offset(row.records))
        elif row.high_watermark <= position:
            # The log was truncated: without this, the range would wait for offsets that may never be written again.
            position = end
        left[tp] = OffsetRange(position, end)
    return left
