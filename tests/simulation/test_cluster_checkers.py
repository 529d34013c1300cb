"""Each checker of a cluster finds its violation in views that are written by hand, and accepts what may happen."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from rookery.base.types import LeaderEpoch, NodeId, Offset, TopicPartition
from rookery.quorum.election_state import ElectionState
from rookery.quorum.voters import ReplicaKey
from tests.simulation.checkers import Violations, check_renewed_topic
from tests.simulation.cluster_checkers import (
    LatestOffsets,
    LogChecker,
    MetadataChecker,
    QuorumChecker,
    ReplicaChecker,
)
from tests.simulation.cluster_views import (
    Batch,
    DiskView,
    MetadataView,
    NodeView,
    PartitionKey,
    PartitionView,
    QuorumView,
    ReplicaView,
)

_PARTITION = TopicPartition("orders", 0)
_KEY = PartitionKey(UUID(int=1), _PARTITION)
_NO_METADATA = MetadataView(0, frozenset(), frozenset(), {})


@pytest.fixture
def violations() -> Violations:
    return Violations()


def found(violations: Violations) -> set[str]:
    return {violation.checker for violation in violations.found}


def quorum_node(
    node: NodeId,
    epoch: LeaderEpoch,
    leader: NodeId | None,
    high_watermark: Offset | None = None,
    boot: int = 1,
    voter_sets: Iterable[Iterable[NodeId]] = (),
) -> NodeView:
    sets = tuple(tuple(map(ReplicaKey, voters)) for voters in voter_sets)
    quorum = QuorumView(epoch, leader, leader == node, high_watermark, high_watermark or 0, ReplicaKey(node), sets)
    return NodeView(node, boot, quorum, leader == node, _NO_METADATA, ())


def disk(
    node: NodeId,
    epoch: LeaderEpoch,
    *,
    leader: NodeId | None = None,
    voted: NodeId | None = None,
    end: Offset = 100,
    number: int = 1,
) -> DiskView:
    state = ElectionState(epoch, leader, None if voted is None else ReplicaKey(voted))
    return DiskView(node, number, state, end)


def metadata(offset: Offset, partition: PartitionView, fenced: Iterable[NodeId] = ()) -> MetadataView:
    return MetadataView(offset, frozenset({1, 2, 3}), frozenset(fenced), {_KEY: partition})


def partition_view(
    leader: NodeId,
    isr: tuple[NodeId, ...],
    *,
    epoch: LeaderEpoch = 1,
    partition_epoch: int = 1,
    elr: tuple[int, ...] = (),
) -> PartitionView:
    return PartitionView(leader, epoch, partition_epoch, (1, 2, 3), isr, elr)


def leader_view(
    node: NodeId,
    state: MetadataView,
    *,
    epoch: LeaderEpoch = 1,
    isr: Iterable[NodeId] = (1, 2, 3),
    high_watermark: Offset = 0,
    end_offset: Offset = 10,
    is_leader: bool = True,
) -> NodeView:
    members = frozenset(isr)
    replica = ReplicaView(_KEY, is_leader, epoch, 1, members, members, high_watermark, 0, end_offset)
    return NodeView(node, 1, None, False, state, (replica,))


# The quorum


def test_elections_without_faults_are_accepted(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    checker.observe([quorum_node(1, 1, 1, 5), quorum_node(2, 1, 1)], [disk(1, 1, leader=1), disk(2, 1, leader=1)])
    checker.observe([quorum_node(1, 2, None, 5), quorum_node(2, 2, 2, 7)], [disk(1, 2, voted=2), disk(2, 2, leader=2)])
    checker.observe([quorum_node(1, 0, None, boot=2)], [disk(1, 2, voted=2), disk(2, 2, leader=2)])
    assert not violations.found


def test_two_leaders_of_an_epoch(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    checker.observe([quorum_node(1, 3, 1)], [])
    checker.observe([quorum_node(2, 3, 2)], [])
    assert found(violations) == {"one-controller-per-epoch"}


def test_a_disk_names_another_leader(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    checker.observe([quorum_node(1, 3, 1)], [disk(3, 3, leader=2)])
    assert found(violations) == {"one-controller-per-epoch"}


def test_two_votes_in_an_epoch(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    checker.observe([], [disk(1, 3, voted=2)])
    checker.observe([], [disk(1, 3, voted=3, number=2)])
    assert not violations.found, "another disk is another voter"
    checker.observe([], [disk(1, 3, voted=3)])
    assert found(violations) == {"one-vote-per-epoch"}


def test_an_epoch_goes_back(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    checker.observe([], [disk(1, 3)])
    checker.observe([], [disk(1, 2)])
    assert found(violations) == {"quorum-epochs"}


def test_the_metadata_high_watermark_goes_back(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    checker.observe([quorum_node(1, 3, 1, 7)], [])
    checker.observe([quorum_node(1, 3, 1, 6, boot=2)], [])
    assert not violations.found, "a new process learns the high watermark from the leader"
    checker.observe([quorum_node(1, 3, 1, 6)], [])
    assert found(violations) == {"metadata-high-watermark"}


def test_committed_metadata_is_on_one_disk_only(violations: Violations) -> None:
    checker = QuorumChecker(violations)
    disks = [disk(1, 3, end=9), disk(2, 3, end=8), disk(3, 3, end=2)]
    checker.observe([quorum_node(1, 3, 1, 8, voter_sets=[(1, 2, 3)])], disks)
    checker.observe([quorum_node(1, 3, 1, 9, voter_sets=[(1,), (1, 2)])], disks)
    assert not violations.found, "while the voters change, a majority of one set has it"
    checker.observe([quorum_node(1, 3, 1, 9, voter_sets=[(1, 2, 3)])], disks)
    assert found(violations) == {"durable-majority"}


# Metadata and replicas


def test_valid_metadata_is_accepted(violations: Violations) -> None:
    checker = MetadataChecker(violations)
    for offset, partition in enumerate(
        (
            partition_view(1, (1, 2, 3)),
            partition_view(2, (2,), epoch=2, partition_epoch=2, elr=(3,)),
            partition_view(-1, (2,), epoch=3, partition_epoch=3),
        )
    ):
        checker.observe([NodeView(1, 1, None, True, metadata(offset, partition, fenced={1}), ())] if offset else [])
    assert not violations.found


@pytest.mark.parametrize(
    ("partition", "fenced", "checker_name"),
    [
        (partition_view(1, (2, 3)), (), "valid-isr"),
        (partition_view(4, (4,)), (), "valid-isr"),
        (partition_view(1, (1, 2), elr=(2,)), (), "valid-isr"),
        (partition_view(1, (1, 2)), (2,), "fenced-in-isr"),
    ],
)
def test_invalid_metadata(
    violations: Violations, partition: PartitionView, fenced: tuple[NodeId, ...], checker_name: str
) -> None:
    MetadataChecker(violations).observe([NodeView(1, 1, None, True, metadata(1, partition, fenced), ())])
    assert found(violations) == {checker_name}


def test_a_leader_epoch_goes_back(violations: Violations) -> None:
    checker = MetadataChecker(violations)
    for offset, epoch in enumerate((2, 1)):
        partition = partition_view(1, (1,), epoch=epoch)
        checker.observe([NodeView(1, 1, None, True, metadata(offset, partition), ())])
    assert found(violations) == {"partition-epochs"}


def test_two_leaders_of_a_partition(violations: Violations) -> None:
    checker = ReplicaChecker(violations)
    checker.observe([leader_view(1, _NO_METADATA), leader_view(2, _NO_METADATA, epoch=2)])
    assert not violations.found, "the deposed leader does not know it yet"
    checker.observe([leader_view(2, _NO_METADATA)])
    assert found(violations) == {"one-leader-per-epoch"}


def test_a_leader_does_not_wait_for_a_member_of_the_isr(violations: Violations) -> None:
    checker = ReplicaChecker(violations)
    state = metadata(5, partition_view(1, (1, 2)))
    checker.observe([leader_view(1, state, isr=(1, 2, 3))])
    assert not violations.found
    checker.observe([leader_view(1, _NO_METADATA, isr=(1, 3)), leader_view(2, state, is_leader=False)])
    assert found(violations) == {"maximal-isr"}


@pytest.mark.parametrize("may_lose", [False, True])
def test_a_new_leader_has_fewer_records(violations: Violations, may_lose: bool) -> None:
    checker = ReplicaChecker(violations, may_lose=may_lose)
    before, after = metadata(5, partition_view(1, (1, 2))), metadata(6, partition_view(2, (2,), epoch=2))
    checker.observe([leader_view(1, before, high_watermark=8, isr=(1, 2))])
    checker.observe([leader_view(2, after, epoch=2, end_offset=8, isr=(2,))])
    assert not violations.found
    checker.observe([leader_view(2, after, epoch=2, end_offset=7, isr=(2,))])
    assert found(violations) == (set() if may_lose else {"leader-has-committed"})


# Logs


def test_logs_that_agree(violations: Violations) -> None:
    checker = LogChecker(violations, "replicas-agree")
    batches = [Batch(0, 2, 1, 111), Batch(3, 3, 1, 222), Batch(4, 9, 2, 333)]
    checker.observe(_KEY, 1, batches, 10)
    checker.observe(_KEY, 2, batches[1:], 10)
    # The last batch is not committed on this node: it may be truncated.
    checker.observe(_KEY, 3, [*batches[:2], Batch(4, 4, 1, 444)], 4)
    assert not violations.found


@pytest.mark.parametrize(
    "batches",
    [
        [Batch(0, 2, 1, 111), Batch(3, 3, 2, 222)],
        [Batch(0, 2, 1, 111), Batch(3, 3, 1, 333)],
        [Batch(0, 2, 1, 111), Batch(4, 4, 1, 333)],
    ],
    ids=["other epoch", "other records", "hole"],
)
def test_logs_that_differ(violations: Violations, batches: list[Batch]) -> None:
    checker = LogChecker(violations, "replicas-agree")
    checker.observe(_KEY, 1, [Batch(0, 2, 1, 111), Batch(3, 3, 1, 222)], 4)
    checker.observe(_KEY, 2, batches, 5)
    assert found(violations) == {"replicas-agree"}


def test_the_end_of_a_partition_goes_back(violations: Violations) -> None:
    checker = LatestOffsets(violations)
    checker.observe("watcher", _PARTITION, 5)
    checker.observe("another", _PARTITION, 4)
    assert not violations.found
    checker.observe("watcher", _PARTITION, 4)
    assert found(violations) == {"high-watermark"}


@pytest.mark.parametrize(
    ("read", "is_right"),
    [([b"new 1", b"new 2"], True), ([b"new 1", b"old 1", b"new 2"], False), ([b"new 2"], False)],
    ids=["as written", "records of the predecessor", "lost"],
)
def test_a_renewed_topic(violations: Violations, read: list[bytes], is_right: bool) -> None:
    check_renewed_topic(violations, "version 2 of draft", [b"new 1", b"new 2"], read)
    assert found(violations) == (set() if is_right else {"renewed-topics"})
