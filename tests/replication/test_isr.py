"""The rules of in-sync replicas on a leader: joining, leaving, and what counts until the controller has answered."""

from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.metadata.image import BrokerImage
from rookery.replication.isr import AlteredIsr, Follower, IsrConditions
from rookery.replication.partition import Partition

_TP = TopicPartition("orders", 0)


def broker(node: int, *, epoch: int = 7, fenced: bool = False, stopping: bool = False) -> BrokerImage:
    return BrokerImage(
        broker_id=node,
        incarnation_id=UUID(int=epoch),
        broker_epoch=epoch,
        endpoints=(),
        features=(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=stopping,
        log_directories=(),
    )


def make(
    isr: tuple[int, ...], *, min_isr: int = 1, end: int = 10, brokers: dict[int, BrokerImage] | None = None
) -> Partition:
    conditions = IsrConditions(brokers if brokers is not None else {node: broker(node) for node in (1, 2, 3)})
    partition = Partition(_TP, NO_TOPIC_ID, node_id=1, conditions=conditions, min_insync_replicas=min_isr)
    partition.restore(high_watermark=0, start_offset=0, end_offset=end)
    partition.set_leader(1, leader_epoch=5, partition_epoch=9, replicas=(1, 2, 3), isr=isr)
    return partition


def fetch(partition: Partition, node: int, offset: int, *, epoch: int = 7, now_s: float = 0.0) -> bool:
    return partition.follower_fetched(node, offset, start_offset=0, broker_epoch=epoch, now_s=now_s)


def test_a_follower_that_has_everything_is_proposed_and_counts_at_once() -> None:
    partition = make((1, 2))
    fetch(partition, 2, 10)
    assert partition.high_watermark == 10
    fetch(partition, 3, 10)
    assert partition.proposal is not None
    assert partition.proposal.isr == ((1, -1), (2, 7), (3, 7))
    assert (partition.proposal.leader_epoch, partition.proposal.partition_epoch) == (5, 9)
    assert partition.isr == (1, 2)
    partition.local_end_moved(12, 1000.0)
    fetch(partition, 2, 12, now_s=1000.0)
    assert partition.high_watermark == 10, "the proposed member does not have them"
    assert not partition.accept(partition.proposal, AlteredIsr(5, 10, (1, 2, 3)))
    assert set(partition.isr) == {1, 2, 3}
    assert partition.partition_epoch == 10


@pytest.mark.parametrize(
    "condition",
    [
        {3: broker(3, fenced=True)},
        {3: broker(3, stopping=True)},
        {3: broker(3, epoch=8)},
        {},
    ],
    ids=["fenced", "shutting down", "another process", "unknown"],
)
def test_a_follower_that_may_not_join(condition: dict[int, BrokerImage]) -> None:
    partition = make((1, 2), brokers={1: broker(1), 2: broker(2), **condition})
    fetch(partition, 2, 10)
    fetch(partition, 3, 10)
    assert partition.proposal is None


def test_a_follower_below_the_epochs_start_may_not_join() -> None:
    partition = make((1, 2))
    assert (partition.high_watermark, partition.epoch_start_offset) == (0, 10)
    fetch(partition, 3, 9)
    assert partition.proposal is None
    fetch(partition, 3, 10)
    assert partition.proposal is not None


def test_a_fetch_without_broker_epoch_may_join() -> None:
    partition = make((1, 2))
    fetch(partition, 3, 10, epoch=-1)
    assert partition.proposal is not None


def test_a_replaced_process_is_refused() -> None:
    partition = make((1, 2), brokers={1: broker(1), 2: broker(2, epoch=8)})
    assert partition.check_follower(2, 5, 7) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_follower(2, 5, 8) is ErrorCode.NONE
    assert partition.check_follower(2, 5, -1) is ErrorCode.NONE


def test_a_follower_that_lags_leaves_but_counts_until_the_answer() -> None:
    partition = make((1, 2, 3))
    fetch(partition, 2, 10, now_s=40.0)
    fetch(partition, 3, 4)
    assert not partition.propose_shrink(29.0)
    assert partition.propose_shrink(40.0)
    proposal = partition.proposal
    assert proposal is not None
    assert proposal.members == (1, 2)
    assert partition.maximal_isr == {1, 2, 3}
    assert partition.high_watermark == 4
    assert not partition.propose_shrink(50.0), "one proposal at a time"
    assert partition.accept(proposal, AlteredIsr(5, 10, (1, 2)), 40.0)
    assert partition.high_watermark == 10


def test_a_follower_that_is_one_fetch_behind_all_the_time_stays() -> None:
    follower = Follower(caught_up_s=0.0)
    for second in range(100):
        follower.fetched(second, 0, broker_epoch=1, leader_end=second + 1, now_s=float(second))
    assert follower.is_caught_up(101, 100.0, 30.0)
    stuck = Follower(caught_up_s=0.0)
    for second in range(100):
        stuck.fetched(0, 0, broker_epoch=1, leader_end=second + 1, now_s=float(second))
    assert not stuck.is_caught_up(101, 100.0, 30.0)


def test_a_follower_that_is_about_to_join_holds_the_high_watermark_back() -> None:
    partition = make((1,))
    assert partition.high_watermark == 10
    fetch(partition, 2, 10)
    proposal = partition.proposal
    assert proposal is not None
    partition.withdraw(proposal)
    partition.local_end_moved(20, 1.0)
    assert partition.high_watermark == 10
    partition.local_end_moved(21, 40.0)
    assert partition.high_watermark == 21, "it has not caught up for longer than the lag"


def test_nothing_is_committed_below_the_minimum_of_in_sync_replicas() -> None:
    partition = make((1, 2), min_isr=2)
    fetch(partition, 2, 10)
    assert partition.high_watermark == 10
    partition.set_leader(1, leader_epoch=5, partition_epoch=10, replicas=(1, 2, 3), isr=(1,))
    partition.local_end_moved(20, 1000.0)
    assert partition.high_watermark == 10
    assert partition.configure(1, 1000.0)
    assert partition.high_watermark == 20


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    partition = Partition(_TP, NO_TOPIC_ID, node_id=1, min_insync_replicas=2)
    partition.set_leader(1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    assert partition.local_end_moved(3)


def test_an_answer_that_the_metadata_overtook_is_ignored() -> None:
    partition = make((1, 2))
    fetch(partition, 3, 10)
    proposal = partition.proposal
    assert proposal is not None
    partition.set_leader(1, leader_epoch=5, partition_epoch=11, replicas=(1, 2, 3), isr=(1,))
    assert partition.maximal_isr == {1}
    assert not partition.accept(proposal, AlteredIsr(5, 10, (1, 2, 3)))
    assert partition.isr == (1,)


def test_metadata_that_the_answer_overtook_is_ignored() -> None:
    partition = make((1, 2))
    fetch(partition, 3, 10)
    assert partition.proposal is not None
    partition.accept(partition.proposal, AlteredIsr(5, 10, (1, 2, 3)))
    partition.set_leader(1, leader_epoch=5, partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2))
    assert partition.isr == (1, 2, 3)


def test_the_same_metadata_again_does_not_drop_a_proposal() -> None:
    partition = make((1, 2))
    fetch(partition, 3, 10)
    proposal = partition.proposal
    partition.set_leader(1, leader_epoch=5, partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2))
    assert partition.proposal is proposal
    assert partition.maximal_isr == {1, 2, 3}


