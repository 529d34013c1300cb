"""Offsets in transactions: pending until the transaction ends, and then effective at their position in the log."""

from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.group.classic.group import ClassicGroup, Member
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.consumer.member import ClassicMembership
from rookery.coordinators.group.consumer.member import Member as ConsumerMember
from rookery.coordinators.group.offsets.commit import CommitRequest, FetchRequest, OffsetToCommit
from rookery.coordinators.group.offsets.rules import Group, check_transactional_commit
from rookery.coordinators.group.offsets.transactional import TransactionalCommitRequest
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import Producer
from tests.coordinators.group.stage import Stage

MINUTE_MS = 60_000
RETENTION_MS = 100 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
P = TopicPartition("t", 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def stage() -> Stage:
    return Stage(GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_check_interval_ms=CHECK_MS))


def commit(on: Stage, offset: int, partition: TopicPartition = P, group_id: str = "g") -> None:
    request = CommitRequest(group_id=group_id, offsets=(OffsetToCommit(partition, offset),))
    ((_, code),) = on.run(lambda shard, now_ms: shard.commit(request, now_ms))
    assert code is ErrorCode.NONE


def pend(on: Stage, producer_id: int, offset: int, partition: TopicPartition = P, **fields: Any) -> ErrorCode:
    request = TransactionalCommitRequest(
        group_id=fields.pop("group_id", "g"),
        producer_id=producer_id,
        producer_epoch=0,
        offsets=(OffsetToCommit(partition, offset, metadata=fields.pop("metadata", "")),),
        **fields,
    )
    ((_, code),) = on.run(lambda shard, now_ms: shard.commit_transactional(request, now_ms))
    assert isinstance(code, ErrorCode)
    return code


def fetch(on: Stage, partition: TopicPartition = P, group_id: str = "g") -> int | ErrorCode:
    """Fetch a stable offset, and check that it is the same after a restart."""
    responses = [_fetch(on, partition, group_id)]
    on.restart()
    responses.append(_fetch(on, partition, group_id))
    assert responses[0] == responses[1]
    return responses[0]


def _fetch(on: Stage, partition: TopicPartition, group_id: str) -> int | ErrorCode:
    request = FetchRequest(group_id=group_id, partitions=(partition,), require_stable=True)
    (found,) = on.shard.fetch(request).offsets
    if found.error_code is not ErrorCode.NONE:
        assert (found.offset, found.leader_epoch, found.metadata) == (-1, -1, "")
        return found.error_code
    return found.offset


def groups(on: Stage) -> list[str]:
    return [group.group_id for group in on.shard.list()]


def test_a_commit_is_pending_until_its_transaction_ends() -> None:
    on = stage()
    commit(on, 1)
    assert pend(on, 7, 5) is ErrorCode.NONE
    assert fetch(on) is UNSTABLE
    unstable = on.shard.fetch(FetchRequest(group_id="g", partitions=(P,)))
    assert unstable.offsets[0].offset == 1
    on.end_transaction(7, committed=True)
    assert fetch(on) == 5


def test_an_abort_drops_pending_offsets() -> None:
    on = stage()
    commit(on, 1)
    pend(on, 7, 5)
    on.end_transaction(7, committed=False)
    assert fetch(on) == 1
    # Nothing is left of it for the producer's next transaction.
    on.end_transaction(7, committed=True)
    assert fetch(on) == 1


def test_within_a_transaction_the_last_commit_counts() -> None:
    on = stage()
    pend(on, 7, 5)
    pend(on, 7, 3)
    on.end_transaction(7, committed=True)
    assert fetch(on) == 3


def test_only_partitions_with_pending_offsets_are_unstable() -> None:
    on = stage()
    other = TopicPartition("t", 1)
    commit(on, 1, other)
    pend(on, 7, 5)
    assert (fetch(on), fetch(on, other), fetch(on, P, "h")) == (UNSTABLE, 1, -1)
    # A fetch of all committed offsets does not include partitions that have only pending ones.
    everything = on.shard.fetch(FetchRequest(group_id="g", require_stable=True))
    assert [offset.partition for offset in everything.offsets] == [other]


def test_a_later_plain_commit_stays() -> None:
    on = stage()
    pend(on, 7, 5)
    commit(on, 2)
    assert fetch(on) is UNSTABLE
    on.end_transaction(7, committed=True)
    assert fetch(on) == 2


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_of_two_transactions_the_later_record_counts(order: tuple[int, int]) -> None:
    on = stage()
    pend(on, 7, 70)
    pend(on, 8, 80)
    on.end_transaction(order[0], committed=True)
    assert fetch(on) is UNSTABLE
    on.end_transaction(order[1], committed=True)
    assert fetch(on) == 80


def test_an_aborted_transaction_is_not_a_later_record() -> None:
    on = stage()
    pend(on, 7, 70)
    pend(on, 8, 80)
    on.end_transaction(8, committed=False)
    on.end_transaction(7, committed=True)
    assert fetch(on) == 70


def test_an_ended_transaction_of_another_producer_changes_nothing() -> None:
    on = stage()
    pend(on, 7, 5)
    on.end_transaction(8, committed=True)
    assert fetch(on) is UNSTABLE


def test_records_are_written_in_the_producers_transaction() -> None:
    on = stage()
    request = TransactionalCommitRequest(group_id="g", producer_id=7, producer_epoch=3, offsets=(OffsetToCommit(P, 5),))
    result = on.shard.commit_transactional(request, on.now_ms)
    assert result.producer == Producer(7, 3)
    assert not result.timers


