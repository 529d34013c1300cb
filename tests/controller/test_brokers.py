"""Heartbeats, fencing and unfencing, controlled shutdown, removal of a broker."""

from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.controller.brokers import (
    HeartbeatPlan,
    plan_heartbeat,
    steps_to_fence,
    steps_to_heartbeat,
    steps_to_unregister_broker,
)
from rookery.controller.decision import ControllerResult, run_steps
from rookery.metadata.features import ELR_VERSION, METADATA_VERSION
from rookery.metadata.image import ClusterImage, PartitionImage
from rookery.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from rookery.metadata.requests import BrokerHeartbeat, HeartbeatReply
from tests.controller.cluster import broker, carry_out, directory, image_of

TOPIC = UUID(int=7)
FEATURES = (FeatureLevelRecord(METADATA_VERSION, 30), FeatureLevelRecord(ELR_VERSION, 1))
OTHER_DIRECTORY = UUID(int=5555)


def cluster(
    *more: MetadataRecord,
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    fenced: tuple[int, ...] = (),
    directories: tuple[UUID, ...] = (),
) -> ClusterImage:
    """Return three brokers, whose epochs are their node ids, and one partition."""
    return image_of(
        *FEATURES,
        *(broker(node_id, fenced=node_id in fenced) for node_id in (1, 2, 3)),
        TopicRecord("t", TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=isr, leader=leader, directories=directories
        ),
        *more,
    )


def beat(node_id: int = 1, offset: int = 100, **fields: object) -> BrokerHeartbeat:
    given: dict[str, object] = {"broker_epoch": node_id, "metadata_offset": offset, **fields}
    return BrokerHeartbeat(node_id=node_id, **given)  # type: ignore[arg-type]


def decide(
    image: ClusterImage, heartbeat: BrokerHeartbeat, *, may_shut_down: bool = False
) -> ControllerResult[HeartbeatReply]:
    return run_steps(steps_to_heartbeat(image, heartbeat, static={}, may_shut_down=may_shut_down))


def partition(image: ClusterImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def fence(image: ClusterImage, node_id: int) -> ClusterImage:
    return carry_out(image, run_steps(steps_to_fence(image, node_id, node_id, static={})))


@pytest.mark.parametrize(
    ("fenced", "heartbeat", "expected"),
    [
        # is_caught_up, is_fenced, should_shut_down, whether it changes something
        (False, beat(), (True, False, False, False)),
        (False, beat(offset=0), (False, False, False, False)),
        (True, beat(offset=0), (False, True, False, False)),
        (True, beat(offset=1), (True, False, False, True)),
        (True, beat(wants_fence=True), (True, True, False, False)),
        (True, beat(wants_shut_down=True), (True, True, True, False)),
        (False, beat(wants_fence=True), (True, True, False, True)),
        (False, beat(wants_shut_down=True), (True, False, False, True)),
        (False, beat(wants_fence=True, wants_shut_down=True), (True, True, True, True)),
    ],
)
def test_states(fenced: bool, heartbeat: BrokerHeartbeat, expected: tuple[bool, bool, bool, bool]) -> None:
    image = cluster(isr=(2, 3), leader=2, fenced=(1,) if fenced else ())
    plan = plan_heartbeat(image, heartbeat, may_shut_down=False)
    reply = decide(image, heartbeat)
    assert reply.results == plan.reply
    assert (reply.results.is_caught_up, reply.results.is_fenced, reply.results.should_shut_down) == expected[:3]
    assert plan.is_change == bool(reply.records) == expected[3]
    after = carry_out(image, reply).brokers[1]
    assert after.fenced == reply.results.is_fenced


@pytest.mark.parametrize(
    ("heartbeat", "code"),
    [(beat(9), ErrorCode.BROKER_ID_NOT_REGISTERED), (beat(broker_epoch=7), ErrorCode.STALE_BROKER_EPOCH)],
)
def test_stale_brokers(heartbeat: BrokerHeartbeat, code: ErrorCode) -> None:
    plan = plan_heartbeat(cluster(), heartbeat, may_shut_down=False)
    assert plan == HeartbeatPlan(plan.reply)
    assert plan.reply.outcome.code is code


def test_a_fenced_broker_leaves_its_partitions_first() -> None:
    image = cluster()
    decision = run_steps(steps_to_fence(image, 1, 1, static={}))
    assert decision.records[-1] == BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)
    after = carry_out(image, decision)
    assert (partition(after).leader, partition(after).isr, partition(after).leader_epoch) == (2, (2, 3), 1)
    assert after.brokers[1].fenced
    assert run_steps(steps_to_fence(after, 1, 1, static={})).records == (), "it is fenced, and leads nothing"
    assert run_steps(steps_to_fence(image, 1, 0, static={})).records == (), "it has registered again"
    assert run_steps(steps_to_fence(image, 9, 9, static={})).records == ()


