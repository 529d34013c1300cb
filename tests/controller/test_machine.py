"""Random lives of a cluster: brokers start, stop and crash; leaders change ISRs; operators move replicas.

The model knows which replicas really have all committed records of a partition. A replica that the controller calls in
sync or eligible must be one of them, unless the controller had to elect one that may have lost records, and said so.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rookery.base.codes import ElectionType, RecoveryState
from rookery.base.errors import ErrorCode
from rookery.controller import partitions, registration
from rookery.controller.brokers import steps_to_fence, steps_to_heartbeat
from rookery.controller.decision import ControllerResult, run_steps
from rookery.controller.elections import partition_change
from rookery.controller.partitions import steps_to_alter_partitions, steps_to_elect_leaders
from rookery.controller.reassignments import steps_to_alter_reassignments
from rookery.controller.registration import steps_to_register_broker
from rookery.metadata.features import ELR_VERSION, SUPPORTED_FEATURES
from rookery.metadata.image import EMPTY_IMAGE, PartitionImage
from rookery.metadata.records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from rookery.metadata.requests import BrokerHeartbeat, PartitionAlteration, Reassignment, Registration
from tests.controller.cluster import directory

TOPIC = UUID(int=7)
NODES = (1, 2, 3, 4)
NODE = st.sampled_from(NODES)
STATIC: dict[str, str] = {}


class Cluster(RuleBasedStateMachine):
    """One partition on up to three of four brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.image = EMPTY_IMAGE
        self.offset = 0
        self.incarnations = 0
        # The replicas that have every committed record.
        self.complete: set[int] = set()
        # ISR changes that the leader has sent, in the order of sending.
        self.sent: list[tuple[int, int, PartitionAlteration]] = []
        self.running: set[int] = set()

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics["t"].partitions[0]

    def carry_out(self, records: tuple[MetadataRecord, ...]) -> None:
        before = self.image.topics.get("t")
        self.image, _ = self.image.apply(records)
        self.offset += len(records)
        if before is None:
            return
        old, new = before.partitions[0], self.partition
        assert new.leader_epoch >= old.leader_epoch
        assert (new == old) == (new.partition_epoch == old.partition_epoch), "every change has its epoch"
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch
        if new.recovery_state == RecoveryState.RECOVERING != old.recovery_state:
            # An unclean election: what the new leader has is what counts from now on.
            self.complete = {new.leader}

    def decide(self, decision: ControllerResult[object]) -> None:
        self.carry_out(decision.records)

    @initialize(has_elr=st.booleans(), min_isr=st.integers(1, 3), factor=st.integers(1, 3))
    def begin(self, has_elr: bool, min_isr: int, factor: int) -> None:
        self.min_isr = min_isr
        self.has_elr = has_elr
        self.carry_out((FeatureLevelRecord(ELR_VERSION, int(has_elr)),))
        for node_id in NODES:
            self.restart(node_id, "clean")
            self.beat(node_id)
        replicas = NODES[:factor]
        self.complete = set(replicas)
        self.carry_out(
            (
                TopicRecord("t", TOPIC),
                ConfigRecord(2, "t", "min.insync.replicas", str(min_isr)),
                PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=replicas, isr=replicas, leader=1),
            )
        )

    @rule(node_id=NODE, how=st.sampled_from(["clean", "crashed"]))
    def restart(self, node_id: int, how: str) -> None:
        """A new process of the broker registers."""
        before = self.image.brokers.get(node_id)
        self.incarnations += 1
        new = Registration(
            node_id=node_id,
            cluster_id="c",
            incarnation_id=UUID(int=self.incarnations),
            endpoints=(BrokerEndpoint("P", "h", 1),),
            features=SUPPORTED_FEATURES,
            log_directories=(directory(node_id),),
            previous_broker_epoch=before.broker_epoch if before is not None and how == "clean" else -1,
        )
        if how == "crashed":
            self.complete.discard(node_id)
        decision = run_steps(
            steps_to_register_broker(
                self.image, new, cluster_id="c", static=STATIC, next_offset=self.offset, is_alive=True
            )
        )
        assert decision.results.outcome.code is ErrorCode.NONE
        self.decide(decision)
        self.running.add(node_id)
        if (
            how == "crashed"
            and "t" in self.image.topics
            and self.partition.isr == (node_id,)
            and not self.partition.elr
        ):
            # No other replica is eligible: what it has is what counts from now on.
            self.complete = {node_id}

    @rule(node_id=NODE, behind=st.booleans(), wants_shut_down=st.sampled_from([False, False, True]))
    def beat(self, node_id: int, behind: bool = False, wants_shut_down: bool = False) -> None:
        if node_id in self.running:
            epoch = self.image.brokers[node_id].broker_epoch
            heartbeat = BrokerHeartbeat(
                node_id=node_id,
                broker_epoch=epoch,
                metadata_offset=epoch - behind,
                wants_shut_down=wants_shut_down,
            )
            self.decide(run_steps(steps_to_heartbeat(self.image, heartbeat, static=STATIC, may_shut_down=True)))

    @rule(node_id=NODE)
    def fence(self, node_id: int) -> None:
        """The lease of a broker expires; it may still run."""
        epoch = self.image.brokers[node_id].broker_epoch
        self.decide(run_steps(steps_to_fence(self.image, node_id, epoch, static=STATIC)))

    @precondition(lambda self: self.can_commit())
    @rule()
    def commit(self) -> None:
        """A record is committed: all members of the maximal ISR have it, and no other replica."""
        self.complete = self.maximal_isr()

    def maximal_isr(self) -> set[int]:
        partition = self.partition
        joining = [
            member
            for _, _, each in self.sent
            if (each.leader_epoch, each.partition_epoch) == (partition.leader_epoch, partition.partition_epoch)
            for member, _ in each.isr
        ]
        return {*partition.isr, *joining}

    def can_commit(self) -> bool:
        partition = self.partition
        return (
            partition.leader != -1
            and self.image.brokers[partition.leader].is_active
            and len(partition.isr) >= min(self.min_isr, len(partition.replicas))
            and self.maximal_isr() <= self.complete
        )

    @precondition(lambda self: self.partition.leader != -1)
    @rule(members=st.sets(NODE))
    def send_isr(self, members: set[int]) -> None:
        """The leader proposes an ISR. Those that join have caught up in their present epoch."""
        partition = self.partition
        leader = partition.leader
        if not self.image.brokers[leader].is_active or self.sent:
            return
        isr = [leader, *(member for member in partition.replicas if member in members and member != leader)]
        if leader in self.complete:
            self.complete |= set(isr)
        state = RecoveryState.RECOVERED
        self.sent.append(
            (
                leader,
                self.image.brokers[leader].broker_epoch,
                PartitionAlteration(
                    topic_id=TOPIC,
                    index=0,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    isr=tuple((member, self.image.brokers[member].broker_epoch) for member in isr),
                    recovery_state=state,
                ),
            )
        )

    @precondition(lambda self: self.sent)
    @rule(lost=st.sampled_from([False, False, False, True]))
    def receive_isr(self, lost: bool) -> None:
        """The proposal arrives late, or never."""
        leader, epoch, alteration = self.sent.pop(0)
        if not lost:
            self.decide(run_steps(steps_to_alter_partitions(self.image, leader, epoch, [alteration], static=STATIC)))

    @rule(kind=st.sampled_from([ElectionType.PREFERRED] * 3 + [ElectionType.UNCLEAN]))
    def elect(self, kind: ElectionType) -> None:
        self.decide(run_steps(steps_to_elect_leaders(self.image, kind, None, static=STATIC)))

    @rule(replicas=st.none() | st.lists(NODE, min_size=1, max_size=3, unique=True))
    def reassign(self, replicas: list[int] | None) -> None:
        wanted = Reassignment("t", 0, None if replicas is None else tuple(replicas))
        self.decide(
            run_steps(steps_to_alter_reassignments(self.image, [wanted], allow_factor_change=True, static=STATIC))
        )

    @invariant()
    def holds(self) -> None:
        if "t" not in self.image.topics:
            return
        partition = self.partition
        isr, elr = set(partition.isr), set(partition.elr)
        assert len(isr) == len(partition.isr)
        assert isr | elr <= set(partition.replicas)
        assert not isr & elr
        assert partition.leader == -1 or partition.leader in isr
        assert isr or self.has_elr, "the ISR is empty only with ELR"
        if len(isr) > 1:
            assert not any(self.image.brokers[member].fenced for member in isr)
        if not self.has_elr or len(isr) >= min(self.min_isr, len(partition.replicas)):
            assert not elr
        if self.has_elr and partition.recovery_state == RecoveryState.RECOVERED:
            assert isr | elr <= self.complete, "in sync or eligible means: has all committed records"
        assert set(partition.adding_replicas) | set(partition.removing_replicas) <= set(partition.replicas)
        if partition.last_known_elr:
            assert partition.leader == -1


