"""Finds the first record at or after an offset that a consumer would get, with its timestamp.

An offset need not have a record: compaction removes records, transactions write markers, and `read_committed` consumers
skip aborted records. So a batch is fetched from the offset on and opened, and the search continues after it if it holds
nothing for a consumer. One request to each leader covers all its partitions. Brokers return a batch that is larger than
the requested size only for the first partition of a request, so partitions without a result are requested again, with a
larger size. `Admin.first_records` calls this.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, NodeId, Offset, TopicPartition
from rookery.base.values import value_class
from rookery.client.cluster import Cluster
from rookery.client.consume.decoder import FetchedRun, has_whole_batch
from rookery.client.consume.fetch_requests import CONSUMER_REPLICA_ID, exchange_fetch
from rookery.client.consume.positions import leader_epoch
from rookery.client.consume.subscription import FetchPosition
from rookery.client.errors import CorruptRecordError
from rookery.client.first_record import SEARCHED_BYTES_MAX, FirstRecord
from rookery.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse, FetchTopic

# A separate connection: other requests must not wait for the data.
_LANE: Final = "first records"
_NO_SESSION: Final = 0
_NO_SESSION_EPOCH: Final = -1
# Most batches fit: a producer's batch.size is 16 KiB unless it is set.
_PARTITION_BYTES_FIRST: Final = 32 * 1024
_PARTITION_BYTES_MAX: Final = 8 * 1024 * 1024
_RESPONSE_BYTES_MAX: Final = 8 * 1024 * 1024
_GROWTH: Final = 8
# The size to fetch reaches its limit within so many rounds.
_IDLE_ROUNDS_MAX: Final = 5


class FirstRecordSearch:
    """Searches partitions of `cluster`. Errors that are `retriable` are retried, up to the cluster's time-out."""

    def __init__(self, cluster: Cluster, *, read_committed: bool, retriable: Callable[[ErrorCode], bool]) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._retriable = retriable

    async def run(self, positions: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, FirstRecord]:
        """Return the first record of each partition, sorted by partition."""
        search = Search(positions, self._read_committed, self._retriable)

        async def attempt() -> None:
            idle_rounds = 0
            while search.pending:
                before = search.progress
                await self._search_once(search)
                idle_rounds = idle_rounds + 1 if search.progress == before else 0
                if idle_rounds > _IDLE_ROUNDS_MAX:
                    # Without this, a leader that returns nothing before the end of its log would be asked for ever.
                    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "leaders return no data")

        try:
            await self._cluster.retry(attempt, retriable=self._retriable)
        except ApiError as error:
            search.fail_rest(error)
        return {tp: search.found[tp] for tp in sorted(positions)}

    async def _search_once(self, search: "Search") -> None:
        """Send one fetch to each leader. Raises the first transient error, when all leaders have been asked."""
        failed: list[ApiError] = []
        theirs: dict[NodeId, list[TopicPartition]] = {}
        for tp, leader in (await self._cluster.leaders(list(search.pending))).items():
            if not isinstance(leader, ApiError):
                theirs.setdefault(leader, []).append(tp)
            elif self._retriable(leader.code):
                failed.append(leader)
            else:
                search.found[tp] = FirstRecord(error=leader.code)
                del search.pending[tp]
        for node, partitions in sorted(theirs.items()):
            failed += await self._fetch_from(node, {tp: search.pending[tp] for tp in partitions}, search)
        if failed:
            raise failed[0]

    async def _fetch_from(
        self, node: NodeId, wanted: "Mapping[TopicPartition, _Place]", search: "Search"
    ) -> list[ApiError]:
        """Fetch from one leader; return the transient errors."""
        metadata = self._cluster.metadata
        topics = {tp.topic: FetchTopic(tp.topic, metadata.topic_id(tp.topic), []) for tp in wanted}
        for tp, place in wanted.items():
            row = FetchPartition(tp.partition, place.position, place.size_max, leader_epoch(self._cluster, tp))
            topics[tp.topic].partitions.append(row)
        request = FetchRequest(
            CONSUMER_REPLICA_ID,
            0,
            0,
            _RESPONSE_BYTES_MAX,
            int(search.read_committed),
            _NO_SESSION,
            _NO_SESSION_EPOCH,
            list(topics.values()),
            [],
            "",
        )
        has_ids = all(topic.topic_id not in (None, NO_TOPIC_ID) for topic in topics.values())
        try:
            connection = await self._cluster.connection(node, _LANE)
            response = await exchange_fetch(
                connection, request, by_topic_id=has_ids, timeout_s=self._cluster.request_timeout_s
            )
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code), f"broker {node} rejected the fetch request")
        except ApiError as error:
            if self._retriable(error.code):
                return [error]
            for tp in wanted:
                search.settle(tp, FirstRecord(error=error.code))
            return []
        rows = dict(_rows(response, topics))
        return [error for tp in wanted for error in search.take(tp, rows.get(tp))]


