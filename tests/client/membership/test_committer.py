"""Commits: in order, tried again or refused, by members and by others."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import CommitFailedError
from rookery.client.membership.committer import Committer
from rookery.client.membership.interfaces import ConsumerGroupMetadata, OffsetAndMetadata
from rookery.client.membership.manual import ManualMembership
from rookery.testing import EmbeddedBroker
from rookery.testing.faults import Fault
from tests.client.membership.players import (
    TIMEOUT_S,
    FakeHost,
    Player,
    fast,
    partitions,
    playing,
    poll_until,
    settle,
)
from tests.client.skipping import let_pass

MINUTE_S = 60
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@pytest.fixture(scope="module", autouse=True)
def _topic(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", partitions=3)


@pytest.fixture(autouse=True)
def _no_faults(broker: EmbeddedBroker) -> None:
    broker.faults.clear()


@asynccontextmanager
async def committing(broker: EmbeddedBroker, group_id: str) -> AsyncIterator[Committer]:
    async with Cluster.at(broker.bootstrap_servers) as cluster:
        yield Committer(cluster, fast(group_id))


async def met(fault: Fault, hits: int = 1) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while fault.hits < hits:
            await asyncio.sleep(0.01)


def at(offset: int, index: int = 0) -> Offsets:
    return {TopicPartition("t", index): OffsetAndMetadata(offset)}


def test_what_was_committed_is_read(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "read") as committer:
            offsets = {
                TopicPartition("t", 0): OffsetAndMetadata(7, "a note", 3),
                TopicPartition("t", 2): OffsetAndMetadata(0),
            }
            await committer.commit(offsets)
            assert await committer.committed(partitions("t", 0, 1, 2)) == offsets
            assert await committer.committed([]) == {}
            await committer.commit({})

    asyncio.run(work())


def test_commits_take_effect_in_order(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "order") as committer:
            broker.faults.delay("OffsetCommit", 0.2)
            heard: list[int] = []
            for offset in (1, 2):
                committer.commit_async(
                    at(offset), lambda offsets, error: heard.append(next(iter(offsets.values())).offset)
                )
            committer.commit_async({}, lambda offsets, error: heard.append(0))
            await committer.commit(at(3))
            assert heard == [1, 2, 0]
            assert await committer.committed(partitions("t", 0)) == at(3)

    asyncio.run(work())


def test_waiting_for_earlier_commits_is_part_of_the_time_out(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "waiting") as committer:
            heard: list[ApiError | None] = []
            fault = broker.faults.delay("OffsetCommit", MINUTE_S)
            committer.commit_async(at(1), lambda offsets, error: heard.append(error))
            with pytest.raises(ApiError, match="earlier commits took all") as late:
                await committer.commit(at(2), timeout_s=0.05)
            assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert heard == []
            # The next one still waits for the first.
            third = asyncio.ensure_future(committer.commit(at(3)))
            await met(fault)
            assert heard == []
            await asyncio.to_thread(broker.advance_time, MINUTE_S)
            await third
            assert heard == [None]
            assert await committer.committed(partitions("t", 0)) == at(3)

    asyncio.run(work())


def test_a_single_try_ends_in_time(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "single") as committer:
            broker.faults.delay("FindCoordinator", MINUTE_S)
            with pytest.raises(ApiError, match="no answer about its offsets within") as late:
                await committer.commit(at(1), timeout_s=0.05)
            assert late.value.code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(work())


@pytest.mark.parametrize("by", ["commit", "commit_async", "close"])
def test_the_periodic_commit_makes_way_for_a_newer_one(broker: EmbeddedBroker, by: str) -> None:
    async def work() -> None:
        async with Cluster.at(broker.bootstrap_servers) as cluster:
            settings = fast(f"way-{by}", enable_auto_commit=True, auto_commit_interval_ms=0)
            committer, told = Committer(cluster, settings), list[Offsets]()
            committer.on_auto_committed = told.append
            fault = broker.faults.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
            committer.auto_commit_when_due(lambda: at(1))
            # It is under way, and would succeed from now on.
            await met(fault)
            broker.faults.clear()
            if by == "close":
                await committer.auto_commit_now(at(2), timeout_s=TIMEOUT_S)
            elif by == "commit":
                await committer.commit(at(2))
            else:
                committer.commit_async(at(2))
                await committer.drain(timeout_s=TIMEOUT_S)
            assert await committer.committed(partitions("t", 0)) == at(2)
            assert told == ([at(2)] if by == "close" else [])

    asyncio.run(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_closing_ends_in_time_while_commits_fail(broker: EmbeddedBroker, protocol: str) -> None:
    async def work() -> None:
        settings = fast(f"closing-{protocol}", enable_auto_commit=True, auto_commit_interval_ms=0)
        one = Player(broker.bootstrap_servers, ["t"], settings, protocol=protocol)
        await settle(one, sizes=[3])
        for api in ("OffsetCommit", "LeaveGroup", "FindCoordinator", "ConsumerGroupHeartbeat"):
            broker.faults.fail(api, "COORDINATOR_NOT_AVAILABLE", times=None)
        one.host.positions = dict(at(1))
        await one.poll()
        # The commits themselves may go on for a minute.
        async with asyncio.timeout(TIMEOUT_S):
            await one.membership.close(timeout_s=0.1)
        assert one.host.assigned() == frozenset()
        await one.cluster.close()

    asyncio.run(work())


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_commit_is_tried_again(broker: EmbeddedBroker, code: str) -> None:
    async def work() -> None:
        async with committing(broker, f"again-{code}") as committer:
            fault = broker.faults.fail("OffsetCommit", code, times=2)
            await committer.commit(at(5))
            assert fault.is_over
            broker.faults.drop_connection("OffsetCommit")
            await committer.commit(at(6))
            assert await committer.committed(partitions("t", 0)) == at(6)

    asyncio.run(work())


def test_a_commit_gives_up_in_time(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "late") as committer:
            fault = broker.faults.fail("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION", times=None)
            commit = asyncio.ensure_future(committer.commit(at(5)))
            # It tries again, so the first refusal has arrived.
            await met(fault, 2)
            await let_pass(MINUTE_S)
            with pytest.raises(ApiError, match="cannot commit t-0") as refusal:
                await commit
            assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(work())


def test_errors_of_asynchronous_commits_are_told(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "told") as committer:
            heard: list[ApiError | None] = []
            broker.faults.fail("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION")
            committer.commit_async(at(1), lambda offsets, error: heard.append(error))

            def fail(offsets: Offsets, error: ApiError | None) -> None:
                heard.append(error)
                raise ZeroDivisionError("in the callback")

            committer.commit_async(at(2), fail)
            await committer.drain(timeout_s=TIMEOUT_S)
            assert [error and error.code for error in heard] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None]
            broker.faults.delay("OffsetCommit", MINUTE_S)
            for offset in (3, 4):
                committer.commit_async(at(offset), lambda offsets, error: heard.append(error))
            await committer.flush(timeout_s=0.05)
            assert [error and error.code for error in heard[2:]] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    asyncio.run(work())


def test_offsets_in_a_transaction_are_waited_for(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "unstable") as committer:
            await committer.commit(at(4))
            fault = broker.faults.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", times=2)
            assert await committer.committed(partitions("t", 0)) == at(4)
            assert fault.is_over

    asyncio.run(work())


def test_a_stranger_cannot_commit_into_a_group_with_members(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        one = Player(broker.bootstrap_servers, ["t"], fast("strange"))
        async with playing(one), committing(broker, "strange") as stranger:
            await settle(one, sizes=[3])
            refused: list[tuple[ErrorCode, ConsumerGroupMetadata]] = []
            stranger.on_refused = lambda code, who: refused.append((code, who))
            with pytest.raises(CommitFailedError, match="the group has gone on without us"):
                await stranger.commit(at(1))
            assert refused == [(ErrorCode.UNKNOWN_MEMBER_ID, ConsumerGroupMetadata("strange"))]

    asyncio.run(work())


def test_a_member_that_was_expelled_cannot_commit(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        one = Player(broker.bootstrap_servers, ["t"], fast("expelled", heartbeat_interval_ms=9_000))
        async with playing(one):
            await settle(one, sizes=[3])
            broker.faults.fail("OffsetCommit", "UNKNOWN_MEMBER_ID")
            with pytest.raises(CommitFailedError):
                await one.committer.commit(at(1))
            await one.poll()
            assert one.host.heard() == [("assigned", [0, 1, 2]), ("lost", [0, 1, 2])]

    asyncio.run(work())


def test_a_commit_during_a_rebalance_leads_to_the_join(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        one = Player(broker.bootstrap_servers, ["t"], fast("during", heartbeat_interval_ms=9_000))
        async with playing(one):
            await settle(one, sizes=[3])
            broker.faults.fail("OffsetCommit", "REBALANCE_IN_PROGRESS")
            with pytest.raises(ApiError, match="while the group rebalances: poll") as refusal:
                await one.committer.commit(at(1))
            assert refusal.value.code == ErrorCode.REBALANCE_IN_PROGRESS
            assert one.membership.wake.is_set()
            before = one.generation
            await poll_until(lambda: one.generation == before + 1, one)

    asyncio.run(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_was_committed_without_waiting_counts_before_a_member_goes(broker: EmbeddedBroker, protocol: str) -> None:
    async def work() -> None:
        one = Player(broker.bootstrap_servers, ["t"], fast(f"goes-{protocol}"), protocol=protocol)
        async with playing(one):
            await settle(one, sizes=[3])
            heard: list[ApiError | None] = []
            broker.faults.delay("OffsetCommit", 0.2)
            one.host.on_event = lambda event, _: one.committer.commit_async(at(9), lambda _, error: heard.append(error))
            await one.membership.close(timeout_s=TIMEOUT_S)
            assert heard == [None]
            before = one.membership.group_metadata
            assert before.member_id != ""
            assert before.generation_id > 0

    asyncio.run(work())


def test_members_commit_now_and_then(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        settings = fast("then", enable_auto_commit=True, auto_commit_interval_ms=50)
        one = Player(broker.bootstrap_servers, ["t"], settings)
        async with playing(one):
            await settle(one, sizes=[3])
            one.host.positions = dict(at(9))
            while await one.committer.committed(partitions("t", 0)) != at(9):
                await one.poll()
                await asyncio.sleep(0.01)
            one.host.positions = dict(at(10))
        async with committing(broker, "then") as reader:
            assert await reader.committed(partitions("t", 0)) == at(10)

    asyncio.run(work())


def test_chosen_partitions_are_committed_too(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Cluster.at(broker.bootstrap_servers) as cluster:
            settings = fast("chosen", enable_auto_commit=True, auto_commit_interval_ms=50)
            committer, host = Committer(cluster, settings), FakeHost(["t"])
            membership = ManualMembership(settings, host=host, committer=committer)
            host.positions = dict(at(2))
            told: list[Offsets] = []
            committer.on_auto_committed = told.append
            while await committer.committed(partitions("t", 0)) != at(2):
                await membership.poll()
                await asyncio.sleep(0.01)
            host.positions = {**at(3), TopicPartition("gone", 0): OffsetAndMetadata(1)}
            await membership.close(timeout_s=TIMEOUT_S)
            assert await committer.committed(partitions("t", 0)) == at(3)
            assert told[0] == at(2)
            assert membership.group_metadata == ConsumerGroupMetadata("chosen")
            assert host.heard() == []

    asyncio.run(work())
