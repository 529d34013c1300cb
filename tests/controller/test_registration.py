"""Registration of brokers: who is accepted, and what a new process of a broker means for its partitions."""

from dataclasses import replace
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.controller.decision import ControllerResult, run_steps
from rookery.controller.registration import decide_register_controller, steps_to_register_broker
from rookery.metadata.features import ELR_VERSION, SUPPORTED_FEATURES
from rookery.metadata.image import ClusterImage, PartitionImage
from rookery.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from rookery.metadata.requests import ControllerRegistration, Registered, Registration
from tests.controller.cluster import broker, carry_out, directory, image_of

TOPIC = UUID(int=7)
ENDPOINTS = (BrokerEndpoint("PLAINTEXT", "localhost", 9092),)
ELR = FeatureLevelRecord(ELR_VERSION, 1)


def registration(node_id: int = 1, **fields: object) -> Registration:
    new = Registration(
        node_id=node_id,
        cluster_id="cluster",
        incarnation_id=UUID(int=77),
        endpoints=ENDPOINTS,
        features=SUPPORTED_FEATURES,
        rack="r",
        log_directories=(directory(node_id),),
    )
    return replace(new, **fields)  # type: ignore[arg-type]


def register(image: ClusterImage, new: Registration, *, is_alive: bool = True) -> ControllerResult[Registered]:
    return run_steps(
        steps_to_register_broker(image, new, cluster_id="cluster", static={}, next_offset=100, is_alive=is_alive)
    )


def test_a_new_broker_is_fenced() -> None:
    decision = register(image_of(), registration())
    assert decision.results.broker_epoch == 100, "the offset of the record"
    image = carry_out(image_of(), decision)
    new = image.brokers[1]
    assert (new.broker_epoch, new.endpoints, new.rack, new.fenced) == (100, ENDPOINTS, "r", True)
    assert new.log_directories == (directory(1),)


def test_the_same_process_keeps_its_epoch() -> None:
    image = image_of(broker(1))
    same = registration(incarnation_id=image.brokers[1].incarnation_id, rack=None, features=image.brokers[1].features)
    again = register(image, same)
    assert (again.records, again.results.broker_epoch) == ((), 1), "the response was lost, and it asks again"
    moved = register(image, replace(same, rack="other"))
    assert moved.results.broker_epoch == 1
    after = carry_out(image, moved).brokers[1]
    assert after == replace(image.brokers[1], rack="other"), "it stays unfenced"


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "belongs to cluster other, and this is cluster"),
        ({"endpoints": ()}, ErrorCode.INVALID_REGISTRATION, "has no listener"),
        ({"log_directories": ()}, ErrorCode.INVALID_REGISTRATION, "has no log directory"),
        ({"log_directories": (UUID(int=1),)}, ErrorCode.INVALID_REGISTRATION, "reserved id"),
        ({"log_directories": (directory(1),) * 2}, ErrorCode.INVALID_REGISTRATION, "the same id"),
        ({"log_directories": (directory(2),)}, ErrorCode.INVALID_REGISTRATION, "a log directory of broker 2"),
        ({"features": ()}, ErrorCode.UNSUPPORTED_VERSION, "does not support eligible.leader.replicas.version at level"),
        (
            {"features": (BrokerFeature(ELR_VERSION, 2, 3),)},
            ErrorCode.UNSUPPORTED_VERSION,
            "does not support eligible.leader.replicas.version at level 1",
        ),
        (
            {"log_directories": (directory(9),)},
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "another process is registered as broker 1",
        ),
    ],
)
def test_refusals(changes: dict[str, object], code: ErrorCode, text: str) -> None:
    image = image_of(ELR, broker(1), broker(2))
    refused = register(image, replace(registration(), **changes))  # type: ignore[arg-type]
    assert (refused.records, refused.results.outcome.code) == ((), code)
    assert text in str(refused.results.outcome.message)


def test_other_directories_are_accepted_when_the_lease_has_ended() -> None:
    image = image_of(broker(1))
    assert register(image, registration(log_directories=(directory(9),)), is_alive=False).results.broker_epoch == 100


def test_the_same_directories_are_accepted_immediately() -> None:
    """They are locked: the old process is gone."""
    both = registration(log_directories=(directory(9), directory(1)))
    assert register(image_of(broker(1)), both).results.broker_epoch == 100


def cluster(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    leader: int,
    elr: tuple[int, ...] = (),
    fenced: tuple[int, ...] = (),
    has_elr: bool = True,
    min_isr: int = 1,
) -> ClusterImage:
    """Return a cluster with one partition. The epoch of each broker is its node id."""
    return image_of(
        *([ELR] if has_elr else []),
        *(broker(node_id, fenced=node_id in fenced) for node_id in (1, 2, 3)),
        TopicRecord("t", TOPIC),
        PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=replicas, isr=isr, leader=leader, elr=elr),
        ConfigRecord(2, "t", "min.insync.replicas", str(min_isr)),
    )