@value_class
class _Place:
    """Where the search of a partition has arrived, how much to fetch next, and how much was fetched."""

    position: Offset
    size_max: int = _PARTITION_BYTES_FIRST
    searched_bytes: int = 0


class Search:
    """The partitions that are found, and those that are pending, in the order in which to request them."""

    def __init__(
        self, positions: Mapping[TopicPartition, Offset], read_committed: bool, retriable: Callable[[ErrorCode], bool]
    ) -> None:
        self.read_committed = read_committed
        self._retriable = retriable
        self.found: dict[TopicPartition, FirstRecord] = {}
        self.pending = {tp: _Place(positions[tp]) for tp in sorted(positions)}

    @property
    def progress(self) -> tuple[int, int]:
        """Differs after each round that settled a partition or read something."""
        return len(self.found), sum(place.searched_bytes for place in self.pending.values())

    def settle(self, tp: TopicPartition, found: FirstRecord) -> None:
        self.found[tp] = found
        del self.pending[tp]

    def fail_rest(self, error: ApiError) -> None:
        for tp in list(self.pending):
            self.settle(tp, FirstRecord(error=error.code))

    def take(self, tp: TopicPartition, row: FetchedPartition | None) -> Iterator[ApiError]:
        """Take a leader's answer about a partition; yield its error if it is transient."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR if row is None else ErrorCode(row.error_code)
        if row is None or code != ErrorCode.NONE:
            if self._retriable(code):
                yield ApiError(code, f"partition {tp}")
            else:
                self.settle(tp, FirstRecord(error=code))
            return
        try:
            self._advance(tp, row)
        except CorruptRecordError as error:
            self.settle(tp, FirstRecord(error=error.code))

    def _advance(self, tp: TopicPartition, row: FetchedPartition) -> None:
        place = self.pending[tp]
        end = row.last_stable_offset if self.read_committed else row.high_watermark
        position, size_bytes = place.position, 0
        if row.records and has_whole_batch(row.records):
            size_bytes = len(row.records)
            aborted = (row.aborted_transactions or []) if self.read_committed else None
            run = FetchedRun(tp, row.records, FetchPosition(position), aborted=aborted, check_crcs=True)
            batch = run.next_batch()
            if batch is not None and batch.columns.offsets[0] < end:
                timestamp_ms = batch.columns.timestamps_ms[0]
                self.settle(tp, FirstRecord(offset=batch.columns.offsets[0], timestamp_ms=timestamp_ms))
                return
            position = run.position.offset if batch is None else end
        searched_bytes = place.searched_bytes + size_bytes
        if position >= end:
            self.settle(tp, FirstRecord())
        elif searched_bytes > SEARCHED_BYTES_MAX:
            self.settle(tp, FirstRecord(error=ErrorCode.REQUEST_TIMED_OUT))
        else:
            del self.pending[tp]
            size_max = min(_PARTITION_BYTES_MAX, place.size_max * _GROWTH)
            following = {tp: _Place(position, size_max, searched_bytes)}
            # First in the next request if the broker returned nothing: a batch larger than the limit is returned for
            # the first partition only. Last if there was progress, so that no partition keeps that place.
            self.pending = self.pending | following if size_bytes else following | self.pending


def _rows(
    response: FetchResponse, topics: Mapping[str, FetchTopic]
) -> Iterator[tuple[TopicPartition, FetchedPartition]]:
    names = {topic.topic_id: name for name, topic in topics.items()}
    for name, topic_id, rows in response.topics:
        known = name if topic_id is None else names.get(topic_id)
        if known is not None:
            yield from ((TopicPartition(known, row.partition), row) for row in rows)