def test_a_broker_that_registers_and_dies_loses_what_it_kept() -> None:
    image = cluster(isr=(1,), fenced=(1,))
    decision = run_steps(steps_to_fence(image, 1, 1, static={}))
    assert (decision.results, len(decision.records)) == (True, 1), "it is fenced already"
    after = partition(carry_out(image, decision))
    assert (after.leader, after.isr, after.elr) == (-1, (), (1,))


def test_all_are_fenced_and_return() -> None:
    image = fence(fence(fence(cluster(), 1), 2), 3)
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (-1, (), (3,))
    first = decide(image, beat(1))
    assert isinstance(first.records[0], BrokerRegistrationChangeRecord), "unfenced before it is elected"
    image = carry_out(image, first)
    assert partition(image).leader == -1, "it left while others were in sync"
    image = carry_out(image, decide(image, beat(3)))
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (3, (3,), ())


def test_an_unclean_election_where_the_topic_allows_it() -> None:
    image = cluster(ConfigRecord(2, "t", "unclean.leader.election.enable", "true"), isr=(1,))
    after = partition(fence(image, 1))
    assert (after.leader, after.isr, after.recovery_state) == (2, (2,), 1)
    kept = partition(fence(cluster(isr=(1,)), 1))
    assert (kept.leader, kept.elr) == (-1, (1,))


def test_a_controlled_shutdown_moves_what_can_move() -> None:
    image = cluster()
    begun = decide(image, beat(wants_shut_down=True))
    assert not begun.results.should_shut_down
    image = carry_out(image, begun)
    assert (partition(image).leader, partition(image).isr) == (2, (2, 3))
    assert image.brokers[1].in_controlled_shutdown
    again = decide(image, beat(wants_shut_down=True))
    assert (again.records, again.results.should_shut_down) == ((), False), "the others have not applied the moves"
    assert decide(image, beat(wants_shut_down=True), may_shut_down=True).results.should_shut_down


def test_a_controlled_shutdown_leaves_what_only_it_can_lead() -> None:
    image = cluster(isr=(1,))
    after = carry_out(image, decide(image, beat(wants_shut_down=True)))
    assert partition(after) == partition(image)
    assert partition(fence(after, 1)).elr == (1,), "until it is gone"


def test_a_node_that_is_alone_stops_without_a_record() -> None:
    image = image_of(*FEATURES, broker(1), broker(2, fenced=True))
    alone = decide(image, beat(wants_shut_down=True))
    assert (alone.records, alone.results.should_shut_down) == ((), True)


def test_a_failed_directory_takes_only_its_replicas_away() -> None:
    records = (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_directories=(directory(1), OTHER_DIRECTORY)),
    )
    here = cluster(*records, directories=(OTHER_DIRECTORY, UUID(int=0), UUID(int=0)))
    failed = decide(here, beat(offline_directories=(OTHER_DIRECTORY,)))
    after = carry_out(here, failed)
    assert after.brokers[1].log_directories == (directory(1),)
    assert (partition(after).leader, partition(after).isr) == (2, (2, 3))
    assert not failed.results.is_fenced
    elsewhere = cluster(*records, directories=(directory(1), UUID(int=0), UUID(int=0)))
    after = carry_out(elsewhere, decide(elsewhere, beat(offline_directories=(OTHER_DIRECTORY,))))
    assert partition(after) == partition(elsewhere)
    assert decide(after, beat(offline_directories=(OTHER_DIRECTORY,))).records == (), "it is known"


def test_a_broker_without_directories_is_fenced() -> None:
    image = cluster()
    after = carry_out(image, decide(image, beat(offline_directories=(directory(1),))))
    assert after.brokers[1].fenced
    assert partition(after).leader == 2
    stopping = decide(after, beat(offline_directories=(directory(1),), wants_shut_down=True))
    assert stopping.results.should_shut_down, "nothing is left to move"


def test_cordoned_directories() -> None:
    image = cluster()
    after = carry_out(image, decide(image, beat(cordoned_directories=(directory(1),))))
    assert after.brokers[1].cordoned_directories == (directory(1),)
    assert decide(after, beat(cordoned_directories=(directory(1),))).records == ()
    assert decide(image, beat(cordoned_directories=())).records == (), "there are none, as before"
    old, _ = image.apply([FeatureLevelRecord(METADATA_VERSION, 29)])
    assert decide(old, beat(cordoned_directories=())).records == (), "the level cannot store them"


def test_a_broker_is_removed() -> None:
    image = cluster()
    after = carry_out(image, run_steps(steps_to_unregister_broker(image, 1, static={})))
    assert 1 not in after.brokers
    assert (partition(after).leader, partition(after).isr, partition(after).elr) == (2, (2, 3), ())
    assert partition(after).replicas == (1, 2, 3), "an operator reassigns them"
    unknown = run_steps(steps_to_unregister_broker(after, 1, static={}))
    assert (unknown.records, unknown.results.code) == ((), ErrorCode.BROKER_ID_NOT_REGISTERED)
