"""Reassignments: begun, replaced, cancelled, listed."""

from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.controller import reassignments
from rookery.controller.decision import run_steps
from rookery.controller.reassignments import list_reassignments, steps_to_alter_reassignments
from rookery.metadata.features import ELR_VERSION
from rookery.metadata.image import ClusterImage, PartitionImage
from rookery.metadata.records import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from rookery.metadata.requests import OngoingReassignment, PartitionOutcome, Reassignment
from tests.controller.cluster import broker, carry_out, image_of

TOPIC = UUID(int=7)
IMAGE = image_of(
    FeatureLevelRecord(ELR_VERSION, 1),
    *(broker(node_id) for node_id in range(1, 7)),
    TopicRecord("t", TOPIC),
    PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1),
)


def reassign(
    image: ClusterImage, replicas: tuple[int, ...] | None, *, allow_factor_change: bool = True
) -> tuple[ClusterImage, PartitionOutcome]:
    wanted = [Reassignment("t", 0, replicas)]
    decision = run_steps(
        steps_to_alter_reassignments(image, wanted, allow_factor_change=allow_factor_change, static={})
    )
    (result,) = decision.results
    return carry_out(image, decision), result


def state(image: ClusterImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = partition_of(image)
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def partition_of(image: ClusterImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def joined(image: ClusterImage, isr: tuple[int, ...]) -> ClusterImage:
    """Return the image after replicas joined the ISR, without the end of the reassignment."""
    return image.apply([PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=isr)])[0]


def test_begin_and_list() -> None:
    image, result = reassign(IMAGE, (4, 2, 3))
    assert result.outcome.code is ErrorCode.NONE
    assert state(image) == ((4, 2, 3, 1), (4,), (1,))
    assert partition_of(image).leader == 1
    ongoing = OngoingReassignment("t", 0, (4, 2, 3, 1), (4,), (1,))
    assert list_reassignments(image, None) == list_reassignments(image, [("t", 0), ("t", 9), ("u", 0)]) == [ongoing]
    assert list_reassignments(IMAGE, None) == []
    assert reassign(image, (4, 2, 3))[0] == image, "the same target again changes nothing"


def test_replace() -> None:
    image, _ = reassign(IMAGE, (4, 5, 3))
    assert state(image) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    image, _ = reassign(joined(image, (1, 2, 3, 5)), (6, 2, 3))
    assert state(image) == ((6, 2, 3, 1), (6,), (1,)), "4 and 5 leave immediately"
    assert partition_of(image).isr == (1, 2, 3)
    assert partition_of(image).leader_epoch == 1, "replicas were removed"


def test_cancel() -> None:
    image, _ = reassign(IMAGE, (4, 2, 3))
    back, result = reassign(image, None)
    assert (result.outcome.code, state(back)) == (ErrorCode.NONE, ((2, 3, 1), (), ()))
    assert partition_of(back).leader == 1
    assert reassign(back, None)[1].outcome.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    image, _ = reassign(IMAGE, (4, 5, 6))
    only_new, _ = image.apply([PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(4,), leader=4)])
    after, result = reassign(only_new, None)
    assert (after, result.outcome.code) == (only_new, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert "is in sync" in str(result.outcome.message)


@pytest.mark.parametrize(("target", "replicas"), [((2, 1, 3), (2, 1, 3)), ((3,), (3,)), ((2, 3), (2, 3))])
def test_what_needs_no_copy_is_done_at_once(target: tuple[int, ...], replicas: tuple[int, ...]) -> None:
    image, _ = reassign(IMAGE, target)
    assert state(image) == (replicas, (), ())
    assert partition_of(image).leader in replicas
    assert set(partition_of(image).isr) <= set(replicas)


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 4, 5), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_invalid_targets(replicas: tuple[int, ...], code: ErrorCode) -> None:
    image, result = reassign(IMAGE, replicas, allow_factor_change=False)
    assert (image, result.outcome.code) == (IMAGE, code)


def test_unknown_partitions() -> None:
    wanted = [Reassignment("u", 0, (1,)), Reassignment("t", 5, (1,))]
    decision = run_steps(steps_to_alter_reassignments(IMAGE, wanted, allow_factor_change=True, static={}))
    assert [each.outcome.code for each in decision.results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_a_partition_is_named_once() -> None:
    wanted = [Reassignment("t", 0, (4, 2, 3)), Reassignment("t", 0, (5, 2, 3))]
    decision = run_steps(steps_to_alter_reassignments(IMAGE, wanted, allow_factor_change=True, static={}))
    assert decision.records == ()
    assert [each.outcome.code for each in decision.results] == [ErrorCode.INVALID_REQUEST] * 2


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "RECORDS_PER_REQUEST_MAX", 0)
    wanted = [Reassignment("t", 0, (4, 2, 3))]
    decision = run_steps(steps_to_alter_reassignments(IMAGE, wanted, allow_factor_change=True, static={}))
    assert decision.records == ()
    assert {each.outcome.code for each in decision.results} == {ErrorCode.POLICY_VIOLATION}
