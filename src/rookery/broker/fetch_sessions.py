"""Incremental fetch sessions (KIP-227): a session stores a fetcher's partitions, so that it sends and gets only
changes.

Pure: the time and the random session ids are passed in. `k01_fetch` is the only caller:

    open(request)  -> a session error, or the partitions to read, in order
    close(results) -> the session id, and the results that the response must contain

    skip()         -> the session id of a response without partitions, to a fetcher that is throttled

The read, and the wait of a long poll, are between the two. If another request has used the session meanwhile, `close`
returns INVALID_FETCH_SESSION_EPOCH.

    request's (session id, epoch)      meaning
    (any, 0)                           full fetch; the old session is closed, a new one is created if one is available
    (any, -1)                          full fetch without a session; the old session is closed
    (id, n > 0)                        the n-th fetch of session `id`: only the changes are in the request
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from rookery.base.bounds import FETCH_SESSION_PARTITIONS_MAX
from rookery.base.errors import ErrorCode
from rookery.base.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicName,
)

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# In a fetch that does not say it: of consumers, and before version 18.
UNKNOWN_HIGH_WATERMARK: Offset = 2**63 - 1

# The topic as the request names it (its name, or from v13 on its id), and the partition.
PartitionKey: TypeAlias = tuple[TopicName | TopicId, PartitionIndex]


class Wanted(NamedTuple):
    """The parameters of a fetcher's read of one partition."""

    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    log_start_offset: Offset = NO_OFFSET
    high_watermark: Offset = UNKNOWN_HIGH_WATERMARK

    def is_behind(self, fetched: "Fetched") -> bool:
        """Return whether a follower does not know the leader's high watermark or log start, up to its own log's end."""
        return self.high_watermark != UNKNOWN_HIGH_WATERMARK and (
            min(fetched.high_watermark, self.fetch_offset) > self.high_watermark
            or min(fetched.log_start_offset, self.fetch_offset) > self.log_start_offset
        )


class Fetched(Protocol):
    """The properties of a partition's read that a session uses."""

    @property
    def error_code(self) -> ErrorCode: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def diverging_epoch(self) -> object | None: ...


FetchedT = TypeVar("FetchedT", bound=Fetched)


class SessionPartition:
    """A partition of a fetch, with the offsets that were last sent to the fetcher.

    `topic` is None as long as its id is not resolved.
    """

    __slots__ = ("high_watermark", "key", "log_start_offset", "topic", "wanted")

    def __init__(self, key: PartitionKey, wanted: Wanted) -> None:
        self.key = key
        self.wanted = wanted
        self.topic: TopicName | None = key[0] if isinstance(key[0], str) else None
        self.high_watermark: Offset = NO_OFFSET
        self.log_start_offset: Offset = NO_OFFSET

    def must_answer(self, fetched: Fetched) -> bool:
        """Return whether the response must contain this partition, and store the offsets that are sent with it."""
        changed = (
            self.high_watermark != fetched.high_watermark
            or self.log_start_offset != fetched.log_start_offset
            or fetched.size_bytes > 0
            or fetched.diverging_epoch is not None
            # The follower may have ignored the response with these offsets: its leader epoch had changed meanwhile.
            or (self.wanted.high_watermark != UNKNOWN_HIGH_WATERMARK and self.wanted.is_behind(fetched))
        )
        self.note_sent(fetched)
        return changed or fetched.error_code is not ErrorCode.NONE

    def note_sent(self, fetched: Fetched) -> None:
        """Store the offsets that the response contains."""
        failed = fetched.error_code is not ErrorCode.NONE
        # With an invalid offset here, the next successful read differs from it and is sent. Otherwise the fetcher would
        # not learn that the error has gone.
        self.high_watermark = NO_OFFSET if failed else fetched.high_watermark
        self.log_start_offset = fetched.log_start_offset


class FetchSession:
    """One fetcher's partitions, in the order to read them: one that returned data moves to the end, so that none
    starves.
    """

    __slots__ = ("created_ms", "epoch", "id", "is_follower", "partitions", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, *, is_follower: bool, uses_topic_ids: bool, now_ms: TimestampMs) -> None:
        self.id = session_id
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = INITIAL_EPOCH + 1
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def update(self, wanted: Iterable[tuple[PartitionKey, Wanted]], forgotten: Iterable[PartitionKey]) -> None:
        for key, parameters in wanted:
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(key, parameters)
            else:
                known.wanted = parameters
        for key in forgotten:
            self.partitions.pop(key, None)

    def select(self, results: Sequence[tuple[SessionPartition, FetchedT]]) -> list[tuple[SessionPartition, FetchedT]]:
        """Return the results that the response must contain."""
        selected = []
        for partition, fetched in results:
            if partition.must_answer(fetched):
                selected.append((partition, fetched))
                if fetched.size_bytes > 0 and self.partitions.pop(partition.key, None) is not None:
                    self.partitions[partition.key] = partition
        return selected


class FetchContext(NamedTuple):
    """One request's fetch: an error of its session, or the partitions to read."""

    error_code: ErrorCode
    partitions: Sequence[SessionPartition]
    # The session that the request continues, and the epoch that it must still have when the response is sent.
    session: FetchSession | None
    epoch: int
    wants_session: bool
    is_follower: bool
    uses_topic_ids: bool


