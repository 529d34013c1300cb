"""Proposals of new ISRs on their way to the controller: batches, retries, and what each answer does."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rookery.base.bounds import ISR_CHANGES_PER_SLICE
from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.slices import Slices
from rookery.base.types import NO_TOPIC_ID, TopicPartition
from rookery.metadata.controller_link import ControllerLink
from rookery.protocol.message import Message
from rookery.replication.isr import IsrConditions
from rookery.replication.isr_changes import IsrChanges
from rookery.replication.partition import Partition
from rookery.replication.replica import Replica
from tests.faults.files import CrashFiles
from tests.net.support import until
from tests.replication.test_isr import broker
from tests.storage.samples import open_log
from tests.support.stalls import Turns, counted_calls


class Link:
    """A controller link that answers with `answer(row)`: an error code, or an ApiError to raise."""

    def __init__(self, answer: Callable[[Any], ErrorCode | ApiError]) -> None:
        self.answer = answer
        self.requests: list[Any] = []

    async def send(self, api_key: object, request: Any, *, timeout_s: float) -> Any:
        self.requests.append(request)
        await asyncio.sleep(0)
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                code = self.answer(row)
                if isinstance(code, ApiError):
                    raise code
                rows.append(
                    Message(
                        partition_index=row.partition_index,
                        error_code=code,
                        leader_id=1,
                        leader_epoch=row.leader_epoch,
                        isr=[member.broker_id for member in row.new_isr_with_epochs],
                        leader_recovery_state=0,
                        partition_epoch=row.partition_epoch + 1,
                    )
                )
            topics.append(Message(topic_id=topic.topic_id, partitions=rows))
        return Message(error_code=0, topics=topics)


def proposing(index: int = 0) -> Replica:
    """Return a leader whose follower has caught up."""
    conditions = IsrConditions({node: broker(node) for node in (1, 2)})
    state = Partition(TopicPartition("orders", index), NO_TOPIC_ID, node_id=1, conditions=conditions)
    replica = Replica(state, open_log(CrashFiles()), changed=lambda _: None, flush=lambda _: None)
    state.set_leader(1, leader_epoch=5, partition_epoch=9, replicas=(1, 2), isr=(1,))
    state.follower_fetched(2, 0, start_offset=0, broker_epoch=7)
    assert state.proposal is not None
    return replica


def play(link: Link, *replicas: Replica, until: Callable[[], bool]) -> None:
    async def main() -> None:
        changes = IsrChanges(
            cast(ControllerLink, link), node_id=1, broker_epoch=lambda: 70, clock=ManualClock(), slices=Slices()
        )
        for replica in replicas:
            changes.propose(replica)
        async with asyncio.timeout(5):
            while not until():
                await asyncio.sleep(0.01)
        await changes.close()

    asyncio.run(main())


def test_proposals_of_one_turn_are_one_request() -> None:
    link, replicas = Link(lambda _: ErrorCode.NONE), [proposing(index) for index in range(3)]
    play(link, *replicas, until=lambda: all(replica.state.isr == (1, 2) for replica in replicas))
    (request,) = link.requests
    assert (request.broker_id, request.broker_epoch) == (1, 70)
    rows = request.topics[0].partitions
    assert [row.partition_index for row in rows] == [0, 1, 2]
    assert [(member.broker_id, member.broker_epoch) for member in rows[0].new_isr_with_epochs] == [(1, 70), (2, 7)]
    assert (rows[0].leader_epoch, rows[0].partition_epoch) == (5, 9)
    assert replicas[0].state.partition_epoch == 10


@pytest.mark.parametrize("failure", [ErrorCode.UNKNOWN_SERVER_ERROR, ApiError(ErrorCode.REQUEST_TIMED_OUT, "late")])
def test_a_proposal_is_sent_until_it_is_answered(failure: ErrorCode | ApiError) -> None:
    answers = [failure, failure, ErrorCode.NONE]
    link, replica = Link(lambda _: answers.pop(0)), proposing()
    play(link, replica, until=lambda: replica.state.isr == (1, 2))
    assert len(link.requests) == 3


def test_a_refused_member_is_withdrawn() -> None:
    link, replica = Link(lambda _: ErrorCode.INELIGIBLE_REPLICA), proposing()
    play(link, replica, until=lambda: replica.state.proposal is None)
    assert replica.state.isr == (1,)
    assert replica.state.maximal_isr == {1}


def test_a_proposal_that_may_have_been_applied_stays_until_new_metadata() -> None:
    link, replica = Link(lambda _: ErrorCode.INVALID_UPDATE_VERSION), proposing()
    play(link, replica, until=lambda: len(link.requests) == 1)
    assert replica.state.proposal is not None
    assert replica.state.maximal_isr == {1, 2}


def test_the_answers_to_many_proposals_are_processed_in_slices() -> None:
    async def main() -> Turns:
        changes = IsrChanges(
            cast(ControllerLink, Link(lambda _: ErrorCode.NONE)),
            node_id=1,
            broker_epoch=lambda: 70,
            clock=ManualClock(),
            slices=Slices(),
        )
        replicas = [proposing(index) for index in range(ISR_CHANGES_PER_SLICE * 2 + 1)]
        with counted_calls(Partition, "accept") as accepted:
            for replica in replicas:
                changes.propose(replica)
            await until(lambda: all(replica.state.isr == (1, 2) for replica in replicas))
        await changes.close()
        assert accepted.total == len(replicas)
        return accepted

    assert asyncio.run(main()).longest <= ISR_CHANGES_PER_SLICE
