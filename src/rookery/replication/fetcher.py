"""Copies partitions from their leaders: one task per source broker, with one Fetch in flight.

A fetcher names its partitions once and then only changes (KIP-227 sessions). It fetches by topic id, with the leader
epoch that it follows, the epoch of its last record, and the broker epoch of this process (KIP-903). It also sends the
high watermark that it knows, so that the leader answers as soon as it has a higher one (KIP-1166).

Records are appended in slices with pauses between them: heartbeats and requests of clients are served while a replica
catches up. After each pause the partition is looked up again: it may have a new leader by then, or be deleted.

`Fetchers` is what `ReplicaManager` uses: it spreads the partitions over the tasks, which start and end with their
partitions. Everything runs on one event loop; a partition that is stopped is not written to after `stop` returns.
"""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, Protocol, TypeVar
from zlib import crc32

import structlog

from rookery.base.bounds import FETCHED_BYTES_PER_SLICE, ITEMS_PER_SLICE
from rookery.base.errors import ApiError, CorruptionError, ErrorCode, StorageError
from rookery.base.slices import Slices
from rookery.base.types import Buffer, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from rookery.protocol.api import ApiKey
from rookery.protocol.fetch import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from rookery.protocol.fetch_session import CLOSING_EPOCH, NO_SESSION, SESSION_ERRORS, FetchSession, SessionRow
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from rookery.quotas.replication import ReplicationThrottle
from rookery.replication import follower_log
from rookery.replication.following import Following, Position, Reaction, backoff_s, place_after_out_of_range, react
from rookery.replication.offset_search import EARLIEST_LOCAL, LATEST
from rookery.replication.replica import Replica

logger = structlog.get_logger(__name__)

# The first version with the broker epoch of the fetching process; topic ids are older.
_FETCH_VERSION_MIN = 15
# The first version of ListOffsets with EARLIEST_LOCAL.
_LIST_OFFSETS_VERSION_MIN = 8
_ISOLATION_READ_UNCOMMITTED = 0
# A partition takes as long as so many bytes of records, in addition to its own.
_PARTITION_COST_BYTES = 4096

ResultT = TypeVar("ResultT")


class BrokerPeers(Protocol):
    """The part of `net.peers.Peers` that fetchers use. A long poll delays later requests to the same node."""

    async def request(
        self, node: NodeId, api_key: ApiKey, request: Request[ResponseT], *, timeout_s: float, version_min: int = 0
    ) -> ResponseT: ...

    async def exchange(
        self,
        node: NodeId,
        api_key: ApiKey,
        encode: Callable[[int], Buffer],
        decode: Callable[[int, memoryview], ResultT],
        *,
        timeout_s: float,
        version_min: int = 0,
    ) -> ResultT: ...

    async def close(self) -> None: ...


class FetcherSettings(NamedTuple):
    """`num.replica.fetchers`, `replica.fetch.*` and `replica.socket.timeout.ms`."""

    fetchers_per_source: int = 1
    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_s: float = 1.0
    timeout_s: float = 30.0


class Follower(NamedTuple):
    """This node as its leaders see it, its replicas, and how fast it may copy them."""

    node_id: NodeId
    broker_epoch: Callable[[], int]
    find: Callable[[TopicPartition], Replica | ErrorCode]
    throttle: ReplicationThrottle