class FetchSessions:
    """All sessions of a broker, at most `slots_max`, with at most `partitions_max` partitions together.

    When the limit is reached, a new session may replace one that was not used for `eviction_ms`, a consumer's session
    if it is a follower's, or a smaller one that is older than `eviction_ms`. If there is none, the fetcher gets no
    session and continues with full fetches. A session that grows beyond `partitions_max` is ended.
    """

    def __init__(
        self,
        *,
        slots_max: int,
        random_id: Callable[[], int],
        eviction_ms: int = 120_000,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        # Stored, because counting the partitions of all sessions with every fetch would take longer than the fetch.
        self._partition_count = 0
        self._random_id = random_id
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def open(
        self,
        session_id: int,
        epoch: int,
        *,
        wanted: Sequence[tuple[PartitionKey, Wanted]],
        forgotten: Sequence[PartitionKey],
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: TimestampMs,
    ) -> FetchContext:
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id)
            wants_session = epoch == INITIAL_EPOCH
            return _full(wanted, wants_session=wants_session, is_follower=is_follower, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        size_before = len(session.partitions)
        session.update(wanted, forgotten)
        self._partition_count += len(session.partitions) - size_before
        if self._partition_count > self._partitions_max and len(session.partitions) > size_before:
            # The fetcher starts over with a full fetch, and may get a session if others have ended.
            self._end(session_id)
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._end(session_id)
            return _full(wanted, wants_session=False, is_follower=is_follower, uses_topic_ids=uses_topic_ids)
        session.used_ms = now_ms
        session.epoch = next_epoch(epoch)
        return FetchContext(
            error_code=ErrorCode.NONE,
            partitions=tuple(session.partitions.values()),
            session=session,
            epoch=session.epoch,
            wants_session=False,
            is_follower=is_follower,
            uses_topic_ids=uses_topic_ids,
        )

    def close(
        self, context: FetchContext, results: Sequence[tuple[SessionPartition, FetchedT]], *, now_ms: TimestampMs
    ) -> tuple[ErrorCode, int, Sequence[tuple[SessionPartition, FetchedT]]]:
        """Return the error, the session id, and the results that the response must contain."""
        session = context.session
        if session is not None:
            # Another request has advanced the session. If this response were sent too, the fetcher's and the session's
            # last sent offsets would differ, and later responses would leave out changes.
            if session.epoch != context.epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ()
            return ErrorCode.NONE, session.id, session.select(results)
        if not context.wants_session or not results:
            return context.error_code, NO_SESSION_ID, results
        return ErrorCode.NONE, self._create(context, results, now_ms), results

    def skip(self, context: FetchContext) -> tuple[ErrorCode, int]:
        """Return the error and the session id of a response without partitions; no new session is created."""
        session = context.session
        if session is None:
            return context.error_code, NO_SESSION_ID
        if session.epoch != context.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id
        return ErrorCode.NONE, session.id

    def _create(
        self, context: FetchContext, results: Sequence[tuple[SessionPartition, Fetched]], now_ms: TimestampMs
    ) -> int:
        while len(self._sessions) >= self._slots_max or self._partition_count + len(results) > self._partitions_max:
            if len(results) > self._partitions_max or not self._evict(context.is_follower, len(results), now_ms):
                return NO_SESSION_ID
        session = FetchSession(
            self._unused_id(),
            is_follower=context.is_follower,
            uses_topic_ids=context.uses_topic_ids,
            now_ms=now_ms,
        )
        for partition, fetched in results:
            partition.note_sent(fetched)
            session.partitions[partition.key] = partition
        self._sessions[session.id] = session
        self._partition_count += len(session.partitions)
        return session.id

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _unused_id(self) -> int:
        while True:
            session_id = self._random_id()
            if session_id != NO_SESSION_ID and session_id not in self._sessions:
                return session_id

    def _evict(self, is_follower: bool, size: int, now_ms: TimestampMs) -> bool:
        if not self._sessions:
            return False
        stalest = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now_ms - stalest.used_ms > self._eviction_ms:
            self._end(stalest.id)
            return True
        candidates = [session for session in self._sessions.values() if self._evictable(session, is_follower, now_ms)]
        if not candidates:
            return False
        cheapest = min(candidates, key=_worth)
        if (is_follower, size) < _worth(cheapest):
            return False
        self._end(cheapest.id)
        return True

    def _evictable(self, session: FetchSession, by_follower: bool, now_ms: TimestampMs) -> bool:
        is_old = now_ms - session.created_ms > self._eviction_ms
        return is_old or (by_follower and not session.is_follower)


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`. Epochs wrap around to 1, because 0 starts a new session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def _worth(session: FetchSession) -> tuple[bool, int]:
    """Return the order of eviction: consumers' sessions first, then small ones."""
    return session.is_follower, len(session.partitions)


def _full(
    wanted: Sequence[tuple[PartitionKey, Wanted]], *, wants_session: bool, is_follower: bool, uses_topic_ids: bool
) -> FetchContext:
    # A partition that is named twice counts once, as the later of the two.
    partitions = {key: SessionPartition(key, parameters) for key, parameters in wanted}
    return FetchContext(
        error_code=ErrorCode.NONE,
        partitions=tuple(partitions.values()),
        session=None,
        epoch=FINAL_EPOCH,
        wants_session=wants_session,
        is_follower=is_follower,
        uses_topic_ids=uses_topic_ids,
    )


def _refused(error_code: ErrorCode) -> FetchContext:
    return FetchContext(
        error_code=error_code,
        partitions=(),
        session=None,
        epoch=FINAL_EPOCH,
        wants_session=False,
        is_follower=False,
        uses_topic_ids=False,
    )
