"""Fetch sessions: the table of epochs and errors, eviction, and a model of what an incremental reader reconstructs."""

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rookery.base.errors import ErrorCode
from rookery.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchContext,
    FetchSessions,
    PartitionKey,
    SessionPartition,
    Wanted,
    next_epoch,
)

WANTED = Wanted(fetch_offset=0, max_bytes=1000)


class Read(NamedTuple):
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = 0
    log_start_offset: int = 0
    size_bytes: int = 0
    diverging_epoch: object | None = None


def make(slots_max: int = 10, *, first_id: int = 100) -> FetchSessions:
    return FetchSessions(slots_max=slots_max, random_id=itertools.count(first_id).__next__, eviction_ms=1000)


def open_fetch(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    *,
    wanted: tuple[PartitionKey, ...] = (),
    forgotten: tuple[PartitionKey, ...] = (),
    is_follower: bool = False,
    uses_topic_ids: bool = False,
    now_ms: int = 0,
) -> FetchContext:
    return sessions.open(
        session_id,
        epoch,
        wanted=[(key, WANTED) for key in wanted],
        forgotten=forgotten,
        is_follower=is_follower,
        uses_topic_ids=uses_topic_ids,
        now_ms=now_ms,
    )


def create(sessions: FetchSessions, *keys: PartitionKey, is_follower: bool = False, now_ms: int = 0) -> int:
    context = open_fetch(sessions, 0, INITIAL_EPOCH, wanted=keys, is_follower=is_follower, now_ms=now_ms)
    results = [(partition, Read()) for partition in context.partitions]
    _, session_id, _ = sessions.close(context, results, now_ms=now_ms)
    return session_id


def fetch(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    reads: dict[PartitionKey, Read],
) -> tuple[ErrorCode, int, list[PartitionKey]]:
    context = open_fetch(sessions, session_id, epoch)
    if context.error_code is not ErrorCode.NONE:
        return context.error_code, NO_SESSION_ID, []
    results = [(partition, reads.get(partition.key, Read())) for partition in context.partitions]
    error_code, answered_id, selected = sessions.close(context, results, now_ms=0)
    return error_code, answered_id, [partition.key for partition, _ in selected]


def test_full_fetch_makes_a_session_and_incremental_ones_return_only_changes() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0), ("b", 0))
    assert session_id == 100
    assert fetch(sessions, session_id, 1, {}) == (ErrorCode.NONE, session_id, [])
    assert fetch(sessions, session_id, 2, {("b", 0): Read(high_watermark=5)}) == (
        ErrorCode.NONE,
        session_id,
        [("b", 0)],
    )
    assert fetch(sessions, session_id, 3, {("b", 0): Read(high_watermark=5)}) == (ErrorCode.NONE, session_id, [])


@pytest.mark.parametrize(
    "read",
    [
        Read(size_bytes=10),
        Read(log_start_offset=2),
        Read(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, log_start_offset=-1),
        Read(diverging_epoch=(1, 2)),
    ],
)
def test_reads_that_must_be_in_the_response(read: Read) -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0))
    assert fetch(sessions, session_id, 1, {("a", 0): read})[2] == [("a", 0)]


def test_partition_is_sent_again_after_an_error() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0))
    failed = Read(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    assert fetch(sessions, session_id, 1, {("a", 0): failed})[2] == [("a", 0)]
    assert fetch(sessions, session_id, 2, {})[2] == [("a", 0)]
    assert fetch(sessions, session_id, 3, {})[2] == []


def test_partitions_with_data_go_to_the_end() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0), ("b", 0), ("c", 0))
    fetch(sessions, session_id, 1, {("a", 0): Read(size_bytes=1)})
    context = open_fetch(sessions, session_id, 2)
    assert [partition.key for partition in context.partitions] == [("b", 0), ("c", 0), ("a", 0)]


def test_session_errors() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0))
    assert open_fetch(sessions, 7, 1).error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_fetch(sessions, session_id, 2).error_code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with_ids = open_fetch(sessions, session_id, 1, uses_topic_ids=True)
    assert with_ids.error_code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.close(with_ids, [], now_ms=0)[:2] == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, NO_SESSION_ID)
    assert open_fetch(sessions, session_id, 1).error_code is ErrorCode.NONE


