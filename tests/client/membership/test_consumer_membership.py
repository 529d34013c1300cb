"""Members of groups of the new protocol (KIP-848), against a running broker; and what other brokers are told to be."""

import asyncio
from uuid import UUID

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin
from rookery.client.errors import CommitFailedError
from rookery.client.membership.consumer_member import Owned
from rookery.client.membership.consumer_shell import ConsumerMembership
from rookery.client.membership.interfaces import OffsetAndMetadata
from rookery.client.membership.settings import GroupSettings
from rookery.protocol.messages import ConsumerGroupHeartbeatRequest
from rookery.testing import EmbeddedBroker
from tests.client.membership.players import TIMEOUT_S, Player, fast, partitions, playing, poll_until, settle
from tests.client.skipping import let_pass


def player(broker: EmbeddedBroker, topic: str, **changes: object) -> Player:
    return Player(broker.bootstrap_servers, [topic], fast(topic, **changes), protocol="consumer")


def is_settled(*players: Player) -> bool:
    memberships = [one.membership for one in players]
    return all(isinstance(one, ConsumerMembership) and one.is_settled for one in memberships)


def test_members_come_and_go(broker: EmbeddedBroker) -> None:
    broker.create_topic("come", partitions=6)

    async def work() -> None:
        first, second, third = (player(broker, "come") for _ in range(3))
        async with playing(first, second):
            await settle(first, sizes=[6])
            assert first.host.heard() == [("assigned", [0, 1, 2, 3, 4, 5])]
            await settle(first, second, sizes=[3, 3])
            # Only what moves is given up.
            assert [entry for entry in first.host.heard() if entry[1]] == [("revoked", second.indexes)]
            await settle(first, second, third, sizes=[2, 2, 2])
            await third.close()
            await settle(first, second, sizes=[3, 3])

    asyncio.run(work())


def test_what_was_read_is_committed_before_it_is_given_up(broker: EmbeddedBroker) -> None:
    broker.create_topic("handed", partitions=2)

    async def work() -> None:
        first, second = (player(broker, "handed", enable_auto_commit=True) for _ in range(2))
        async with playing(first, second):
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
        silent = player(broker, "silent", max_poll_interval_ms=30_000)
        awake = player(broker, "silent", max_poll_interval_ms=300_000)
        async with playing(silent, awake):
            await settle(silent, awake, sizes=[2, 2])
            await poll_until(lambda: is_settled(silent, awake), silent, awake)
            silent.host.heard()
            owned = silent.indexes
            await let_pass(30)
            await poll_until(lambda: len(awake.indexes) == 4, awake)
            with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
                await silent.committer.commit({TopicPartition("silent", owned[0]): OffsetAndMetadata(1)})
            await settle(silent, awake, sizes=[2, 2])
            assert silent.host.heard()[0] == ("lost", owned)

    asyncio.run(work())


def test_a_poll_that_waits_joins_again_after_the_member_has_left(broker: EmbeddedBroker) -> None:
    broker.create_topic("late", partitions=1)

    async def work() -> None:
        one = player(broker, "late", max_poll_interval_ms=400)
        async with playing(one):
            await settle(one, sizes=[1])
            await poll_until(lambda: is_settled(one), one)
            broker.faults.delay("ConsumerGroupHeartbeat", 0.1, times=None)
            one.host.heard()
            # A poll that hears late of everything: it comes round only when it is woken.
            async with asyncio.timeout(TIMEOUT_S):
                while one.host.log[-1:] != [("assigned", [0])]:
                    await one.membership.wake.wait()
                    await one.membership.poll()
            broker.faults.clear()
            assert one.host.heard() == [("lost", [0]), ("assigned", [0])]

    asyncio.run(work())


def test_an_assignment_of_nothing_is_told(broker: EmbeddedBroker) -> None:
    broker.create_topic("nothing", partitions=1)

    async def work() -> None:
        first, second = (player(broker, "nothing") for _ in range(2))
        async with playing(first, second):
            await settle(first, second, sizes=[0, 1])
            await poll_until(lambda: is_settled(first, second), first, second)
            assert sorted([first.host.heard(), second.host.heard()]) == [[("assigned", [])], [("assigned", [0])]]

    asyncio.run(work())


def test_who_leaves_before_it_is_answered_leaves_nothing_behind(broker: EmbeddedBroker) -> None:
    broker.create_topic("ghost", partitions=1)

    async def work() -> None:
        one, other = player(broker, "ghost"), player(broker, "ghost")
        async with playing(other):
            await settle(other, sizes=[1])
            await poll_until(lambda: is_settled(other), other)
            broker.faults.delay("ConsumerGroupHeartbeat", 0.2, times=None)
            await one.poll()
            assert isinstance(one.membership, ConsumerMembership)
            while one.membership._member._is_answered:
                await asyncio.sleep(0)
            assert one.generation == 0
            await one.close()
            broker.faults.clear()
            (group,) = await Admin.over(other.cluster).describe_groups(["ghost"])
            assert [found.member_id for found in group.check().members] == [other.membership._member.member_id]

    asyncio.run(work())


def test_a_topic_without_a_name_is_no_reason_to_hurry(broker: EmbeddedBroker) -> None:
    broker.create_topic("named", partitions=1)

    async def work() -> None:
        one = player(broker, "named")
        async with playing(one):
            await settle(one, sizes=[1])
            await poll_until(lambda: is_settled(one), one)
            assert isinstance(one.membership, ConsumerMembership)
            member = one.membership._member
            member.target |= {Owned(UUID(int=1), 0)}
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
                assert not one.membership._news.is_set()
                await one.membership.wake.wait()
            # Each heartbeat asks for a poll, and now and then there is another look at the names.
            assert polls < 10
            member.target = member.owned
            assert one.host.heard() == [("assigned", [0])]

    asyncio.run(work())


