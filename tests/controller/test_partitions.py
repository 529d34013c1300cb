"""AlterPartition with each of its checks, directories of replicas, and elections on request."""

from dataclasses import replace
from uuid import UUID

import pytest

from rookery.base.codes import ElectionType, RecoveryState
from rookery.base.errors import ErrorCode
from rookery.controller.decision import run_steps
from rookery.controller.partitions import (
    decide_return_leaders,
    steps_to_alter_partitions,
    steps_to_assign_replicas,
    steps_to_elect_leaders,
    steps_to_elect_unclean,
)
from rookery.metadata.features import ELR_VERSION
from rookery.metadata.image import ClusterImage, PartitionImage
from rookery.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from rookery.metadata.requests import AlteredPartition, AssignedReplica, PartitionAlteration
from tests.controller.cluster import broker, carry_out, directory, image_of

TOPIC = UUID(int=7)


def cluster(*more: MetadataRecord, isr: tuple[int, ...] = (1, 2), leader: int = 1, **fields: object) -> ClusterImage:
    given: dict[str, object] = {
        "replicas": (1, 2, 3),
        "isr": isr,
        "leader": leader,
        "leader_epoch": 5,
        "partition_epoch": 9,
        **fields,
    }
    return image_of(
        FeatureLevelRecord(ELR_VERSION, 1),
        *(broker(node_id) for node_id in (1, 2, 3, 4)),
        TopicRecord("t", TOPIC),
        PartitionRecord(partition_id=0, topic_id=TOPIC, **given),  # type: ignore[arg-type]
        *more,
    )


def partition(image: ClusterImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


ISR_OF_THREE = ((1, 1), (2, 2), (3, 3))
EXPAND = PartitionAlteration(topic_id=TOPIC, index=0, leader_epoch=5, partition_epoch=9, isr=ISR_OF_THREE)


def alter(image: ClusterImage, wanted: PartitionAlteration, node_id: int = 1) -> tuple[ClusterImage, AlteredPartition]:
    decision = run_steps(steps_to_alter_partitions(image, node_id, node_id, [wanted], static={}))
    (result,) = decision.results.partitions
    return carry_out(image, decision), result


def test_the_isr_grows_and_shrinks() -> None:
    image, result = alter(cluster(), EXPAND)
    assert result == AlteredPartition(TOPIC, 0, ErrorCode.NONE, 1, 5, (1, 2, 3), 0, 10)
    assert partition(image).isr == (1, 2, 3)
    image, result = alter(image, replace(EXPAND, partition_epoch=10, isr=((1, -1),)))
    assert (result.isr, result.leader_epoch, result.partition_epoch) == ((1,), 5, 11), "no new leader epoch"
    _, same = alter(image, replace(EXPAND, partition_epoch=11, isr=((1, 1),)))
    assert same == result, "nothing changes"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic_id": UUID(int=9)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 10}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "partition_epoch": 8}, ErrorCode.FENCED_LEADER_EPOCH),
        # Planted bug 14: a leader that has not seen the last change would undo it.
        ({"partition_epoch": 8}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((1, 1), (1, 1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, 1), (4, 4))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((2, 2),)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"recovery_state": 1, "isr": ((1, 1),)}, ErrorCode.INVALID_REQUEST),
        # Planted bug 13: a broker that has restarted since it fetched may have lost what the leader saw.
        ({"isr": ((1, 1), (2, 2), (3, 33))}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_checks(changes: dict[str, object], code: ErrorCode) -> None:
    image = cluster()
    after, result = alter(image, replace(EXPAND, **changes))  # type: ignore[arg-type]
    assert (result.code, result.leader, result.isr) == (code, -1, ())
    assert after == image


def test_only_the_leader_may_ask() -> None:
    assert alter(cluster(), EXPAND, node_id=2)[1].code is ErrorCode.INVALID_REQUEST
    stale = run_steps(steps_to_alter_partitions(cluster(), 1, 7, [EXPAND], static={})).results
    assert (stale.outcome.code, stale.partitions) == (ErrorCode.STALE_BROKER_EPOCH, ())
    unknown = run_steps(steps_to_alter_partitions(cluster(), 9, 9, [EXPAND], static={})).results
    assert unknown.outcome.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("change", [{"fenced": 1}, {"in_controlled_shutdown": 1}])
def test_an_inactive_broker_does_not_join(change: dict[str, int]) -> None:
    image = cluster(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, **change))  # type: ignore[arg-type]
    assert alter(image, EXPAND)[1].code is ErrorCode.INELIGIBLE_REPLICA


