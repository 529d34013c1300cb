"""The change of one partition: which replica leads, and what becomes of ISR, ELR and epochs."""

from uuid import UUID

import pytest

from rookery.base.codes import RecoveryState
from rookery.controller.elections import Election, Reassigned, Rules, TopicRules, partition_change
from rookery.metadata.features import ELR_VERSION
from rookery.metadata.image import PartitionImage, changed_partition
from rookery.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from tests.controller.cluster import broker, directory, image_of

TOPIC = UUID(int=7)


def partition(isr: tuple[int, ...], leader: int, **fields: object) -> PartitionImage:
    given: dict[str, object] = {"replicas": (1, 2, 3), "leader_epoch": 5, "partition_epoch": 9, **fields}
    return PartitionImage(index=0, isr=isr, leader=leader, **given)  # type: ignore[arg-type]


def rules(*active: int, has_elr: bool = True, min_isr: int = 1, allows_unclean: bool = False) -> Rules:
    brokers = image_of(*(broker(node_id, fenced=node_id not in active) for node_id in (1, 2, 3, 4, 5))).brokers
    return Rules(brokers=brokers, has_elr=has_elr, min_isr=min_isr, allows_unclean=allows_unclean)


def changed(before: PartitionImage, given: Rules, **wanted: object) -> PartitionImage:
    record = partition_change(TOPIC, before, given, **wanted)  # type: ignore[arg-type]
    return before if record is None else changed_partition(before, record)


@pytest.mark.parametrize(
    ("election", "isr", "leader", "active", "elected"),
    [
        (Election.ONLINE, (1, 2), 2, (1, 2, 3), 2),
        (Election.ONLINE, (1, 2), 3, (1, 2, 3), 1),
        (Election.ONLINE, (2, 1), 3, (2, 3), 2),
        (Election.PREFERRED, (1, 2), 2, (1, 2, 3), 1),
        (Election.PREFERRED, (2, 3), 3, (1, 2, 3), 3),
        (Election.PREFERRED, (1, 2, 3), 3, (2, 3), 3),
        (Election.UNCLEAN, (2,), 2, (1, 2, 3), 2),
        (Election.UNCLEAN, (2,), -1, (1, 2, 3), 2),
    ],
)
def test_clean_elections(
    election: Election, isr: tuple[int, ...], leader: int, active: tuple[int, ...], elected: int
) -> None:
    after = changed(partition(isr, leader), rules(*active), election=election)
    assert (after.leader, after.isr, after.recovery_state) == (elected, isr, RecoveryState.RECOVERED)
    assert after.leader_epoch == 5 + (elected != leader), "only a new leader begins an epoch"
    assert after.partition_epoch == 9 + (elected != leader)


def test_without_elr_the_last_member_stays() -> None:
    before = partition((1,), 1)
    gone = changed(before, rules(2, 3, has_elr=False), isr=())
    assert (gone.leader, gone.isr, gone.leader_epoch) == (-1, (1,), 6)
    back = changed(gone, rules(1, 2, 3, has_elr=False))
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), 7)


def test_with_elr_the_isr_may_be_empty() -> None:
    gone = changed(partition((1,), 1), rules(2, 3), isr=())
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (-1, (), (1,), (1,))
    assert changed(gone, rules(2, 3)) == gone, "the others lack records"
    back = changed(gone, rules(1, 2, 3))
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), (), ())
    assert back.recovery_state == RecoveryState.RECOVERED, "it has all that was committed"


@pytest.mark.parametrize(
    ("min_isr", "isr", "elr"),
    [(1, (1,), ()), (2, (1, 2), ()), (2, (1,), (2, 3)), (3, (1, 2), (3,)), (5, (1, 2), (3,)), (5, (1, 2, 3), ())],
)
def test_who_is_eligible(min_isr: int, isr: tuple[int, ...], elr: tuple[int, ...]) -> None:
    after = changed(partition((1, 2, 3), 1), rules(1, 2, 3, min_isr=min_isr), isr=isr)
    assert (after.isr, after.elr) == (isr, elr)


def test_eligible_replicas_accumulate_and_leave_when_the_isr_is_large_enough() -> None:
    given = rules(1, 2, 3, min_isr=3)
    first = changed(partition((1, 2, 3), 1), given, isr=(1, 2))
    second = changed(first, given, isr=(1,))
    assert second.elr == (3, 2)
    third = changed(second, given, isr=(1, 2))
    assert (third.isr, third.elr) == ((1, 2), (3,))
    assert changed(third, given, isr=(1, 2, 3)).elr == ()


def test_an_unclean_shutdown_is_not_eligible() -> None:
    after = changed(partition((1, 2, 3), 1), rules(2, 3, min_isr=3), isr=(2, 3), unclean=(1,))
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    waiting = partition((), -1, elr=(1, 3), last_known_elr=(1,))
    assert changed(waiting, rules(2), unclean=(1,)).elr == (3,)