def after(image: ClusterImage, new: Registration) -> PartitionImage:
    decision = register(image, new)
    assert isinstance(decision.records[-1], RegisterBrokerRecord), "a crash between two records repeats the clean-up"
    assert decision.results.broker_epoch == 100 + len(decision.records) - 1
    return carry_out(image, decision).topics["t"].partitions[0]


CLEAN, UNCLEAN = registration(previous_broker_epoch=1), registration(previous_broker_epoch=-1)


@pytest.mark.parametrize("has_elr", [True, False])
def test_a_clean_restart_of_the_only_replica_writes_no_record(has_elr: bool) -> None:
    image = cluster((1,), (1,), leader=1, has_elr=has_elr)
    assert len(register(image, CLEAN).records) == 1
    image = cluster((1, 2), (1,), leader=1, has_elr=has_elr)
    assert len(register(image, CLEAN).records) == 1, "the other is not in sync"


@pytest.mark.parametrize("has_elr", [True, False])
@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_an_unclean_restart_begins_a_new_leader_epoch(replicas: tuple[int, ...], has_elr: bool) -> None:
    """New records must not get the offsets and the epoch of lost ones."""
    image = cluster(replicas, (1,), leader=1, has_elr=has_elr)
    assert register(image, UNCLEAN).records[0] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1)
    changed = after(image, registration(previous_broker_epoch=5))
    assert (changed.leader, changed.leader_epoch, changed.isr) == (1, 1, (1,)), "the epoch of another registration"


@pytest.mark.parametrize("new", [CLEAN, UNCLEAN])
@pytest.mark.parametrize("has_elr", [True, False])
def test_another_member_of_the_isr_takes_over(new: Registration, has_elr: bool) -> None:
    changed = after(cluster((1, 2, 3), (1, 2), leader=1, has_elr=has_elr), new)
    assert (changed.leader, changed.isr, changed.elr) == (2, (2,), ())
    follower = after(cluster((1, 2, 3), (2, 1), leader=2, has_elr=has_elr), new)
    assert (follower.leader, follower.leader_epoch, follower.isr) == (2, 0, (2,)), "a fenced broker is in no ISR"


def test_a_clean_restart_stays_eligible() -> None:
    changed = after(cluster((1, 2, 3), (1, 2), leader=1, min_isr=2), CLEAN)
    assert (changed.leader, changed.isr, changed.elr) == (2, (2,), (1,)), "nothing is committed without it"


def test_an_unclean_restart_is_not_eligible() -> None:
    """Planted bug 18: the last replica standing must not lead with a log that lost its end."""
    image = cluster((1, 2, 3), (1, 2), leader=1, min_isr=2)
    assert after(image, UNCLEAN).elr == ()
    image = cluster((1, 2), (1,), leader=1, elr=(2,), min_isr=2)
    changed = after(image, UNCLEAN)
    assert (changed.leader, changed.isr, changed.elr) == (2, (2,), ()), "the other has all that was committed"
    image = cluster((1, 2), (1,), leader=1, elr=(2,), fenced=(2,), min_isr=2)
    changed = after(image, UNCLEAN)
    assert (changed.leader, changed.isr, changed.elr) == (-1, (), (2,)), "the partition waits for it"
    image = cluster((1, 2), (), leader=-1, elr=(1, 2), fenced=(1, 2), min_isr=2)
    assert after(image, UNCLEAN).elr == (2,)


def test_a_replaced_disk_does_not_lead_over_other_replicas() -> None:
    wiped = registration(log_directories=(directory(9),))
    image = cluster((1, 2), (1,), leader=1)
    decision = register(image, wiped, is_alive=False)
    changed = carry_out(image, decision).topics["t"].partitions[0]
    assert (changed.leader, changed.isr, changed.last_known_elr) == (-1, (), ()), "an operator must choose"
    image = cluster((1,), (1,), leader=1)
    decision = register(image, wiped, is_alive=False)
    assert carry_out(image, decision).topics["t"].partitions[0].leader == 1, "there is no other replica to choose"


def test_controllers() -> None:
    new = ControllerRegistration(
        node_id=3, incarnation_id=UUID(int=5), endpoints=ENDPOINTS, features=SUPPORTED_FEATURES
    )
    image = carry_out(image_of(), decide_register_controller(image_of(), new))
    assert image.controllers[3].endpoints == ENDPOINTS
    assert decide_register_controller(image, new).records == (), "nothing is new"
    assert len(decide_register_controller(image, replace(new, incarnation_id=UUID(int=6))).records) == 1
    refused = decide_register_controller(image, replace(new, endpoints=()))
    assert refused.results.code is ErrorCode.INVALID_REGISTRATION
