"""Members of groups of KIP-848, against a running broker."""

import asyncio
from uuid import UUID

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin
from rookery.client.errors import CommitFailedError
from rookery.client.membership.consumer_member import TopicIdPartition
from rookery.client.membership.consumer_shell import ConsumerMembership
from rookery.client.membership.interfaces import OffsetAndMetadata
from rookery.client.membership.settings import GroupSettings
from rookery.protocol.messages import ConsumerGroupHeartbeatRequest
from rookery.testing import EmbeddedBroker
from tests.client.membership.group_members import TIMEOUT_S, GroupMember, closing, fast, partitions, poll_until, settle
from tests.client.skipping import let_pass


def new_member(broker: EmbeddedBroker, topic: str, **changes: object) -> GroupMember:
    return GroupMember(broker.bootstrap_servers, [topic], fast(topic, **changes), protocol="consumer")


def are_reconciled(*members: GroupMember) -> bool:
    memberships = [one.membership for one in members]
    return all(isinstance(one, ConsumerMembership) and one.is_reconciled for one in memberships)


def test_members_come_and_go(broker: EmbeddedBroker) -> None:
    broker.create_topic("come", partitions=6)

    async def work() -> None:
        first, second, third = (new_member(broker, "come") for _ in range(3))
        async with closing(first, second):
            await settle(first, sizes=[6])
            assert first.host.take_events() == [("assigned", [0, 1, 2, 3, 4, 5])]
            await settle(first, second, sizes=[3, 3])
            # Only what moves is revoked.
            assert [entry for entry in first.host.take_events() if entry[1]] == [("revoked", second.indexes)]
            await settle(first, second, third, sizes=[2, 2, 2])
            await third.close()
            await settle(first, second, sizes=[3, 3])

    asyncio.run(work())


def test_positions_are_committed_before_a_revocation(broker: EmbeddedBroker) -> None:
    broker.create_topic("handed", partitions=2)

    async def work() -> None:
        first, second = (new_member(broker, "handed", enable_auto_commit=True) for _ in range(2))
        async with closing(first, second):
            await settle(first, sizes=[2])
            read = {tp: OffsetAndMetadata(5 + tp.partition) for tp in first.host.assigned()}
            first.host.positions = dict(read)
            await settle(first, second, sizes=[1, 1])
            moved = second.host.assigned()
            found = await second.committer.committed(partitions("handed", 0, 1))
            assert found == {tp: position for tp, position in read.items() if tp in moved}

    asyncio.run(work())


def test_an_application_that_does_not_poll_loses_its_partitions(broker: EmbeddedBroker) -> None:
    broker.create_topic("silent", partitions=4)

    async def work() -> None:
        silent = new_member(broker, "silent", max_poll_interval_ms=30_000)
        awake = new_member(broker, "silent", max_poll_interval_ms=300_000)
        async with closing(silent, awake):
            await settle(silent, awake, sizes=[2, 2])
            await poll_until(lambda: are_reconciled(silent, awake), silent, awake)
            silent.host.take_events()
            owned = silent.indexes
            await let_pass(30)
            await poll_until(lambda: len(awake.indexes) == 4, awake)
            with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
                await silent.committer.commit({TopicPartition("silent", owned[0]): OffsetAndMetadata(1)})
            await settle(silent, awake, sizes=[2, 2])
            assert silent.host.take_events()[0] == ("lost", owned)

    asyncio.run(work())


def test_a_waiting_poll_joins_again_after_the_member_has_left(broker: EmbeddedBroker) -> None:
    broker.create_topic("late", partitions=1)

    async def work() -> None:
        one = new_member(broker, "late", max_poll_interval_ms=400)
        async with closing(one):
            await settle(one, sizes=[1])
            await poll_until(lambda: are_reconciled(one), one)
            broker.faults.delay("ConsumerGroupHeartbeat", 0.1, times=None)
            one.host.take_events()
            # A poll that reacts only when it is woken.
            async with asyncio.timeout(TIMEOUT_S):
                while one.host.log[-1:] != [("assigned", [0])]:
                    await one.membership.wake.wait()
                    await one.membership.poll()
            broker.faults.clear()
            assert one.host.take_events() == [("lost", [0]), ("assigned", [0])]

    asyncio.run(work())