Cluster.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestCluster = Cluster.TestCase


def ignores_broker_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug 13: a member of the ISR may have restarted since it fetched."""
    original = partitions._is_eligible
    monkeypatch.setattr(partitions, "_is_eligible", lambda image, node_id, _: original(image, node_id, -1))


def ignores_partition_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug 14: a leader overwrites a change that it has not seen."""
    original = partitions._alteration_problem

    def check(image: object, node_id: object, partition: PartitionImage, wanted: PartitionAlteration) -> object:
        present = replace(wanted, partition_epoch=partition.partition_epoch)
        return original(image, node_id, partition, present)  # type: ignore[arg-type]

    monkeypatch.setattr(partitions, "_alteration_problem", check)


def forgets_unclean_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug 18: a replica that lost the end of its log stays eligible."""

    def change(*arguments: object, **wanted: object) -> object:
        return partition_change(*arguments, **{**wanted, "unclean": ()})  # type: ignore[arg-type]

    monkeypatch.setattr(registration, "partition_change", change)


def a_follower_crashes_while_it_joins(cluster: Cluster) -> None:
    cluster.begin(has_elr=True, min_isr=1, factor=2)
    cluster.fence(2)
    cluster.beat(2)
    cluster.commit()
    cluster.send_isr({1, 2})
    cluster.restart(2, "crashed")
    cluster.beat(2)
    cluster.receive_isr(lost=False)


def a_follower_leaves_while_the_leader_confirms_the_isr(cluster: Cluster) -> None:
    cluster.begin(has_elr=True, min_isr=1, factor=2)
    cluster.send_isr({1, 2})
    cluster.fence(2)
    cluster.beat(2)
    cluster.commit()
    cluster.receive_isr(lost=False)


def an_eligible_replica_crashes(cluster: Cluster) -> None:
    cluster.begin(has_elr=True, min_isr=2, factor=2)
    cluster.fence(2)
    cluster.restart(2, "crashed")


@pytest.mark.parametrize(
    ("history", "plant"),
    [
        (a_follower_crashes_while_it_joins, ignores_broker_epochs),
        (a_follower_leaves_while_the_leader_confirms_the_isr, ignores_partition_epochs),
        (an_eligible_replica_crashes, forgets_unclean_restarts),
    ],
)
def test_planted_bugs_are_found(
    history: Callable[[Cluster], None],
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    correct = Cluster()
    history(correct)
    correct.holds()
    plant(monkeypatch)
    wrong = Cluster()
    history(wrong)
    with pytest.raises(AssertionError, match="in sync or eligible means"):
        wrong.holds()
