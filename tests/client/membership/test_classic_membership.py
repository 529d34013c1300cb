"""Members of classic groups that join, leave, crash and come back, against a running broker."""

import asyncio
from collections.abc import Mapping

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import Admin
from rookery.client.errors import CommitFailedError
from rookery.client.membership.assignors.base import MemberSubscription, PartitionRacks, StatelessAssignor
from rookery.client.membership.classic_shell import ClassicMembership
from rookery.client.membership.interfaces import OffsetAndMetadata
from rookery.testing import EmbeddedBroker
from tests.client.membership.group_members import TIMEOUT_S, GroupMember, closing, fast, partitions, poll_until, settle
from tests.client.skipping import let_pass


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_come_and_go(broker: EmbeddedBroker, strategy: str) -> None:
    topic = f"come-{strategy}"
    broker.create_topic(topic, partitions=6)

    async def work() -> None:
        settings = fast(topic, strategies=(strategy,))
        first, second, third = (GroupMember(broker.bootstrap_servers, [topic], settings) for _ in range(3))
        async with closing(first, second):
            await settle(first, sizes=[6])
            assert first.host.take_events() == [("assigned", [0, 1, 2, 3, 4, 5])]
            await settle(first, second, sizes=[3, 3])
            await settle(first, second, third, sizes=[2, 2, 2])
            await third.close()
            await settle(first, second, sizes=[3, 3])

    asyncio.run(work())


def test_eager_members_revoke_everything_first(broker: EmbeddedBroker) -> None:
    broker.create_topic("eager", partitions=4)

    async def work() -> None:
        first, second = (GroupMember(broker.bootstrap_servers, ["eager"], fast("eager")) for _ in range(2))
        async with closing(second):
            await settle(first, sizes=[4])
            await settle(first, second, sizes=[2, 2])
            assert first.host.log == [
                ("assignment", [0, 1, 2, 3]),
                ("assigned", [0, 1, 2, 3]),
                ("revoked", [0, 1, 2, 3]),
                ("assignment", []),
                ("assignment", first.indexes),
                ("assigned", first.indexes),
            ]
            owned = first.indexes
            first.host.take_events()
            await first.close()
            assert first.host.log == [("revoked", owned), ("assignment", [])]

    asyncio.run(work())


def test_cooperative_members_revoke_only_what_moves(broker: EmbeddedBroker) -> None:
    broker.create_topic("cooperative", partitions=4)

    async def work() -> None:
        settings = fast("cooperative", strategies=("cooperative-sticky",))
        first, second = (GroupMember(broker.bootstrap_servers, ["cooperative"], settings) for _ in range(2))
        async with closing(first, second):
            await settle(first, sizes=[4])
            first.host.take_events()
            await settle(first, second, sizes=[2, 2])
            moved = second.indexes
            take_events = first.host.take_events()
            assert [entry for entry in take_events if entry[1]] == [("revoked", moved)]
            assert [entry for entry in second.host.take_events() if entry[1]] == [("assigned", moved)]

    asyncio.run(work())


def test_positions_are_committed_before_a_revocation(broker: EmbeddedBroker) -> None:
    broker.create_topic("handed", partitions=2)

    async def work() -> None:
        settings = fast("handed", enable_auto_commit=True, auto_commit_interval_ms=60_000)
        first, second = (GroupMember(broker.bootstrap_servers, ["handed"], settings) for _ in range(2))
        seen: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

        async def on_event(event: str, _: object) -> None:
            if event == "revoked":
                assert first.host.stopped == first.host.assigned()
                seen.append(await first.committer.committed(partitions("handed", 0, 1)))

        first.host.on_event = on_event
        async with closing(first, second):
            await settle(first, sizes=[2])
            read = {tp: OffsetAndMetadata(5 + tp.partition) for tp in first.host.assigned()}
            first.host.positions = dict(read)
            await settle(first, second, sizes=[1, 1])
            assert seen == [read]

    asyncio.run(work())


def test_a_dead_member_is_replaced_when_its_session_ends(broker: EmbeddedBroker) -> None:
    broker.create_topic("dead", partitions=4)

    async def work() -> None:
        settings = fast("dead", session_timeout_ms=400)
        first, second = (GroupMember(broker.bootstrap_servers, ["dead"], settings) for _ in range(2))
        async with closing(second):
            await settle(first, second, sizes=[2, 2])
            await first.kill()
            await settle(second, sizes=[4])

    asyncio.run(work())


def test_an_application_that_does_not_poll_loses_its_partitions(broker: EmbeddedBroker) -> None:
    broker.create_topic("silent", partitions=4)

    async def work() -> None:
        silent = GroupMember(broker.bootstrap_servers, ["silent"], fast("silent", max_poll_interval_ms=30_000))
        awake = GroupMember(broker.bootstrap_servers, ["silent"], fast("silent", max_poll_interval_ms=300_000))
        async with closing(silent, awake):
            await settle(silent, awake, sizes=[2, 2])
            silent.host.take_events()
            owned = silent.indexes
            await let_pass(30)
            await settle(awake, sizes=[4])
            assert silent.indexes == owned
            with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
                await silent.committer.commit({TopicPartition("silent", owned[0]): OffsetAndMetadata(1)})
            await settle(silent, awake, sizes=[2, 2])
            assert silent.host.take_events()[:2] == [("lost", owned), ("assigned", silent.indexes)]

    asyncio.run(work())


