"""Random plain and transactional commits, ends of transactions, deletions, expiry and restarts of the coordinator.

Invariant: the offsets of the groups are those of the log, as read by independent code: of a partition's records after
its last tombstone, the last that is plain or of a committed transaction counts, and those of open ones are pending. A
coordinator that loads the log, as it is or compacted, has the same offsets.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.group.offsets.commit import CommitRequest, FetchRequest, OffsetToCommit
from rookery.coordinators.group.offsets.transactional import TransactionalCommitRequest
from rookery.coordinators.group.records import OffsetCommitKey, OffsetCommitValue, decode_record
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.shard import GroupShard
from tests.coordinators.group.stage import Ended, Stage, Written, replay

GROUPS = ("g", "h")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
CHECK_MS = 1000
RETENTION_MS = 3 * CHECK_MS

groups = st.sampled_from(GROUPS)
producers = st.integers(1, 3)
offsets = st.integers(0, 1000)
some_partitions = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True)


class State(NamedTuple):
    """The state that a client can see: committed offsets by group and partition, and partitions with pending ones."""

    committed: dict[tuple[str, TopicPartition], int]
    unstable: set[tuple[str, TopicPartition]]


def state_of(shard: GroupShard) -> State:
    committed, unstable = {}, set()
    for group_id in GROUPS:
        for found in shard.fetch(FetchRequest(group_id=group_id)).offsets:
            committed[group_id, found.partition] = found.offset
        stable = shard.fetch(FetchRequest(group_id=group_id, partitions=PARTITIONS, require_stable=True))
        for found in stable.offsets:
            if found.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                unstable.add((group_id, found.partition))
    return State(committed, unstable)


def is_committed(log: Sequence[Written | Ended], position: int) -> bool | None:
    """Whether a record counts; None while its transaction is open."""
    entry = log[position]
    assert isinstance(entry, Written)
    if entry.producer_id is None:
        return True
    ends = (later for later in log[position:] if isinstance(later, Ended) and later.producer_id == entry.producer_id)
    end = next(ends, None)
    return None if end is None else end.committed


def state_in_log(log: Sequence[Written | Ended]) -> State:
    state = State({}, set())
    for position, entry in enumerate(log):
        record = decode_record(entry.key, entry.value) if isinstance(entry, Written) else None
        if record is None or not isinstance(record.key, OffsetCommitKey):
            continue
        name = (record.key.group_id, TopicPartition(record.key.topic, record.key.partition))
        if record.value is None:
            state.committed.pop(name, None)
            state.unstable.discard(name)
            continue
        assert isinstance(record.value, OffsetCommitValue)
        counts = is_committed(log, position)
        if counts:
            state.committed[name] = record.value.offset
        elif counts is None:
            state.unstable.add(name)
    return state


def compacted(log: Sequence[Written | Ended]) -> list[Written | Ended]:
    """Return the log after a cleaner that stops before the first open transaction."""
    unstable = (at for at, entry in enumerate(log) if isinstance(entry, Written) and is_committed(log, at) is None)
    end = next(unstable, len(log))
    last = {entry.key: at for at, entry in enumerate(log[:end]) if isinstance(entry, Written) and is_committed(log, at)}
    kept = [entry for at, entry in enumerate(log[:end]) if isinstance(entry, Ended) or last.get(entry.key) == at]
    return [*kept, *log[end:]]


def loaded(log: Sequence[Written | Ended]) -> GroupShard:
    shard = GroupShard(GroupSettings(), new_id=str)
    for entry in log:
        replay(shard, entry)
    return shard


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS))

    @rule(group_id=groups, partitions=some_partitions, offset=offsets)
    def commit(self, group_id: str, partitions: list[TopicPartition], offset: int) -> None:
        request = CommitRequest(
            group_id=group_id, offsets=tuple(OffsetToCommit(partition, offset) for partition in partitions)
        )
        self.stage.run(lambda shard, now_ms: shard.commit(request, now_ms))

    @rule(group_id=groups, partitions=some_partitions, offset=offsets, producer_id=producers)
    def commit_transactional(
        self, group_id: str, partitions: list[TopicPartition], offset: int, producer_id: int
    ) -> None:
        request = TransactionalCommitRequest(
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=0,
            offsets=tuple(OffsetToCommit(partition, offset) for partition in partitions),
        )
        self.stage.run(lambda shard, now_ms: shard.commit_transactional(request, now_ms))

    def open_transactions(self) -> list[int]:
        log = self.stage.log
        written = ((at, entry) for at, entry in enumerate(log) if isinstance(entry, Written))
        return sorted({entry.producer_id or 0 for at, entry in written if is_committed(log, at) is None})

    @precondition(lambda self: self.open_transactions())
    @rule(number=producers, committed=st.booleans())
    def end(self, number: int, committed: bool) -> None:
        open_transactions = self.open_transactions()
        self.stage.end_transaction(open_transactions[number % len(open_transactions)], committed=committed)

    @precondition(lambda self: self.stage.log)
    @rule(
        deletion=st.sampled_from(("offsets", "group", "topic")),
        group_id=groups,
        partition=st.sampled_from(PARTITIONS),
        repeated_end=producers,
    )
    def delete(self, deletion: str, group_id: str, partition: TopicPartition, repeated_end: int) -> None:
        """Deleted offsets are gone, and no end of a transaction brings them back."""
        if deletion == "offsets":
            self.stage.run(lambda shard, _: shard.delete_offsets(group_id, [partition]))
            deleted = {(group_id, partition)}
        elif deletion == "group":
            self.stage.run(lambda shard, _: shard.delete(group_id))
            deleted = {(group_id, any_partition) for any_partition in PARTITIONS}
            assert group_id not in self.stage.shard.groups
        else:
            self.stage.delete_topic_offsets({partition.topic})
            deleted = {(group, other) for group in GROUPS for other in PARTITIONS if other.topic == partition.topic}
        self.stage.end_transaction(repeated_end, committed=True)
        state = state_of(self.stage.shard)
        assert not deleted & (state.committed.keys() | state.unstable)

    @rule(duration_ms=st.integers(1, RETENTION_MS))
    def pass_time(self, duration_ms: int) -> None:
        """Offsets may expire, but not those of partitions with pending offsets."""
        before = state_of(self.stage.shard)
        self.stage.pass_time(duration_ms)
        after = state_of(self.stage.shard)
        assert after.unstable == before.unstable
        assert before.unstable & before.committed.keys() <= after.committed.keys()

    @rule()
    def restart(self) -> None:
        self.stage.restart()

    @invariant()
    def has_the_offsets_of_the_log(self) -> None:
        assert state_of(self.stage.shard) == state_in_log(self.stage.log)

    @invariant()
    def has_the_state_of_a_loaded_shard(self) -> None:
        again = loaded(self.stage.log)
        assert state_of(again) == state_of(self.stage.shard)
        assert again.groups == self.stage.shard.groups
        assert again.offsets.of("g") == self.stage.shard.offsets.of("g")
        assert state_of(loaded(compacted(self.stage.log))) == state_of(self.stage.shard)

    @invariant()
    def offsets_have_groups(self) -> None:
        state = state_of(self.stage.shard)
        assert {group for group, _ in [*state.committed, *state.unstable]} <= self.stage.shard.groups.keys()


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