def test_an_unclean_leader_confirms_its_log() -> None:
    image = cluster(isr=(1,), leader_recovery_state=1)
    both = replace(EXPAND, isr=((1, 1), (2, 2)), recovery_state=1)
    assert alter(image, both)[1].code is ErrorCode.INVALID_REQUEST, "it recovers alone"
    after, result = alter(image, replace(both, isr=((1, 1),), recovery_state=0))
    assert (result.code, result.recovery_state) == (ErrorCode.NONE, RecoveryState.RECOVERED)
    assert partition(after).recovery_state == RecoveryState.RECOVERED


def test_the_end_of_a_reassignment_can_move_the_leader() -> None:
    image = cluster(isr=(1, 2), replicas=(4, 2, 1), adding_replicas=(4,), removing_replicas=(1,))
    after, result = alter(image, replace(EXPAND, isr=((1, 1), (2, 2), (4, 4))))
    assert (result.code, result.leader, result.leader_epoch) == (ErrorCode.NEW_LEADER_ELECTED, 4, 6)
    assert (partition(after).replicas, partition(after).leader) == ((4, 2), 4), "it is written nevertheless"


def assign(image: ClusterImage, *replicas: AssignedReplica, node_id: int = 1) -> tuple[ClusterImage, list[ErrorCode]]:
    decision = run_steps(steps_to_assign_replicas(image, node_id, node_id, replicas, static={}))
    return carry_out(image, decision), list(decision.results.codes)


def test_replicas_are_assigned_to_directories() -> None:
    here = AssignedReplica(directory(1), TOPIC, 0)
    image, codes = assign(cluster(), here, replace(here, index=5), replace(here, topic_id=UUID(int=9)))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert partition(image).directories == (directory(1), UUID(int=0), UUID(int=0))
    assert assign(image, here)[0] == image, "nothing changes"
    assert assign(image, here, node_id=4)[1] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    lost, _ = assign(image, replace(here, directory=UUID(int=5555)))
    assert (partition(lost).leader, partition(lost).isr) == (2, (2,)), "that directory is not online"
    stale = run_steps(steps_to_assign_replicas(image, 1, 7, [here], static={})).results
    assert stale.outcome.code is ErrorCode.STALE_BROKER_EPOCH


def elect(
    image: ClusterImage, kind: ElectionType, partitions: list[tuple[str, int]] | None
) -> tuple[ClusterImage, list[ErrorCode]]:
    decision = run_steps(steps_to_elect_leaders(image, kind, partitions, static={}))
    return carry_out(image, decision), [result.outcome.code for result in decision.results]


def test_preferred_elections() -> None:
    image = cluster(leader=2)
    wanted = [("t", 0), ("t", 1), ("u", 0)]
    after, codes = elect(image, ElectionType.PREFERRED, wanted)
    assert codes == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert partition(after).leader == 1
    assert elect(after, ElectionType.PREFERRED, wanted[:1]) == (after, [ErrorCode.ELECTION_NOT_NEEDED])
    assert elect(after, ElectionType.PREFERRED, None) == (after, []), "only elections are reported"
    out = cluster(isr=(2, 3), leader=2)
    assert elect(out, ElectionType.PREFERRED, None) == (out, [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE])


def test_unclean_elections() -> None:
    image = cluster(isr=(), leader=-1, elr=(2,))
    gone, _ = image.apply([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1)])
    after, codes = elect(gone, ElectionType.UNCLEAN, None)
    assert (codes, partition(after).leader, partition(after).isr) == ([ErrorCode.NONE], 1, (1,))
    assert elect(after, ElectionType.UNCLEAN, [("t", 0)])[1] == [ErrorCode.ELECTION_NOT_NEEDED]
    none, _ = gone.apply(
        BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=node_id, fenced=1) for node_id in (1, 3)
    )
    assert elect(none, ElectionType.UNCLEAN, None) == (none, [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE])


def test_unclean_elections_of_the_controller() -> None:
    image = cluster(isr=(), leader=-1)
    assert run_steps(steps_to_elect_unclean(image, static={})).results == 0
    allowed, _ = image.apply([ConfigRecord(2, "t", "unclean.leader.election.enable", "true")])
    decision = run_steps(steps_to_elect_unclean(allowed, static={}))
    assert (decision.results, partition(carry_out(allowed, decision)).leader) == (1, 1)


def test_leaders_return() -> None:
    image = cluster(leader=2)
    decision = decide_return_leaders(image, [("t", 0), ("t", 1), ("u", 0)], static={})
    assert decision.records == (PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1),)
    assert decide_return_leaders(carry_out(image, decision), [("t", 0)], static={}).results == 0
    fenced, _ = image.apply([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)])
    assert decide_return_leaders(fenced, [("t", 0)], static={}).results == 0