def test_the_listener_is_called_for_an_empty_assignment(broker: EmbeddedBroker) -> None:
    broker.create_topic("nothing", partitions=1)

    async def work() -> None:
        first, second = (new_member(broker, "nothing") for _ in range(2))
        async with closing(first, second):
            await settle(first, second, sizes=[0, 1])
            await poll_until(lambda: are_reconciled(first, second), first, second)
            assert sorted([first.host.take_events(), second.host.take_events()]) == [
                [("assigned", [])],
                [("assigned", [0])],
            ]

    asyncio.run(work())


def test_a_member_that_leaves_before_the_first_response_is_removed(broker: EmbeddedBroker) -> None:
    broker.create_topic("ghost", partitions=1)

    async def work() -> None:
        one, other = new_member(broker, "ghost"), new_member(broker, "ghost")
        async with closing(other):
            await settle(other, sizes=[1])
            await poll_until(lambda: are_reconciled(other), other)
            broker.faults.delay("ConsumerGroupHeartbeat", 0.2, times=None)
            await one.poll()
            assert isinstance(one.membership, ConsumerMembership)
            while one.membership._member._has_response:
                await asyncio.sleep(0)
            assert one.generation == 0
            await one.close()
            broker.faults.clear()
            (group,) = await Admin.over(other.cluster).describe_groups(["ghost"])
            assert [found.member_id for found in group.check().members] == [other.membership._member.member_id]

    asyncio.run(work())


def test_a_topic_without_a_name_is_looked_up_with_a_backoff(broker: EmbeddedBroker) -> None:
    broker.create_topic("named", partitions=1)

    async def work() -> None:
        one = new_member(broker, "named")
        async with closing(one):
            await settle(one, sizes=[1])
            await poll_until(lambda: are_reconciled(one), one)
            assert isinstance(one.membership, ConsumerMembership)
            member = one.membership._member
            member.target |= {TopicIdPartition(UUID(int=1), 0)}
            sent, heartbeat = 0, member.heartbeat

            def count() -> ConsumerGroupHeartbeatRequest:
                nonlocal sent
                sent += 1
                return heartbeat()

            member.heartbeat = count  # type: ignore[method-assign]
            polls = 0
            while sent < 3:
                polls += 1
                await one.poll()
                assert not one.membership._heartbeat_due.is_set()
                await one.membership.wake.wait()
            # Each heartbeat wakes a poll, and so does the retry of the look-up.
            assert polls < 10
            member.target = member.owned
            assert one.host.take_events() == [("assigned", [0])]

    asyncio.run(work())


@pytest.mark.parametrize("code", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR"])
def test_errors_of_heartbeats(broker: EmbeddedBroker, code: str) -> None:
    topic = f"error-{code}"
    broker.create_topic(topic, partitions=2)

    async def work() -> None:
        one = new_member(broker, topic)
        async with closing(one):
            await settle(one, sizes=[2])
            one.host.take_events()
            fault = broker.faults.fail("ConsumerGroupHeartbeat", code)
            await poll_until(lambda: fault.is_over, one)
            lost = [] if code == "NOT_COORDINATOR" else [("lost", [0, 1]), ("assigned", [0, 1])]
            await poll_until(lambda: are_reconciled(one) and len(one.host.log) >= len(lost), one)
            assert one.host.take_events() == lost
            await one.committer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})

    asyncio.run(work())


def test_commits_in_a_stale_epoch_are_made_in_the_new_one(broker: EmbeddedBroker) -> None:
    broker.create_topic("stale", partitions=2)

    async def work() -> None:
        one = new_member(broker, "stale")
        async with closing(one):
            await settle(one, sizes=[2])
            offsets = {TopicPartition("stale", 0): OffsetAndMetadata(1)}
            broker.faults.fail("OffsetCommit", "STALE_MEMBER_EPOCH")
            await one.committer.commit(offsets)
            broker.faults.fail("OffsetFetch", "STALE_MEMBER_EPOCH")
            assert await one.committer.committed(partitions("stale", 0)) == offsets
            # A removed member may still read offsets.
            broker.faults.fail("OffsetFetch", "UNKNOWN_MEMBER_ID")
            assert await one.committer.committed(partitions("stale", 0)) == offsets
            broker.faults.fail("OffsetCommit", "UNKNOWN_MEMBER_ID")
            await poll_until(lambda: are_reconciled(one), one)
            with pytest.raises(CommitFailedError):
                await one.committer.commit(offsets)
            await poll_until(lambda: are_reconciled(one), one)

    asyncio.run(work())