def test_a_second_request_of_the_same_epoch_while_the_first_waits_is_an_error() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0))
    first = open_fetch(sessions, session_id, 1)
    assert open_fetch(sessions, session_id, 1).error_code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    second = open_fetch(sessions, session_id, 2)
    late = [(partition, Read(size_bytes=1)) for partition in first.partitions]
    assert sessions.close(first, late, now_ms=0) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, ())
    assert sessions.close(second, late, now_ms=0)[0] is ErrorCode.NONE


def test_full_fetch_with_an_id_closes_that_session() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0))
    context = open_fetch(sessions, session_id, FINAL_EPOCH, wanted=(("a", 0),))
    results = [(partition, Read()) for partition in context.partitions]
    assert sessions.close(context, results, now_ms=0)[1] == NO_SESSION_ID
    assert len(sessions) == 0


def test_forgetting_all_partitions_closes_the_session() -> None:
    sessions = make()
    session_id = create(sessions, ("a", 0))
    context = open_fetch(sessions, session_id, 1, forgotten=(("a", 0),))
    assert context.partitions == ()
    assert sessions.close(context, [], now_ms=0) == (ErrorCode.NONE, NO_SESSION_ID, [])
    assert open_fetch(sessions, session_id, 2).error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_ids_name_partitions_without_names() -> None:
    sessions = make()
    topic_id = UUID(int=7)
    context = open_fetch(sessions, 0, INITIAL_EPOCH, wanted=((topic_id, 0),), uses_topic_ids=True)
    assert [partition.topic for partition in context.partitions] == [None]


def test_no_session_if_all_slots_are_taken() -> None:
    sessions = make(slots_max=1)
    first = create(sessions, ("a", 0))
    assert create(sessions, ("b", 0), ("b", 1), now_ms=500) == NO_SESSION_ID
    assert open_fetch(sessions, first, 1).error_code is ErrorCode.NONE


def test_no_slots_at_all() -> None:
    assert create(make(slots_max=0), ("a", 0)) == NO_SESSION_ID


def test_stale_session_is_evicted() -> None:
    sessions = make(slots_max=1)
    first = create(sessions, ("a", 0), ("a", 1))
    assert create(sessions, ("b", 0), now_ms=1001) != NO_SESSION_ID
    assert open_fetch(sessions, first, 1).error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_larger_session_evicts_a_smaller_old_one() -> None:
    sessions = make(slots_max=1)
    first = create(sessions, ("a", 0), ("a", 1))
    open_fetch(sessions, first, 1, now_ms=900)
    assert create(sessions, ("b", 0), now_ms=1500) == NO_SESSION_ID
    assert create(sessions, *[("b", index) for index in range(3)], now_ms=1500) != NO_SESSION_ID
    assert len(sessions) == 1
    assert sessions.partition_count == 3


def test_follower_evicts_a_consumer_but_not_the_other_way_round() -> None:
    sessions = make(slots_max=1)
    create(sessions, ("a", 0), ("a", 1))
    assert create(sessions, ("b", 0), is_follower=True) != NO_SESSION_ID
    assert create(sessions, *[("c", index) for index in range(5)], now_ms=500) == NO_SESSION_ID


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(2**31 - 1) == 1


@dataclass
class Truth:
    high_watermark: int = 0
    log_start_offset: int = 0
    error_code: ErrorCode = ErrorCode.NONE
    unread: int = 0

    def read(self) -> Read:
        if self.error_code is not ErrorCode.NONE:
            return Read(self.error_code, -1, -1)
        return Read(ErrorCode.NONE, self.high_watermark, self.log_start_offset, self.unread)


@dataclass
class Client:
    """A reader as KIP-227 describes it: it stores what it has received, and requests only changes."""

    session_id: int = NO_SESSION_ID
    epoch: int = INITIAL_EPOCH
    wanted: set[PartitionKey] = field(default_factory=set)
    sent: set[PartitionKey] = field(default_factory=set)
    view: dict[PartitionKey, Read] = field(default_factory=dict)


_KEYS = st.sampled_from([(topic, index) for topic in ("a", "b", "c") for index in range(2)])