class ReplicaFetcher:
    """Follows some of the partitions that one broker leads."""

    def __init__(
        self,
        source: NodeId,
        *,
        follower: Follower,
        peers: BrokerPeers,
        other_peers: BrokerPeers,
        settings: FetcherSettings,
        slices: Slices,
    ) -> None:
        """`other_peers` are for requests that must not wait for a long poll over `peers`."""
        self._source = source
        self._follower = follower
        self._peers = peers
        self._other_peers = other_peers
        self._settings = settings
        self._slices = slices
        self._session = FetchSession()
        self._following = Following(backoff_s=settings.backoff_s)
        self._wake = asyncio.Event()
        self._failures = 0
        # Whether the throttle has left partitions out of the last rows.
        self._is_held_back = False
        # Whether a fetch is in flight whose wait can be ended, and the tasks that do so.
        self._is_polling = False
        self._interrupts: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(self._run())

    def __len__(self) -> int:
        return len(self._following)

    def start(self, partition: TopicPartition, topic_id: TopicId, leader_epoch: LeaderEpoch) -> None:
        self._following.start(partition, topic_id, leader_epoch)
        self._wake.set()
        if self._is_polling:
            # Without it, records of the partition would wait for the end of the long poll, half a second.
            self._is_polling = False
            task = self._loop.create_task(self._interrupt())
            self._interrupts.add(task)
            task.add_done_callback(self._interrupts.discard)

    async def _interrupt(self) -> None:
        """Let the leader answer the fetch that waits there: an empty fetch says that there are new partitions."""
        request = self._request(0, topics=[], forgotten_topics=[])
        try:
            await self._send(self._other_peers, request)
        except ApiError as error:
            logger.debug("cannot end the wait of a fetch", source=self._source, error=str(error))

    def stop(self, partition: TopicPartition) -> None:
        self._following.stop(partition)

    def wake(self) -> None:
        """Look for partitions to fetch again: one that waited for an fsync may be ready."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._run_once()
            except Exception:
                # A bug in one partition's data must not stop the replication of all others for good.
                logger.exception("a replica fetcher failed and continues", source=self._source)
                self._session.fail()
                await asyncio.sleep(self._settings.backoff_s)

    async def _run_once(self) -> None:
        self._wake.clear()
        async for some in self._slices.of(self._following.unsettled, ITEMS_PER_SLICE):
            self._following.settle(some, self._loop.time(), self._settings.partition_max_bytes, self._position)
        rows = self._following.rows()
        if self._follower.throttle.is_active or self._is_held_back:
            rows = self._without_throttled(rows)
        if not rows:
            await self._wait_for_work()
            return
        try:
            response = await self._fetch(rows)
        except ApiError as error:
            self._session.fail()
            await self._pause_after(error)
            return
        code = ErrorCode(response.error_code)
        self._session.accept(code, response.session_id)
        if code is not ErrorCode.NONE:
            if code not in SESSION_ERRORS:
                await self._pause_after(ApiError(code, "the leader refused the fetch"))
            return
        self._failures = 0
        await self._process(rows, response)

    def _without_throttled(self, rows: dict[TopicPartition, SessionRow]) -> dict[TopicPartition, SessionRow]:
        """Return the rows that may be fetched now: if the throttle's rate is exceeded, only those of other replicas."""
        kept = rows
        if self._follower.throttle.is_exceeded(self._loop.time()):
            kept = {partition: row for partition, row in rows.items() if not self._is_throttled(partition)}
        self._is_held_back = len(kept) < len(rows)
        return kept

    def _is_throttled(self, partition: TopicPartition) -> bool:
        replica = self._find(partition)
        # A replica in the ISR that copied more slowly would leave it, and acknowledgements would wait until then.
        is_in_sync = replica is not None and self._follower.node_id in replica.state.isr
        return not is_in_sync and self._follower.throttle.applies_to(partition)

    def _position(self, partition: TopicPartition) -> Position | None:
        replica = self._find(partition)
        if replica is None:
            return None
        try:
            return follower_log.position_of(replica)
        except (StorageError, CorruptionError) as error:
            self._fail(partition, error)
            return None

    def _find(self, partition: TopicPartition) -> Replica | None:
        replica = self._follower.find(partition)
        return replica if isinstance(replica, Replica) and not replica.state.is_leader else None

    def _find_matching(self, partition: TopicPartition, asked: SessionRow) -> Replica | None:
        """Return the replica if a response to `asked` still counts for it."""
        replica, position = self._find(partition), self._position(partition)
        if position is None or not self._following.matches(partition, asked, position):
            return None
        return replica

    async def _wait_for_work(self) -> None:
        """Wait for a new partition, the end of an fsync, or the end of a back-off or throttle."""
        wait_s = self._following.wait_s(self._loop.time())
        if self._is_held_back:
            wait_s = min(wait_s, self._settings.backoff_s)
        try:
            async with asyncio.timeout(wait_s if wait_s < inf else None):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _pause_after(self, error: ApiError) -> None:
        if self._failures == 0:
            logger.warning("cannot fetch from a leader", source=self._source, error=str(error))
        pause_s = backoff_s(self._failures, self._settings.backoff_s)
        self._failures += 1
        await asyncio.sleep(pause_s)

    async def _fetch(self, rows: dict[TopicPartition, SessionRow]) -> FetchResponse:
        prepared = self._session.prepare(rows)
        # A partition that is left out after an error does not wait for the records of the others. Neither does one that
        # was started between two slices of the rows: no interrupt ends this fetch for it.
        wait_s = 0 if self._wake.is_set() else self._following.wait_s(self._loop.time())
        wait_ms = min(self._settings.wait_max_ms, wait_s * 1000)
        request = self._request(
            int(wait_ms),
            topics=prepared.topics,
            forgotten_topics=prepared.forgotten,
            session_id=prepared.session_id,
            session_epoch=prepared.session_epoch,
        )
        self._is_polling = True
        try:
            return await self._send(self._peers, request)
        finally:
            self._is_polling = False

    def _request(
        self,
        wait_ms: int,
        *,
        topics: list[FetchTopic],
        forgotten_topics: list[ForgottenTopic],
        session_id: int = NO_SESSION,
        session_epoch: int = CLOSING_EPOCH,
    ) -> FetchRequest:
        return FetchRequest(
            replica_id=self._follower.node_id,
            max_wait_ms=wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.response_max_bytes,
            isolation_level=_ISOLATION_READ_UNCOMMITTED,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics=forgotten_topics,
            replica_epoch=self._follower.broker_epoch(),
        )

    async def _send(self, peers: BrokerPeers, request: FetchRequest) -> FetchResponse:
        return await peers.exchange(
            self._source,
            ApiKey.FETCH,
            lambda version: encode_fetch_request(version, request),
            decode_fetch_response,
            timeout_s=self._settings.timeout_s + request.max_wait_ms / 1000,
            version_min=_FETCH_VERSION_MIN,
        )

    # Responses

    async def _process(self, rows: dict[TopicPartition, SessionRow], response: FetchResponse) -> None:
        work = 0
        for _, topic_id, results in response.topics:
            name = None if topic_id is None else self._session.name(topic_id)
            if name is None:
                continue
            for result in results:
                partition = TopicPartition(name, result.partition)
                asked = rows.get(partition)
                if asked is None or asked.topic_id != topic_id:
                    continue
                work += _PARTITION_COST_BYTES + len(result.records or b"")
                if result.diverging_epoch is not None:
                    # A truncation syncs: one per turn. A leader that comes back may have to cut all of its partitions.
                    work += FETCHED_BYTES_PER_SLICE
                if work > FETCHED_BYTES_PER_SLICE:
                    work = 0
                    await self._slices.pause()
                await self._process_partition(partition, asked, result)

    async def _process_partition(self, partition: TopicPartition, asked: SessionRow, result: FetchedPartition) -> None:
        # Whatever happens to the partition now, its next row is another one.
        self._following.note_change(partition)
        replica = self._find_matching(partition, asked)
        if replica is None:
            return
        code = ErrorCode(result.error_code)
        try:
            if code is not ErrorCode.NONE:
                await self._handle_error(partition, asked, replica, code)
            elif result.diverging_epoch is not None:
                # The rest of this answer is ignored: a high watermark that was taken over now would make records
                # readable that are still to be truncated.
                follower_log.truncate_to_leader(replica, *result.diverging_epoch)
            else:
                await self._append(partition, replica, asked.row.current_leader_epoch, result)
                self._following.succeeded(partition)
        except CorruptionError as error:
            # The leader's bytes were damaged on the way, or its log is: another fetch may be better.
            logger.error("cannot append what a leader sent", partition=str(partition), error=str(error))
            self._following.back_off(partition, self._loop.time())
        except (StorageError, ValueError) as error:
            self._fail(partition, error)

    async def _append(
        self, partition: TopicPartition, replica: Replica, leader_epoch: LeaderEpoch, result: FetchedPartition
    ) -> None:
        records = result.records if result.records is not None else memoryview(b"")
        throttle = self._follower.throttle
        if throttle.is_active and throttle.applies_to(partition):
            throttle.record(len(records), self._loop.time())
        replica.traffic.replication_bytes_in += len(records)
        position = follower_log.append_some(replica, records, 0)
        while position is not None:
            await self._slices.pause()
            if self._find(partition) is not replica or not self._following.follows(partition, leader_epoch):
                return
            position = follower_log.append_some(replica, records, position)
        follower_log.finish_append(replica, result)

    def _fail(self, partition: TopicPartition, error: Exception) -> None:
        logger.error("a replica is not copied any more", partition=str(partition), error=str(error))
        self._following.park(partition)

    async def _handle_error(
        self, partition: TopicPartition, asked: SessionRow, replica: Replica, code: ErrorCode
    ) -> None:
        match react(code):
            case Reaction.RETRY:
                logger.debug("a leader refused a partition", partition=str(partition), code=code.name)
                self._following.back_off(partition, self._loop.time())
            case Reaction.PARK:
                self._following.park(partition)
            case Reaction.FIND_OFFSETS:
                await self._move_into_range(partition, asked, replica)

    async def _move_into_range(self, partition: TopicPartition, asked: SessionRow, replica: Replica) -> None:
        leader_epoch = asked.row.current_leader_epoch
        try:
            leader_end = await self._leader_offset(partition, leader_epoch, LATEST)
            leader_start = await self._leader_offset(partition, leader_epoch, EARLIEST_LOCAL)
        except ApiError as error:
            logger.debug("cannot find a leader's offsets", partition=str(partition), error=str(error))
            self._following.back_off(partition, self._loop.time())
            return
        if self._find_matching(partition, asked) is not replica:
            return
        place = place_after_out_of_range(leader_start, leader_end, replica.log.end_offset)
        if place is None:
            self._following.back_off(partition, self._loop.time())
        else:
            follower_log.move_into_range(replica, place)

    async def _leader_offset(self, partition: TopicPartition, leader_epoch: LeaderEpoch, place: int) -> Offset:
        wanted = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=place
        )
        request = ListOffsetsRequest(
            replica_id=self._follower.node_id,
            isolation_level=_ISOLATION_READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
            timeout_ms=int(self._settings.timeout_s * 1000),
        )
        response = await self._peers.request(
            self._source,
            ApiKey.LIST_OFFSETS,
            request,
            timeout_s=self._settings.timeout_s,
            version_min=_LIST_OFFSETS_VERSION_MIN,
        )
        found = response.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(found.error_code), f"the leader did not return an offset of {partition}")
        return found.offset