def test_a_static_member_comes_back_to_its_partitions(broker: EmbeddedBroker) -> None:
    broker.create_topic("static", partitions=4)

    async def work() -> None:
        one, other = (
            new_member(broker, "static", group_instance_id="one"),
            new_member(broker, "static", group_instance_id="other"),
        )
        async with closing(other):
            await settle(one, other, sizes=[2, 2])
            await poll_until(lambda: are_reconciled(one, other), one, other)
            owned = one.indexes
            await one.close()
            again = new_member(broker, "static", group_instance_id="one")
            async with closing(again):
                await poll_until(lambda: again.indexes == owned, again, other)
                assert other.indexes == sorted({0, 1, 2, 3} - set(owned))
                late = new_member(broker, "static", group_instance_id="one")
                with pytest.raises(ApiError) as raised:
                    await poll_until(lambda: False, late)
                assert raised.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
                await late.close()

    asyncio.run(work())


def test_the_servers_assignor_can_be_chosen(broker: EmbeddedBroker) -> None:
    broker.create_topic("chosen", partitions=4)

    async def work() -> None:
        first, second = (new_member(broker, "chosen", group_remote_assignor="range") for _ in range(2))
        async with closing(first, second):
            await settle(first, second, sizes=[2, 2])
            assert sorted([first.indexes, second.indexes]) == [[0, 1], [2, 3]]
        wrong = new_member(broker, "chosen", group_remote_assignor="unknown")
        with pytest.raises(ApiError) as raised:
            await poll_until(lambda: False, wrong)
        assert raised.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR
        await wrong.close()

    asyncio.run(work())


def test_topics_come_and_go(broker: EmbeddedBroker) -> None:
    for topic in ("stays", "goes"):
        broker.create_topic(topic, partitions=2)

    async def work() -> None:
        settings: GroupSettings = fast("topics")
        one = GroupMember(broker.bootstrap_servers, ["stays"], settings, protocol="consumer")
        async with closing(one):
            await settle(one, sizes=[2])
            one.host.topics = frozenset({"stays", "goes"})
            await settle(one, sizes=[4])
            await Admin.over(one.cluster).delete_topics(["goes"])
            await settle(one, sizes=[2])
            assert {tp.topic for tp in one.host.assigned()} == {"stays"}

    asyncio.run(work())


def test_the_coordinator_restarts(broker: EmbeddedBroker) -> None:
    broker.create_topic("restart", partitions=4)

    async def work() -> None:
        first, second = (new_member(broker, "restart") for _ in range(2))
        async with closing(first, second):
            await settle(first, second, sizes=[2, 2])
            await asyncio.to_thread(broker.restart, clean=False)
            tp = next(iter(first.host.assigned()))
            await first.committer.commit({tp: OffsetAndMetadata(3)})
            third = new_member(broker, "restart")
            async with closing(third):
                await settle(first, second, third, sizes=[1, 1, 2])

    asyncio.run(work())


def test_a_broker_without_the_protocol_is_an_error(broker: EmbeddedBroker) -> None:
    broker.create_topic("old", partitions=1)

    async def work() -> None:
        one = new_member(broker, "old")
        broker.faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
        with pytest.raises(ApiError, match="the broker does not support the consumer group protocol of KIP-848"):
            await poll_until(lambda: False, one)
        await one.close()

    asyncio.run(work())


def test_a_final_error_is_raised(broker: EmbeddedBroker) -> None:
    broker.create_topic("full", partitions=1)

    async def work() -> None:
        one = new_member(broker, "full")
        broker.faults.fail("ConsumerGroupHeartbeat", "GROUP_MAX_SIZE_REACHED")
        with pytest.raises(ApiError, match="group full") as raised:
            await poll_until(lambda: False, one)
        assert raised.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        await one.close()

    asyncio.run(work())