class IncrementalEqualsFull(RuleBasedStateMachine):
    """What a client reconstructs from incremental responses equals the result of a full fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.restarts = 0
        self.sessions = make(slots_max=2)
        self.truths: dict[PartitionKey, Truth] = {}
        self.client = Client()

    @rule(key=_KEYS, count=st.integers(1, 5))
    def append(self, key: PartitionKey, count: int) -> None:
        truth = self.truths.setdefault(key, Truth())
        truth.high_watermark += count
        truth.unread += count

    @rule(key=_KEYS)
    def delete_records(self, key: PartitionKey) -> None:
        truth = self.truths.setdefault(key, Truth())
        truth.log_start_offset = truth.high_watermark

    @rule(key=_KEYS, error_code=st.sampled_from([ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def fail_or_heal(self, key: PartitionKey, error_code: ErrorCode) -> None:
        self.truths.setdefault(key, Truth()).error_code = error_code

    @rule(key=_KEYS)
    def subscribe_or_forget(self, key: PartitionKey) -> None:
        self.client.wanted ^= {key}

    @rule()
    def others_take_slots(self) -> None:
        create(self.sessions, ("other", 0), now_ms=0)

    @rule()
    def broker_restarts(self) -> None:
        # Ids are random: an id from before the restart almost never names a session after it.
        self.restarts += 1
        self.sessions = make(slots_max=2, first_id=1_000_000 * self.restarts)

    @rule()
    def fetch(self) -> None:
        client = self.client
        if not client.wanted:
            return
        is_full = client.epoch == INITIAL_EPOCH
        new = client.wanted if is_full else client.wanted - client.sent
        forgotten = set() if is_full else client.sent - client.wanted
        context = open_fetch(
            self.sessions, client.session_id, client.epoch, wanted=tuple(new), forgotten=tuple(forgotten)
        )
        if context.error_code is not ErrorCode.NONE:
            self.client = Client(wanted=client.wanted)
            return
        results = [(partition, self._read(partition)) for partition in context.partitions]
        error_code, session_id, selected = self.sessions.close(context, results, now_ms=0)
        assert error_code is ErrorCode.NONE
        if is_full:
            client.view.clear()
        for key in forgotten:
            client.view.pop(key)
        client.view.update({partition.key: read for partition, read in selected})
        client.sent = set(client.wanted) if session_id else set()
        client.session_id = session_id
        client.epoch = next_epoch(client.epoch) if session_id else INITIAL_EPOCH
        self._check_view()

    def _read(self, partition: SessionPartition) -> Read:
        truth = self.truths.setdefault(partition.key, Truth())
        read = truth.read()
        if read.error_code is ErrorCode.NONE:
            truth.unread = 0
        return read

    def _check_view(self) -> None:
        assert self.client.view.keys() == self.client.wanted
        for key, seen in self.client.view.items():
            full = self.truths[key].read()
            assert seen._replace(size_bytes=0) == full._replace(size_bytes=0)


TestIncrementalEqualsFull = IncrementalEqualsFull.TestCase
TestIncrementalEqualsFull.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def keys(count: int, topic: str = "t") -> tuple[PartitionKey, ...]:
    return tuple((topic, index) for index in range(count))


def bounded(partitions_max: int) -> FetchSessions:
    ids = itertools.count(100).__next__
    return FetchSessions(slots_max=10, random_id=ids, eviction_ms=1000, partitions_max=partitions_max)


def test_partitions_of_all_sessions_are_bounded_together() -> None:
    sessions = bounded(10)
    first, second = create(sessions, *keys(4)), create(sessions, *keys(6))
    assert NO_SESSION_ID not in (first, second)
    assert create(sessions, *keys(1)) == NO_SESSION_ID
    assert sessions.partition_count == 10
    # Partitions that a session forgets are available to another one.
    open_fetch(sessions, first, 1, forgotten=keys(1))
    assert create(sessions, *keys(1)) != NO_SESSION_ID


def test_a_large_session_evicts_several_stale_ones_up_to_the_bound() -> None:
    sessions = bounded(10)
    for _ in range(5):
        create(sessions, *keys(2))
    assert create(sessions, *keys(11), now_ms=2000) == NO_SESSION_ID
    assert len(sessions) == 5
    assert create(sessions, *keys(7), now_ms=2000) != NO_SESSION_ID
    assert sessions.partition_count == 9


def test_a_session_that_grows_beyond_the_bound_is_ended() -> None:
    sessions = bounded(10)
    grown, other = create(sessions, *keys(2)), create(sessions, *keys(6))
    assert open_fetch(sessions, grown, 1, wanted=keys(9)).error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_fetch(sessions, grown, 2).error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_fetch(sessions, other, 1).error_code is ErrorCode.NONE
    assert sessions.partition_count == 6