def test_a_static_member_that_restarts_keeps_its_partitions(broker: EmbeddedBroker) -> None:
    broker.create_topic("static", partitions=4)

    async def work() -> None:
        def new_member(name: str) -> GroupMember:
            return GroupMember(broker.bootstrap_servers, ["static"], fast("static", group_instance_id=name))

        one, other = new_member("one"), new_member("other")
        async with closing(other):
            await settle(one, other, sizes=[2, 2])
            owned, generation = one.indexes, one.generation
            await one.close()
            again = new_member("one")
            async with closing(again):
                await settle(again, other, sizes=[2, 2])
                assert (again.indexes, again.generation, other.generation) == (owned, generation, generation)
                assert again.membership.group_metadata.group_instance_id == "one"

    asyncio.run(work())


def test_the_second_member_with_an_instance_id_fences_the_first(broker: EmbeddedBroker) -> None:
    broker.create_topic("fenced", partitions=2)

    async def work() -> None:
        settings = fast("fenced", group_instance_id="same")
        first, second = (GroupMember(broker.bootstrap_servers, ["fenced"], settings) for _ in range(2))
        async with closing(first, second):
            await settle(first, sizes=[2])
            await settle(second, sizes=[2])
            for _ in range(2):
                with pytest.raises(ApiError, match=r"another consumer uses the group.instance.id same") as raised:
                    await poll_until(lambda: False, first)
                assert raised.value.code == ErrorCode.FENCED_INSTANCE_ID
            first.host.take_events()
            await first.membership.close(timeout_s=5)
            assert first.host.take_events() == [("lost", [0, 1])]

    asyncio.run(work())


def test_the_coordinator_restarts(broker: EmbeddedBroker) -> None:
    broker.create_topic("restart", partitions=4)

    async def work() -> None:
        first, second = (GroupMember(broker.bootstrap_servers, ["restart"], fast("restart")) for _ in range(2))
        async with closing(first, second):
            await settle(first, second, sizes=[2, 2])
            await asyncio.to_thread(broker.restart, clean=False)
            tp = next(iter(first.host.assigned()))
            await first.committer.commit({tp: OffsetAndMetadata(3)})
            third = GroupMember(broker.bootstrap_servers, ["restart"], fast("restart"))
            async with closing(third):
                await settle(first, second, third, sizes=[1, 1, 2])
                assert (await third.committer.committed([tp]))[tp].offset == 3

    asyncio.run(work())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat"])
@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"])
def test_errors_are_followed_by_a_new_join(broker: EmbeddedBroker, api: str, code: str) -> None:
    topic = f"error-{api}-{code}"
    broker.create_topic(topic, partitions=2)

    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, [topic], fast(topic))
        async with closing(one):
            if api == "Heartbeat":
                await settle(one, sizes=[2])
            fault = broker.faults.fail(api, code)
            await poll_until(lambda: fault.is_over, one)
            if code == "UNKNOWN_MEMBER_ID" and api != "JoinGroup":
                # The broker takes it for another member, and waits for the old one until its session expires.
                await asyncio.to_thread(broker.advance_time, 10)
            await settle(one, sizes=[2])
            await one.committer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})

    asyncio.run(work())


def test_a_lost_response_to_a_join(broker: EmbeddedBroker) -> None:
    broker.create_topic("lost-response", partitions=2)

    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["lost-response"], fast("lost-response"))
        async with closing(one):
            broker.faults.drop_connection("JoinGroup", carry_out=True, times=2)
            broker.faults.drop_connection("SyncGroup", carry_out=True)
            await settle(one, sizes=[2])

    asyncio.run(work())


def test_lost_while_it_joins_and_back_before_the_next_poll(broker: EmbeddedBroker) -> None:
    """A heartbeat fails while SyncGroup is in flight, and the join continues with a new member id."""
    broker.create_topic("back-again", partitions=2)

    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["back-again"], fast("back-again"))
        async with closing(one):
            failed = broker.faults.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
            broker.faults.delay("SyncGroup", 10)
            broker.faults.fail("SyncGroup", "REBALANCE_IN_PROGRESS")
            await one.poll()
            assert isinstance(one.membership, ClassicMembership)
            async with asyncio.timeout(TIMEOUT_S):
                while not one.membership._is_lost:
                    await asyncio.sleep(0.01)
            assert failed.is_over
            assert one.membership._join_task is not None
            assert not one.membership._join_task.done()
            # The response arrives, and the session of the lost member expires.
            await asyncio.to_thread(broker.advance_time, 10)
            await one.membership._join_task
            await settle(one, sizes=[2])

    asyncio.run(work())