def test_a_leader_after_an_unclean_election_confirms_its_state() -> None:
    partition = make((1,))
    partition.set_leader(1, leader_epoch=6, partition_epoch=10, replicas=(1, 2, 3), isr=(1,), is_recovering=True)
    assert partition.proposal is not None
    assert partition.proposal.members == (1,)
    partition.accept(partition.proposal, AlteredIsr(6, 11, (1,)))
    assert not partition.is_recovering


def test_the_low_watermark_waits_for_replicas_that_are_alive() -> None:
    partition = make((1, 2), brokers={1: broker(1), 2: broker(2), 3: broker(3, fenced=True)})
    assert partition.low_watermark(5) == -1
    fetch(partition, 2, 10)
    assert partition.low_watermark(5) == 0
    partition.follower_fetched(2, 10, start_offset=5, broker_epoch=7)
    assert partition.low_watermark(5) == 5


def test_a_fenced_follower_no_longer_holds_the_high_watermark_back() -> None:
    partition = make((1,))
    fetch(partition, 2, 10)
    assert partition.proposal is not None
    partition.withdraw(partition.proposal)
    assert not partition.local_end_moved(20, 1.0)
    assert partition.may_be_held_back
    partition._conditions.brokers = {1: broker(1), 2: broker(2, fenced=True)}
    assert partition.advance(1.0)
    assert partition.high_watermark == 20
