"""A member of a group with a custom protocol, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.cluster import Cluster
from rookery.client.membership.worker import GroupWorker, WorkerSettings
from rookery.testing import EmbeddedBroker
from tests.client.skipping import let_pass

# Long enough not to expire on a busy machine.
SESSION_S = 10
TIMEOUT_S = 20


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


class Roll:
    """A group protocol that assigns the names of all members to each member."""

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


async def wait_for(roll: Roll, present: str | None) -> None:
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
            await wait_for(ann, "ann")
            async with member(broker, bob):
                await wait_for(ann, "ann,bob")
                await wait_for(bob, "ann,bob")
            await wait_for(ann, "ann")

    asyncio.run(scenario())


def test_a_member_that_does_not_leave_is_removed_after_its_session(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann, bob = Roll("ann"), Roll("bob")
        async with member(broker, ann, session_ms=60_000):
            async with member(broker, bob, leave=False):
                await wait_for(ann, "ann,bob")
            await asyncio.sleep(0.2)
            assert ann.present == "ann,bob"
            await asyncio.to_thread(broker.advance_time, SESSION_S)
            await wait_for(ann, "ann")
            assert ann.losses == 0

    asyncio.run(scenario())


def test_a_killed_member_with_an_instance_id_comes_back_immediately(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        # Its session would expire long after the test's time-out.
        first, again = Roll("ann"), Roll("ann")
        async with member(broker, first, leave=False, session_ms=3 * TIMEOUT_S * 1000):
            await wait_for(first, "ann")
        async with member(broker, again):
            await wait_for(again, "ann")

    asyncio.run(scenario())


def test_a_failure_of_the_protocol_is_retried(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        ann.failures_left = 2
        async with member(broker, ann):
            await wait_for(ann, "ann")
        assert ann.failures_left == 0

    asyncio.run(scenario())


def test_the_assignment_is_lost_with_the_broker_and_comes_back_with_it(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann, session_ms=1000):
            await wait_for(ann, "ann")
            await asyncio.to_thread(broker.pause)
            await wait_for(ann, None)
            broker.resume()
            await wait_for(ann, "ann")

    asyncio.run(scenario())


def test_a_rejoin_brings_a_new_assignment(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann) as worker:
            await wait_for(ann, "ann")
            ann.present = None
            worker.rejoin("a test")
            await wait_for(ann, "ann")

    asyncio.run(scenario())


def test_the_assignment_is_lost_if_the_coordinator_is_silent_during_a_join(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann) as worker:
            await wait_for(ann, "ann")
            held = broker.faults.delay("JoinGroup", 60.0, times=None)
            worker.rejoin("a test")
            async with asyncio.timeout(TIMEOUT_S):
                while held.hits == 0:
                    await asyncio.sleep(0.01)
            assert ann.present == "ann"
            await let_pass(SESSION_S)
            assert ann.present is None
            assert held.hits == 1

    asyncio.run(scenario())


def test_a_coordinator_that_was_silent_only_for_a_while_assigns_again(broker: EmbeddedBroker) -> None:
    """The coordinator answers the late heartbeat, and never removed the member."""

    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann) as worker:
            await wait_for(ann, "ann")
            worker._on_silence()
            assert ann.present is None
            await wait_for(ann, "ann")

    asyncio.run(scenario())


def test_two_members_with_one_instance_id_do_not_fence_each_other_for_ever(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        first, second = Roll("ann"), Roll("ann")
        async with member(broker, first):
            await wait_for(first, "ann")
            async with member(broker, second, session_ms=60_000):
                await wait_for(second, "ann")
                await wait_for(first, None)
                await let_pass(SESSION_S)
                for each in (first, second):
                    await wait_for(each, "ann,ann")
                # For longer than a session, with heartbeats in between.
                for _ in range(12):
                    await let_pass(SESSION_S / 10)
                    await asyncio.sleep(0.1)
                assert (first.refusals, second.refusals) == ([ErrorCode.FENCED_INSTANCE_ID], [])
                assert first.present == second.present == "ann,ann"

    asyncio.run(scenario())


def test_final_errors_of_a_join_are_reported(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        ann = Roll("ann")
        async with member(broker, ann, session_ms=10):
            async with asyncio.timeout(20):
                while len(ann.refusals) < 2:
                    await asyncio.sleep(0.01)
        assert set(ann.refusals) == {ErrorCode.INVALID_SESSION_TIMEOUT}
        assert ann.present is None

    asyncio.run(scenario())