def test_new_partitions_are_assigned(broker: EmbeddedBroker) -> None:
    broker.create_topic("grown", partitions=2)

    async def work() -> None:
        first, second = (GroupMember(broker.bootstrap_servers, ["grown"], fast("grown")) for _ in range(2))
        async with closing(first, second):
            await settle(first, second, sizes=[1, 1])
            await Admin.over(first.cluster).create_partitions({"grown": 4})
            for each in (first, second):
                await each.cluster.refresh(["grown"])
            await settle(first, second, sizes=[2, 2])

    asyncio.run(work())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_another_subscription(broker: EmbeddedBroker, strategy: str) -> None:
    old, new = f"old-{strategy}", f"new-{strategy}"
    for topic in (old, new):
        broker.create_topic(topic, partitions=2)

    async def work() -> None:
        settings = fast(old, strategies=(strategy,))
        one, other = (
            GroupMember(broker.bootstrap_servers, [old], settings),
            GroupMember(broker.bootstrap_servers, [old], settings),
        )
        async with closing(one, other):
            await settle(one, other, sizes=[1, 1])
            one.host.topics = frozenset({old, new})
            await settle(one, other, sizes=[2, 2] if strategy != "range" else [1, 3])
            one.host.topics = frozenset({new})
            await settle(one, other, sizes=[2, 2])
            assert {tp.topic for tp in one.host.assigned()} == {new}
            # The leader watches the topics of both.
            assert {old, new} in (one.host.group_topics, other.host.group_topics)

    asyncio.run(work())


def test_exceptions_of_listeners_propagate_and_change_nothing(broker: EmbeddedBroker) -> None:
    broker.create_topic("raising", partitions=2)

    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["raising"], fast("raising"))

        def fail(event: str, _: object) -> None:
            raise RuntimeError(event)

        async with closing(one):
            one.host.on_event = fail
            with pytest.raises(RuntimeError, match="assigned"):
                await settle(one, sizes=[3])
            assert one.indexes == [0, 1]
            one.membership.request_rejoin("for the test")
            with pytest.raises(RuntimeError, match="revoked"):
                await one.poll()
            assert one.indexes == []
            one.host.on_event = lambda event, found: None
            await settle(one, sizes=[2])

    asyncio.run(work())


class Broken(StatelessAssignor):
    name = "broken"

    def assign(
        self, topics: PartitionRacks, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, list[TopicPartition]]:
        raise ZeroDivisionError("on purpose")


def test_the_exception_of_an_assignor_is_raised_in_the_leader(broker: EmbeddedBroker) -> None:
    broker.create_topic("broken", partitions=2)

    async def work() -> None:
        settings = fast("broken", strategies=("broken",))
        one = GroupMember(broker.bootstrap_servers, ["broken"], settings, assignors=[Broken()])
        async with closing(one):
            with pytest.raises(ApiError, match="assignor broken: on purpose"):
                await settle(one, sizes=[2])

    asyncio.run(work())


def test_assignors_without_a_common_name(broker: EmbeddedBroker) -> None:
    broker.create_topic("apart", partitions=2)

    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["apart"], fast("apart"))
        other = GroupMember(broker.bootstrap_servers, ["apart"], fast("apart", strategies=("sticky",)))
        async with closing(one, other):
            await settle(one, sizes=[2])
            with pytest.raises(ApiError, match=r"partition.assignment.strategy") as raised:
                await poll_until(lambda: False, other)
            assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    asyncio.run(work())


def test_close_during_a_join(broker: EmbeddedBroker) -> None:
    broker.create_topic("hasty", partitions=2)

    async def work() -> None:
        one, other = (GroupMember(broker.bootstrap_servers, ["hasty"], fast("hasty")) for _ in range(2))
        async with closing(other):
            await settle(one, sizes=[2])
            await poll_until(lambda: other.membership._member.member_id != "", other)
            await other.poll()
            await one.close()
            await settle(other, sizes=[2])
        hasty = GroupMember(broker.bootstrap_servers, ["hasty"], fast("hasty"))
        await hasty.poll()
        await hasty.close()

    asyncio.run(work())


def test_close_while_a_poll_revokes_before_a_join(broker: EmbeddedBroker) -> None:
    """That poll must not join again: the member would never leave."""
    broker.create_topic("prepared", partitions=2)

    async def work() -> None:
        one = GroupMember(broker.bootstrap_servers, ["prepared"], fast("prepared"))
        async with closing(one):
            await settle(one, sizes=[2])
            may_return = asyncio.Event()
            one.host.on_event = lambda event, partitions: may_return.wait()
            one.membership.request_rejoin("a test")
            one.host.take_events()
            polls = asyncio.ensure_future(one.poll())
            while not one.host.take_events():
                await asyncio.sleep(0)
            one.host.on_event = lambda event, partitions: None
            await one.membership.close(timeout_s=TIMEOUT_S)
            may_return.set()
            await polls
            assert isinstance(one.membership, ClassicMembership)
            assert not one.membership._is_joining

    asyncio.run(work())