class Fetchers:
    """All fetchers of a node. Each of the `num.replica.fetchers` of a source has its own connection."""

    def __init__(
        self,
        new_peers: Callable[[], BrokerPeers],
        *,
        follower: Follower,
        settings: FetcherSettings,
        slices: Slices,
    ) -> None:
        self._follower = follower
        self._settings = settings
        self._slices = slices
        self._peers: Sequence[BrokerPeers] = [new_peers() for _ in range(settings.fetchers_per_source)]
        self._other_peers = new_peers()
        self._fetchers: dict[tuple[NodeId, int], ReplicaFetcher] = {}
        # The fetcher of each partition that is followed.
        self._places: dict[TopicPartition, ReplicaFetcher] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._places

    def start(self, partition: TopicPartition, topic_id: TopicId, *, leader: NodeId, leader_epoch: LeaderEpoch) -> None:
        """Follow a partition, from the end of its log on. The caller has stopped it before."""
        number = crc32(str(partition).encode()) % len(self._peers)
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = self._fetchers[leader, number] = ReplicaFetcher(
                leader,
                follower=self._follower,
                peers=self._peers[number],
                other_peers=self._other_peers,
                settings=self._settings,
                slices=self._slices,
            )
        self._places[partition] = fetcher
        fetcher.start(partition, topic_id, leader_epoch)

    def stop(self, partition: TopicPartition) -> None:
        """Stop to follow a partition: when this returns, nothing will be appended to its log or removed from it."""
        fetcher = self._places.pop(partition, None)
        if fetcher is not None:
            fetcher.stop(partition)

    def wake(self, partition: TopicPartition) -> None:
        fetcher = self._places.get(partition)
        if fetcher is not None:
            fetcher.wake()

    def end_idle(self) -> None:
        """End the tasks that have no partition left. Called after a change of the metadata."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                fetcher.task.cancel()

    async def close(self) -> None:
        tasks = [fetcher.task for fetcher in self._fetchers.values()]
        self._fetchers.clear()
        self._places.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for peers in (*self._peers, self._other_peers):
            await peers.close()