@pytest.mark.parametrize("code", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR"])
def test_refused_heartbeats(broker: EmbeddedBroker, code: str) -> None:
    topic = f"refused-{code}"
    broker.create_topic(topic, partitions=2)

    async def work() -> None:
        one = player(broker, topic)
        async with playing(one):
            await settle(one, sizes=[2])
            one.host.heard()
            fault = broker.faults.fail("ConsumerGroupHeartbeat", code)
            await poll_until(lambda: fault.is_over, one)
            lost = [] if code == "NOT_COORDINATOR" else [("lost", [0, 1]), ("assigned", [0, 1])]
            await poll_until(lambda: is_settled(one) and len(one.host.log) >= len(lost), one)
            assert one.host.heard() == lost
            await one.committer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})

    asyncio.run(work())


def test_commits_in_a_stale_epoch_are_made_in_the_new_one(broker: EmbeddedBroker) -> None:
    broker.create_topic("stale", partitions=2)

    async def work() -> None:
        one = player(broker, "stale")
        async with playing(one):
            await settle(one, sizes=[2])
            offsets = {TopicPartition("stale", 0): OffsetAndMetadata(1)}
            broker.faults.fail("OffsetCommit", "STALE_MEMBER_EPOCH")
            await one.committer.commit(offsets)
            broker.faults.fail("OffsetFetch", "STALE_MEMBER_EPOCH")
            assert await one.committer.committed(partitions("stale", 0)) == offsets
            # Nobody minds a reader that was put out.
            broker.faults.fail("OffsetFetch", "UNKNOWN_MEMBER_ID")
            assert await one.committer.committed(partitions("stale", 0)) == offsets
            broker.faults.fail("OffsetCommit", "UNKNOWN_MEMBER_ID")
            await poll_until(lambda: is_settled(one), one)
            with pytest.raises(CommitFailedError):
                await one.committer.commit(offsets)
            await poll_until(lambda: is_settled(one), one)

    asyncio.run(work())


def test_a_static_member_comes_back_to_its_partitions(broker: EmbeddedBroker) -> None:
    broker.create_topic("static", partitions=4)

    async def work() -> None:
        one, other = (
            player(broker, "static", group_instance_id="one"),
            player(broker, "static", group_instance_id="other"),
        )
        async with playing(other):
            await settle(one, other, sizes=[2, 2])
            await poll_until(lambda: is_settled(one, other), one, other)
            owned = one.indexes
            await one.close()
            again = player(broker, "static", group_instance_id="one")
            async with playing(again):
                await poll_until(lambda: again.indexes == owned, again, other)
                assert other.indexes == sorted({0, 1, 2, 3} - set(owned))
                late = player(broker, "static", group_instance_id="one")
                with pytest.raises(ApiError) as refusal:
                    await poll_until(lambda: False, late)
                assert refusal.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
                await late.close()

    asyncio.run(work())


def test_the_servers_assignor_can_be_chosen(broker: EmbeddedBroker) -> None:
    broker.create_topic("chosen", partitions=4)

    async def work() -> None:
        first, second = (player(broker, "chosen", group_remote_assignor="range") for _ in range(2))
        async with playing(first, second):
            await settle(first, second, sizes=[2, 2])
            assert sorted([first.indexes, second.indexes]) == [[0, 1], [2, 3]]
        wrong = player(broker, "chosen", group_remote_assignor="nobody")
        with pytest.raises(ApiError) as refusal:
            await poll_until(lambda: False, wrong)
        assert refusal.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR
        await wrong.close()

    asyncio.run(work())


def test_topics_come_and_go(broker: EmbeddedBroker) -> None:
    for topic in ("stays", "goes"):
        broker.create_topic(topic, partitions=2)

    async def work() -> None:
        settings: GroupSettings = fast("topics")
        one = Player(broker.bootstrap_servers, ["stays"], settings, protocol="consumer")
        async with playing(one):
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
        first, second = (player(broker, "restart") for _ in range(2))
        async with playing(first, second):
            await settle(first, second, sizes=[2, 2])
            await asyncio.to_thread(broker.restart, clean=False)
            tp = next(iter(first.host.assigned()))
            await first.committer.commit({tp: OffsetAndMetadata(3)})
            third = player(broker, "restart")
            async with playing(third):
                await settle(first, second, third, sizes=[1, 1, 2])

    asyncio.run(work())


def test_a_broker_without_the_protocol_is_told_so(broker: EmbeddedBroker) -> None:
    broker.create_topic("old", partitions=1)

    async def work() -> None:
        one = player(broker, "old")
        broker.faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
        with pytest.raises(ApiError, match="the broker does not offer the consumer group protocol of KIP-848"):
            await poll_until(lambda: False, one)
        await one.close()

    asyncio.run(work())


def test_a_refusal_for_good_is_told(broker: EmbeddedBroker) -> None:
    broker.create_topic("full", partitions=1)

    async def work() -> None:
        one = player(broker, "full")
        broker.faults.fail("ConsumerGroupHeartbeat", "GROUP_MAX_SIZE_REACHED")
        with pytest.raises(ApiError, match="group full") as raised:
            await poll_until(lambda: False, one)
        assert raised.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        await one.close()

    asyncio.run(work())
