"""Ranges of offsets, fetched from beginning to end and not followed: what `read_arrow` and `iterate_arrow` read.

Beside the consumer's own fetching: no session, a connection of its own, no assignment, no position is touched. The next
round is under way while the user works on the last one; its positions come from the headers of the batches alone.

`RangeProbe` asks by the same fetches whether there is anything to read, and how large it is.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import NodeId, Offset, TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.consume.decoder import end_of, has_whole_batch, no_whole_batch
from rookery.client.consume.positions import leader_epoch
from rookery.client.errors import OffsetOutOfRangeError
from rookery.client.settings.consumer import ConsumerSettings
from rookery.protocol.api import ApiKey
from rookery.protocol.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from rookery.records.batch import iterate_headers

# A connection of its own: not behind a fetch that is parked.
_LANE: Final = "ranges"
# Another one: what is parked there must not hold up ranges that can be read.
_PROBE_CHANNEL: Final = "probe"
_CONSUMER: Final = -1
_NO_SESSION: Final = 0
_NO_SESSION_EPOCH: Final = -1
_LAST_VERSION_BY_NAME: Final = 12


class OffsetRange(NamedTuple):
    position: Offset
    end: Offset


class FetchedRange(NamedTuple):
    """What one fetch brought of a partition: batches, of which records from the range's position to its end count."""

    tp: TopicPartition
    range: OffsetRange
    data: memoryview
    aborted: list[tuple[int, Offset]] | None


class StoredRun(NamedTuple):
    """Consecutive batches as the broker keeps them, compressed or not."""

    size_bytes: int
    offset_count: int


class RangeReader:
    def __init__(self, cluster: Cluster, settings: ConsumerSettings, lane: str = _LANE) -> None:
        self._cluster = cluster
        self._settings = settings
        self._lane = lane

    async def read(self, ranges: Mapping[TopicPartition, OffsetRange]) -> AsyncIterator[list[FetchedRange]]:
        """Rounds of data, one piece per partition at most."""
        left = {tp: some for tp, some in ranges.items() if some.position < some.end}
        coming: asyncio.Task[list[tuple[TopicPartition, FetchedPartition]]] | None = None
        try:
            while left:
                rows = await (coming or self._fetch_all(left))
                found = [
                    FetchedRange(tp, left[tp], row.records, row.aborted_transactions) for tp, row in rows if row.records
                ]
                left = {tp: some for tp, some in _behind(left, rows).items() if some.position < some.end}
                coming = asyncio.get_running_loop().create_task(self._fetch_all(left)) if left else None
                if found:
                    yield found
        finally:
            if coming is not None:
                coming.cancel()
                # How it ends matters to nobody: whoever waited for it has got its error already.
                await asyncio.gather(coming, return_exceptions=True)

    async def _fetch_all(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> list[tuple[TopicPartition, FetchedPartition]]:
        """One fetch of each leader; tried again while that may help."""
        return await self._cluster.retry(lambda: self._fetch_once(ranges))

    async def _fetch_once(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> list[tuple[TopicPartition, FetchedPartition]]:
        by_leader = await self.by_leader(ranges)
        answers = await asyncio.gather(*(self.fetch(node, theirs) for node, theirs in by_leader.items()))
        return [row for rows in answers for row in rows]

    async def by_leader(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[NodeId, dict[TopicPartition, OffsetRange]]:
        found: dict[NodeId, dict[TopicPartition, OffsetRange]] = {}
        for tp, some in ranges.items():
            found.setdefault(await self._cluster.leader(tp), {})[tp] = some
        return found

    async def fetch(
        self, node: NodeId, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> list[tuple[TopicPartition, FetchedPartition]]:
        connection = await self._cluster.connection(node, self._lane)
        metadata = self._cluster.metadata
        topics = {tp.topic: FetchTopic(tp.topic, metadata.topic_id(tp.topic), []) for tp in ranges}
        for tp, some in ranges.items():
            row = FetchPartition(
                tp.partition,
                some.position,
                self._settings.max_partition_fetch_bytes,
                leader_epoch(self._cluster, tp),
            )
            topics[tp.topic].partitions.append(row)
        version = connection.version(ApiKey.FETCH)
        if not all(topic.topic_id and topic.topic_id.int for topic in topics.values()):
            version = min(version, _LAST_VERSION_BY_NAME)
        body = encode_fetch_request(version, self._request(topics.values()))
        timeout_s = self._settings.common.request_timeout_ms / 1000
        answer = await connection.exchange(ApiKey.FETCH, version, [body], timeout_s=timeout_s)
        try:
            response = decode_fetch_response(version, answer)
        except ProtocolError as error:
            raise connection.reject_response(error) from None
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), f"broker {node} refused to fetch")
        found = list(_rows(response, topics))
        for tp, answered in found:
            _check(tp, ranges[tp], answered)
        return found

    def _request(self, topics: Iterable[FetchTopic]) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            _CONSUMER,
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
    """Questions about what lies behind positions. One attempt each: errors are the caller's."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    async def wait(self, positions: Mapping[TopicPartition, Offset], *, timeout_s: float) -> bool:
        """Whether there is a record at or behind any of these positions; waits for the first up to the time-out."""
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
        """The first batches from each position on, up to about `size_max` bytes of each; none where nothing is."""
        reader = self._reader(wait_ms=0, size_max=size_max)
        by_leader = await reader.by_leader(_open_ranges(positions))
        answers = await asyncio.gather(*(reader.fetch(node, theirs) for node, theirs in by_leader.items()))
        return {tp: _stored_run(row.records) for rows in answers for tp, row in rows if row.records}

    def _reader(self, *, wait_ms: int, size_max: int) -> RangeReader:
        settings = replace(self._settings, fetch_max_wait_ms=wait_ms, max_partition_fetch_bytes=size_max)
        return RangeReader(self._cluster, settings, _PROBE_CHANNEL)


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


def _check(tp: TopicPartition, some: OffsetRange, row: FetchedPartition) -> None:
    code = ErrorCode(row.error_code)
    if row.records and not has_whole_batch(row.records):
        raise no_whole_batch(tp, some.position, len(row.records))
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRangeError(tp, some.position, "or has it no more")
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"partition {tp}, offset {some.position}")


def _behind(
    ranges: Mapping[TopicPartition, OffsetRange], rows: Iterable[tuple[TopicPartition, FetchedPartition]]
) -> dict[TopicPartition, OffsetRange]:
    """What is left of the ranges; those served move to the end, so that others come first in the next request."""
    left = dict(ranges)
    for tp, row in rows:
        position, end = left.pop(tp)
        if row.records:
            position = max(position, end_of(row.records))
        elif row.high_watermark <= position:
            # The log was cut off meanwhile: nothing is there to wait for.
            position = end
        left[tp] = OffsetRange(position, end)
    return left
