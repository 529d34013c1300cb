"""A member of a group with a protocol of its own, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.cluster import Cluster
from rookery.client.membership.worker import GroupWorker, WorkerSettings
from rookery.testing import EmbeddedBroker
from tests.client.skipping import let_pass

# So long that a busy machine does not end one.
SESSION_S = 10
TIMEOUT_S = 20


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


class Roll:
    """Everybody is assigned the names of all."""

    type = "roll"
    name = "v1"

    def __init__(self, own_name: str) -> None:
        self.own_name = own_name
        self.present: str | None = None
        self.losses = 0
        self.failures_left = 0
        self.refusals: list[ErrorCode] = []

    def metadata(self) -> bytes:
        return self.own_name.encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self.failures_left:
            self.failures_left -= 1
            raise RuntimeError("cannot count")
        return dict.fromkeys(members, b",".join(sorted(members.values())))

    def assigned(self, assignment: bytes) -> None:
        self.present = assignment.decode()

    def lost(self) -> None:
        self.present = None
        self.losses += 1

    def refused(self, error: ApiError) -> None:
        self.refusals.append(error.code)


@asynccontextmanager
async def member(
    broker: EmbeddedBroker, roll: Roll, *, leave: bool = True, session_ms: int = SESSION_S * 1000
) -> AsyncIterator[GroupWorker]:
    settings = WorkerSettings(
        group_id="g",
        instance_id=roll.own_name,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        heartbeat_interval_ms=50,
    )
    async with Cluster.at(broker.bootstrap_servers) as cluster:
        worker = GroupWorker(cluster, settings, roll)
        worker.start()
        try:
            yield worker
        finally:
            await worker.close(leave=leave)


async def comes_to(roll: Roll, present: str | None) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while roll.present != present:
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{roll.present} instead of {present}") from None


def test_members_come_and_go(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann, bob = Roll("ann"), Roll("bob")
        async with member(broker, ann):
            await comes_to(ann, "ann")
            async with member(broker, bob):
                await comes_to(ann, "ann,bob")
                await comes_to(bob, "ann,bob")
            await comes_to(ann, "ann")

    asyncio.run(scenario())


def test_who_goes_without_a_word_is_missed_after_its_session(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann, bob = Roll("ann"), Roll("bob")
        async with member(broker, ann, session_ms=60_000):
            async with member(broker, bob, leave=False):
                await comes_to(ann, "ann,bob")
            await asyncio.sleep(0.2)
            assert ann.present == "ann,bob"
            await asyncio.to_thread(broker.advance_time, SESSION_S)
            await comes_to(ann, "ann")
            assert ann.losses == 0

    asyncio.run(scenario())


def test_who_was_killed_comes_back_in_its_own_place_at_once(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        # Its session would end long after the test has given up.
        first, again = Roll("ann"), Roll("ann")
        async with member(broker, first, leave=False, session_ms=3 * TIMEOUT_S * 1000):
            await comes_to(first, "ann")
        async with member(broker, again):
            await comes_to(again, "ann")

    asyncio.run(scenario())


def test_a_protocol_that_fails_is_tried_again(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        ann.failures_left = 2
        async with member(broker, ann):
            await comes_to(ann, "ann")
        assert ann.failures_left == 0

    asyncio.run(scenario())


def test_the_assignment_is_lost_with_the_broker_and_comes_back_with_it(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann, session_ms=1000):
            await comes_to(ann, "ann")
            await asyncio.to_thread(broker.pause)
            await comes_to(ann, None)
            broker.resume()
            await comes_to(ann, "ann")

    asyncio.run(scenario())


def test_an_assignment_can_be_asked_for_again(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann) as worker:
            await comes_to(ann, "ann")
            ann.present = None
            worker.rejoin("the test wants it")
            await comes_to(ann, "ann")

    asyncio.run(scenario())


def test_a_coordinator_that_is_silent_during_a_join_is_missed(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann) as worker:
            await comes_to(ann, "ann")
            held = broker.faults.delay("JoinGroup", 60.0, times=None)
            worker.rejoin("the test wants it")
            async with asyncio.timeout(TIMEOUT_S):
                while held.hits == 0:
                    await asyncio.sleep(0.01)
            assert ann.present == "ann"
            await let_pass(SESSION_S)
            assert ann.present is None
            assert held.hits == 1

    asyncio.run(scenario())


def test_a_coordinator_that_was_silent_only_for_a_while_assigns_again(broker: EmbeddedBroker) -> None:
    """It answers the very heartbeat that was missed, and never gave us up."""

    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann) as worker:
            await comes_to(ann, "ann")
            worker._miss()
            assert ann.present is None
            await comes_to(ann, "ann")

    asyncio.run(scenario())


def test_two_with_one_instance_id_come_to_terms(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        first, second = Roll("ann"), Roll("ann")
        async with member(broker, first):
            await comes_to(first, "ann")
            async with member(broker, second, session_ms=60_000):
                await comes_to(second, "ann")
                await comes_to(first, None)
                await let_pass(SESSION_S)
                for each in (first, second):
                    await comes_to(each, "ann,ann")
                # For longer than a session, with heartbeats in between.
                for _ in range(12):
                    await let_pass(SESSION_S / 10)
                    await asyncio.sleep(0.1)
                assert (first.refusals, second.refusals) == ([ErrorCode.FENCED_INSTANCE_ID], [])
                assert first.present == second.present == "ann,ann"

    asyncio.run(scenario())


def test_a_member_that_no_try_brings_into_the_group_is_told(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann, session_ms=10):
            async with asyncio.timeout(20):
                while len(ann.refusals) < 2:
                    await asyncio.sleep(0.01)
        assert set(ann.refusals) == {ErrorCode.INVALID_SESSION_TIMEOUT}
        assert ann.present is None

    asyncio.run(scenario())