def test_metadata_has_a_limit() -> None:
    on = stage()
    assert pend(on, 7, 5, metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch(on) == -1


# Removal


def test_deleted_offsets_are_not_committed_later() -> None:
    on = stage()
    commit(on, 1)
    other = TopicPartition("t", 1)
    pend(on, 7, 5)
    pend(on, 8, 6)
    pend(on, 7, 9, other)
    on.run(lambda shard, _: shard.delete_offsets("g", [P]))
    assert fetch(on) == -1
    on.end_transaction(7, committed=True)
    on.end_transaction(8, committed=True)
    assert (fetch(on), fetch(on, other)) == (-1, 9)


def test_a_transaction_continues_after_its_offsets_were_deleted() -> None:
    on = stage()
    pend(on, 7, 5)
    on.run(lambda shard, _: shard.delete_offsets("g", [P]))
    pend(on, 7, 6)
    on.end_transaction(7, committed=True)
    assert fetch(on) == 6


def test_the_pending_offsets_of_a_deleted_group_are_deleted() -> None:
    on = stage()
    pend(on, 7, 5)
    pend(on, 7, 5, group_id="other")
    assert on.run(lambda shard, _: shard.delete("g")) is ErrorCode.NONE
    assert groups(on) == ["other"]
    on.end_transaction(7, committed=True)
    assert (fetch(on), fetch(on, P, "other")) == (-1, 5)
    assert groups(on) == ["other"]


def test_the_pending_offsets_of_a_deleted_topic_are_deleted() -> None:
    on = stage()
    kept = TopicPartition("kept", 0)
    pend(on, 7, 5)
    pend(on, 7, 5, kept)
    on.delete_topic_offsets({"t"})
    on.end_transaction(7, committed=True)
    assert (fetch(on), fetch(on, kept)) == (-1, 5)


def test_nothing_expires_under_an_open_transaction() -> None:
    on = stage()
    other = TopicPartition("t", 1)
    commit(on, 1)
    commit(on, 1, other)
    pend(on, 7, 5)
    on.pass_time(RETENTION_MS + CHECK_MS)
    assert (_fetch(on, P, "g"), _fetch(on, other, "g")) == (UNSTABLE, -1)
    assert groups(on) == ["g"]
    # The retention of its offset runs from the time when it was written.
    on.end_transaction(7, committed=True)
    assert _fetch(on, P, "g") == 5
    on.pass_time(CHECK_MS)
    assert groups(on) == []


def test_a_group_that_has_only_pending_offsets() -> None:
    on = stage()
    pend(on, 7, 5)
    on.pass_time(2 * CHECK_MS)
    assert groups(on) == ["g"]
    on.end_transaction(7, committed=False)
    on.pass_time(CHECK_MS)
    assert groups(on) == []
    on.restart()
    assert groups(on) == []


# Admission


def classic(state: State = State.STABLE) -> ClassicGroup:
    member = Member(
        member_id="a",
        instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=(),
    )
    members = {} if state is State.EMPTY else {"a": member}
    instances = {"i": "a"} if members else {}
    return ClassicGroup(group_id="g", state=state, generation=3, members=members, instances=instances)


def consumer(*members: ConsumerMember) -> ConsumerGroup:
    group = ConsumerGroup("g")
    group.members.update({member.member_id: member for member in members})
    return group


NEW = ConsumerMember(member_id="n", member_epoch=4)
OLD = ConsumerMember(member_id="o", member_epoch=4, classic=ClassicMembership(1000, ()))


@pytest.mark.parametrize(
    ("group", "member_id", "instance_id", "generation", "expected"),
    [
        (None, "", None, -1, "NONE"),
        (None, "a", None, 0, "ILLEGAL_GENERATION"),
        (classic(State.EMPTY), "", None, -1, "NONE"),
        (classic(State.EMPTY), "a", None, -1, "NONE"),
        (classic(State.EMPTY), "a", None, 3, "UNKNOWN_MEMBER_ID"),
        # Old producers do not name the member.
        (classic(), "", None, -1, "NONE"),
        (classic(), "a", "i", 3, "NONE"),
        (classic(), "a", None, 3, "NONE"),
        (classic(), "a", None, 2, "ILLEGAL_GENERATION"),
        (classic(), "a", None, -1, "ILLEGAL_GENERATION"),
        (classic(), "b", None, 3, "UNKNOWN_MEMBER_ID"),
        (classic(), "", None, 3, "UNKNOWN_MEMBER_ID"),
        (classic(), "b", "i", 3, "FENCED_INSTANCE_ID"),
        (classic(), "a", "j", 3, "UNKNOWN_MEMBER_ID"),
        (classic(State.COMPLETING_REBALANCE), "a", None, 3, "NONE"),
        (classic(State.PREPARING_REBALANCE), "a", None, 3, "NONE"),
        (consumer(), "", None, -1, "NONE"),
        (consumer(), "n", None, 4, "UNKNOWN_MEMBER_ID"),
        (consumer(NEW, OLD), "", None, -1, "UNKNOWN_MEMBER_ID"),
        (consumer(NEW, OLD), "n", None, 4, "NONE"),
        (consumer(NEW, OLD), "n", None, 3, "ILLEGAL_GENERATION"),
        (consumer(NEW, OLD), "o", None, 4, "NONE"),
        (consumer(NEW, OLD), "o", None, 5, "ILLEGAL_GENERATION"),
    ],
)
def test_which_members_may_commit(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, expected: str
) -> None:
    assert check_transactional_commit(group, member_id, instance_id, generation=generation).name == expected


def test_a_rejected_commit_changes_nothing() -> None:
    on = stage()
    assert pend(on, 7, 5, member_id="a", generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert groups(on) == []
    assert on.log == []