def test_the_last_leader_is_elected_if_no_other_is_eligible() -> None:
    waiting = partition((), -1, last_known_elr=(2,))
    assert changed(waiting, rules(1, 3)) == waiting
    after = changed(waiting, rules(1, 2, 3))
    assert (after.leader, after.isr, after.last_known_elr) == (2, (2,), ())
    assert after.recovery_state == RecoveryState.RECOVERING, "it may have lost records"
    assert changed(waiting, rules(1, 2, 3), lost=(2,)).leader == -1
    assert changed(partition((), -1, elr=(3,), last_known_elr=(2,)), rules(1, 2)).leader == -1, "3 has more"


@pytest.mark.parametrize("has_elr", [True, False])
def test_an_unclean_election(has_elr: bool) -> None:
    before = partition((), -1, elr=(1,)) if has_elr else partition((1,), -1)
    after = changed(before, rules(3, has_elr=has_elr), election=Election.UNCLEAN)
    assert (after.leader, after.isr, after.elr, after.recovery_state) == (3, (3,), (), RecoveryState.RECOVERING)
    confirmed = changed(after, rules(3, has_elr=has_elr), recovery_state=RecoveryState.RECOVERED)
    assert (confirmed.leader, confirmed.leader_epoch) == (3, after.leader_epoch)
    assert confirmed.recovery_state == RecoveryState.RECOVERED


def test_nothing_to_change() -> None:
    assert partition_change(TOPIC, partition((1, 2), 1), rules(1, 2, 3), isr=(2, 1)) is None, "the order is kept"


def test_a_directory_that_is_offline_does_not_lead() -> None:
    assigned = partition((1, 2), 1, directories=(directory(1), UUID(int=5555), UUID(int=0)))
    assert changed(assigned, rules(1, 2, 3)).leader == 1
    assert changed(assigned, rules(1, 2, 3), isr=(2, 3)).leader == 3, "the directory of 2 is not online"


MOVE = Reassigned(replicas=(4, 2, 3, 1), adding=(4,), removing=(1,))


def test_a_reassignment_is_complete_when_the_new_replicas_are_in_sync() -> None:
    given = rules(1, 2, 3, 4)
    moving = changed(partition((1, 2, 3), 1), given, reassigned=MOVE)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((4, 2, 3, 1), (4,), (1,))
    assert (moving.leader, moving.leader_epoch, moving.isr) == (1, 5, (1, 2, 3))
    done = changed(moving, given, isr=(1, 2, 3, 4))
    assert (done.replicas, done.adding_replicas, done.removing_replicas) == ((4, 2, 3), (), ())
    assert (done.leader, done.isr, done.leader_epoch) == (4, (2, 3, 4), 6)
    assert len(done.directories) == 3


def test_the_epoch_changes_when_a_replica_is_removed() -> None:
    """Planted bug 18: a replica that is added again later must not be believed from its old position."""
    given = rules(1, 2, 3)
    before = partition((1, 2, 3), 1)
    done = changed(before, given, reassigned=Reassigned(replicas=(1, 2, 3), removing=(3,)))
    assert (done.replicas, done.leader, done.leader_epoch) == ((1, 2), 1, 6)


def test_a_shrinking_reassignment_needs_its_whole_target() -> None:
    shrink = Reassigned(replicas=(1, 2, 3), removing=(3,))
    waiting = changed(partition((1, 3), 1), rules(1, 2, 3), reassigned=shrink)
    assert waiting.removing_replicas == (3,)
    assert changed(waiting, rules(1, 2, 3), isr=(1, 2, 3)).replicas == (1, 2)


def test_the_rules_of_a_topic() -> None:
    image = image_of(
        FeatureLevelRecord(ELR_VERSION, 1),
        broker(1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1),
        TopicRecord("a", TOPIC),
        ConfigRecord(2, "a", "min.insync.replicas", "2"),
        ConfigRecord(4, "", "unclean.leader.election.enable", "true"),
        ConfigRecord(4, "1", "min.insync.replicas", "7"),
    )
    found = TopicRules(image, {"min.insync.replicas": "3"})
    assert (found.of("a").min_isr, found.of("b").min_isr) == (2, 3), "not the value of a single broker"
    assert found.of("a").election is Election.UNCLEAN
    assert found.of("a").has_elr
    assert found.of("b") is found.of("c"), "topics with equal configs share their rules"
    assert not found.of("a").can_lead(partition((1,), 1), 1)
    assert not found.of("a").can_lead(partition((1,), 1), 9), "it is not registered"


def test_a_record_has_only_what_changed() -> None:
    record = partition_change(TOPIC, partition((1, 2), 1), rules(1, 2, 3), isr=(1, 2, 3))
    assert record == PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2, 3))
