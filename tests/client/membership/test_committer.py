"""Commits in order, retries and errors, by members and by non-members."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import CommitFailedError
from rookery.client.membership.committer import Committer
from rookery.client.membership.factory import ManualMembership
from rookery.client.membership.interfaces import ConsumerGroupMetadata, OffsetAndMetadata
from rookery.testing import EmbeddedBroker
from rookery.testing.faults import Fault
from tests.client.membership.group_members import (
    TIMEOUT_S,
    FakeHost,
    GroupMember,
    closing,
    fast,
    partitions,
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


async def wait_for_hits(fault: Fault, hits: int = 1) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while fault.hits < hits:
            await asyncio.sleep(0.01)


def at(offset: int, index: int = 0) -> Offsets:
    return {TopicPartition("t", index): OffsetAndMetadata(offset)}


def test_committed_offsets_are_fetched(broker: EmbeddedBroker) -> None:
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
            results: list[int] = []
            for offset in (1, 2):
                committer.commit_async(
                    at(offset), lambda offsets, error: results.append(next(iter(offsets.values())).offset)
                )
            committer.commit_async({}, lambda offsets, error: results.append(0))
            await committer.commit(at(3))
            assert results == [1, 2, 0]
            assert await committer.committed(partitions("t", 0)) == at(3)

    asyncio.run(work())


def test_waiting_for_earlier_commits_counts_towards_the_time_out(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "waiting") as committer:
            results: list[ApiError | None] = []
            fault = broker.faults.delay("OffsetCommit", MINUTE_S)
            committer.commit_async(at(1), lambda offsets, error: results.append(error))
            with pytest.raises(ApiError, match="earlier commits took all") as late:
                await committer.commit(at(2), timeout_s=0.05)
            assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert results == []
            # The third one still waits for the first.
            third = asyncio.ensure_future(committer.commit(at(3)))
            await wait_for_hits(fault)
            assert results == []
            await asyncio.to_thread(broker.advance_time, MINUTE_S)
            await third
            assert results == [None]
            assert await committer.committed(partitions("t", 0)) == at(3)

    asyncio.run(work())


def test_a_single_attempt_ends_in_time(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "single") as committer:
            broker.faults.delay("FindCoordinator", MINUTE_S)
            with pytest.raises(ApiError, match="the coordinator did not answer within") as late:
                await committer.commit(at(1), timeout_s=0.05)
            assert late.value.code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(work())


@pytest.mark.parametrize("by", ["commit", "commit_async", "close"])
def test_the_periodic_commit_is_cancelled_by_a_newer_one(broker: EmbeddedBroker, by: str) -> None:
    async def work() -> None:
        async with Cluster.at(broker.bootstrap_servers) as cluster:
            settings = fast(f"way-{by}", enable_auto_commit=True, auto_commit_interval_ms=0)
            committer, committed = Committer(cluster, settings), list[Offsets]()
            committer.on_auto_committed = committed.append
            fault = broker.faults.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
            committer.auto_commit_when_due(lambda: at(1))
            # It is in flight, and would succeed from now on.
            await wait_for_hits(fault)
            broker.faults.clear()
            if by == "close":
                await committer.auto_commit_now(at(2), timeout_s=TIMEOUT_S)
            elif by == "commit":
                await committer.commit(at(2))
            else:
                committer.commit_async(at(2))
                await committer.drain(timeout_s=TIMEOUT_S)
            assert await committer.committed(partitions("t", 0)) == at(2)
            assert committed == ([at(2)] if by == "close" else [])

    asyncio.run(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_closing_ends_in_time_while_commits_fail(broker: EmbeddedBroker, protocol: str) -> None:
    async def work() -> None:
        settings = fast(f"closing-{protocol}", enable_auto_commit=True, auto_commit_interval_ms=0)
        one = GroupMember(broker.bootstrap_servers, ["t"], settings, protocol=protocol)
        await settle(one, sizes=[3])
        for api in ("OffsetCommit", "LeaveGroup", "FindCoordinator", "ConsumerGroupHeartbeat"):
            broker.faults.fail(api, "COORDINATOR_NOT_AVAILABLE", times=None)
        one.host.positions = dict(at(1))
        await one.poll()
        # The commits themselves may take a minute.
        async with asyncio.timeout(TIMEOUT_S):
            await one.membership.close(timeout_s=0.1)
        assert one.host.assigned() == frozenset()
        await one.cluster.close()

    asyncio.run(work())


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_commit_is_retried(broker: EmbeddedBroker, code: str) -> None:
    async def work() -> None:
        async with committing(broker, f"again-{code}") as committer:
            fault = broker.faults.fail("OffsetCommit", code, times=2)
            await committer.commit(at(5))
            assert fault.is_over
            broker.faults.drop_connection("OffsetCommit")
            await committer.commit(at(6))
            assert await committer.committed(partitions("t", 0)) == at(6)

    asyncio.run(work())


def test_a_commit_times_out(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "late") as committer:
            fault = broker.faults.fail("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION", times=None)
            commit = asyncio.ensure_future(committer.commit(at(5)))
            # There was a retry, so the first error has arrived.
            await wait_for_hits(fault, 2)
            await let_pass(MINUTE_S)
            with pytest.raises(ApiError, match="cannot commit t-0") as raised:
                await commit
            assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(work())


def test_errors_of_asynchronous_commits_reach_the_callback(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "callback") as committer:
            results: list[ApiError | None] = []
            broker.faults.fail("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION")
            committer.commit_async(at(1), lambda offsets, error: results.append(error))

            def fail(offsets: Offsets, error: ApiError | None) -> None:
                results.append(error)
                raise ZeroDivisionError("in the callback")

            committer.commit_async(at(2), fail)
            await committer.drain(timeout_s=TIMEOUT_S)
            assert [error and error.code for error in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None]
            broker.faults.delay("OffsetCommit", MINUTE_S)
            for offset in (3, 4):
                committer.commit_async(at(offset), lambda offsets, error: results.append(error))
            await committer.flush(timeout_s=0.05)
            assert [error and error.code for error in results[2:]] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    asyncio.run(work())


def test_committed_waits_for_open_transactions(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with committing(broker, "unstable") as committer:
            await committer.commit(at(4))
            fault = broker.faults.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", times=2)
            assert await committer.committed(partitions("t", 0)) == at(4)
            assert fault.is_over

    asyncio.run(work())


def test_a_non_member_cannot_commit_into_a_group_with_members(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["t"], fast("strange"))
        async with closing(one), committing(broker, "strange") as outsider:
            await settle(one, sizes=[3])
            reported: list[tuple[ErrorCode, ConsumerGroupMetadata]] = []
            outsider.on_member_error = lambda code, identity: reported.append((code, identity))
            with pytest.raises(CommitFailedError, match="not a member of the group"):
                await outsider.commit(at(1))
            assert reported == [(ErrorCode.UNKNOWN_MEMBER_ID, ConsumerGroupMetadata("strange"))]

    asyncio.run(work())


def test_a_removed_member_cannot_commit(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["t"], fast("expelled", heartbeat_interval_ms=9_000))
        async with closing(one):
            await settle(one, sizes=[3])
            broker.faults.fail("OffsetCommit", "UNKNOWN_MEMBER_ID")
            with pytest.raises(CommitFailedError):
                await one.committer.commit(at(1))
            await one.poll()
            assert one.host.take_events() == [("assigned", [0, 1, 2]), ("lost", [0, 1, 2])]

    asyncio.run(work())


def test_a_commit_during_a_rebalance_leads_to_a_join(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["t"], fast("during", heartbeat_interval_ms=9_000))
        async with closing(one):
            await settle(one, sizes=[3])
            broker.faults.fail("OffsetCommit", "REBALANCE_IN_PROGRESS")
            with pytest.raises(ApiError, match="while the group rebalances: poll") as raised:
                await one.committer.commit(at(1))
            assert raised.value.code == ErrorCode.REBALANCE_IN_PROGRESS
            assert one.membership.wake.is_set()
            before = one.generation
            await poll_until(lambda: one.generation == before + 1, one)

    asyncio.run(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_asynchronous_commits_end_before_a_member_leaves(broker: EmbeddedBroker, protocol: str) -> None:
    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["t"], fast(f"goes-{protocol}"), protocol=protocol)
        async with closing(one):
            await settle(one, sizes=[3])
            results: list[ApiError | None] = []
            broker.faults.delay("OffsetCommit", 0.2)
            one.host.on_event = lambda event, _: one.committer.commit_async(
                at(9), lambda _, error: results.append(error)
            )
            await one.membership.close(timeout_s=TIMEOUT_S)
            assert results == [None]
            before = one.membership.group_metadata
            assert before.member_id != ""
            assert before.generation_id > 0

    asyncio.run(work())


def test_members_commit_periodically(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        settings = fast("then", enable_auto_commit=True, auto_commit_interval_ms=50)
        one = GroupMember(broker.bootstrap_servers, ["t"], settings)
        async with closing(one):
            await settle(one, sizes=[3])
            one.host.positions = dict(at(9))
            while await one.committer.committed(partitions("t", 0)) != at(9):
                await one.poll()
                await asyncio.sleep(0.01)
            one.host.positions = dict(at(10))
        async with committing(broker, "then") as reader:
            assert await reader.committed(partitions("t", 0)) == at(10)

    asyncio.run(work())


def test_manually_assigned_partitions_are_committed(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Cluster.at(broker.bootstrap_servers) as cluster:
            settings = fast("chosen", enable_auto_commit=True, auto_commit_interval_ms=50)
            committer, host = Committer(cluster, settings), FakeHost(["t"])
            membership = ManualMembership(settings, host=host, committer=committer)
            host.positions = dict(at(2))
            committed: list[Offsets] = []
            committer.on_auto_committed = committed.append
            while await committer.committed(partitions("t", 0)) != at(2):
                await membership.poll()
                await asyncio.sleep(0.01)
            host.positions = {**at(3), TopicPartition("gone", 0): OffsetAndMetadata(1)}
            await membership.close(timeout_s=TIMEOUT_S)
            assert await committer.committed(partitions("t", 0)) == at(3)
            assert committed[0] == at(2)
            assert membership.group_metadata == ConsumerGroupMetadata("chosen")
            assert host.take_events() == []

    asyncio.run(work())
