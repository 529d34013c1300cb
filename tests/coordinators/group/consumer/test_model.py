"""Members join, leave, stall, vanish and change their subscriptions at random; the coordinator restarts in between.

Invariant: no two members own the same partition. Finally, after enough heartbeats of all members: every partition of
every subscribed topic is owned by exactly one member that subscribes to it.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators import regex
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.environment import MemberTimer
from rookery.coordinators.group.consumer.group import ConsumerGroup, GroupState
from rookery.coordinators.group.offsets.commit import CommitRequest, OffsetToCommit
from tests.coordinators.group.consumer.scenario import GROUP, Client, Coordinator, assert_no_overlap, topic_id

NAMES = ("orders", "returns", "refunds")
PATTERNS = (None, "", "re.*", "ord.*|refunds")
subscriptions = st.frozensets(st.sampled_from(NAMES))
clients = st.integers(0, 30)
ROUNDS_MAX = 40


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.clients: list[Client] = []
        self.number = 0

    @initialize(orders=st.integers(1, 6), returns=st.integers(1, 4))
    def create_topics(self, orders: int, returns: int) -> None:
        self.coordinator.set_topics(orders=orders, returns=returns)

    @rule(
        topics=subscriptions,
        pattern=st.sampled_from(PATTERNS),
        static=st.booleans(),
        assignor=st.sampled_from((None, "uniform", "range")),
    )
    def join(self, topics: frozenset[str], pattern: str | None, static: bool, assignor: str | None) -> None:
        self.number += 1
        name = f"member-{self.number}"
        client = Client(
            self.coordinator,
            name,
            topics=topics,
            regex=pattern,
            instance_id=f"instance-{self.number}" if static else None,
            assignor=assignor,
        )
        client.join()
        self.clients.append(client)

    @rule(number=clients, offset=st.integers(0, 5))
    def commit(self, number: int, offset: int) -> None:
        """Commit as a member, or without one: the latter is accepted while the group has no members."""
        client = self.pick(number) if self.clients else None
        request = CommitRequest(
            group_id=GROUP,
            member_id="" if client is None else client.member_id,
            generation=-1 if client is None else client.epoch,
            offsets=(OffsetToCommit(TopicPartition("orders", offset % 2), offset, offset, ""),),
        )
        self.coordinator.apply_result(self.coordinator.shard.commit(request, self.coordinator.now_ms))

    @rule()
    def delete_group(self) -> None:
        """Delete the group, which is refused while it has members."""
        self.coordinator.apply_result(self.coordinator.shard.delete(GROUP))

    @rule()
    def delete_offsets(self) -> None:
        partition = TopicPartition("orders", 0)
        self.coordinator.apply_result(self.coordinator.shard.delete_offsets(GROUP, [partition]))

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def beat(self, number: int) -> None:
        self.live(self.pick(number))

    def live(self, client: Client) -> None:
        """Send a heartbeat; join again if it is rejected."""
        client.beat()
        if client.error is not None:
            assert client.error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH), client.error
            client.join()

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def beat_silently(self, number: int) -> None:
        client = self.pick(number)
        client.beat_silently()
        if client.error is not None:
            client.join()

    @precondition(lambda self: self.clients)
    @rule(number=clients, topics=subscriptions)
    def subscribe(self, number: int, topics: frozenset[str]) -> None:
        client = self.pick(number)
        client.subscribe(*topics)
        if client.error is not None:
            client.join()

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def leave(self, number: int) -> None:
        client = self.pick(number)
        self.clients.remove(client)
        client.leave()

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def return_as_the_same_instance(self, number: int) -> None:
        client = self.pick(number)
        if client.instance_id is None:
            return
        client.leave(-2)
        if client.error is None:
            self.number += 1
            client.member_id = f"member-{self.number}"
            client.join()
            assert client.error is None
        else:
            client.join()

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def vanish(self, number: int) -> None:
        """The client stops without leaving; its session expires."""
        client = self.pick(number)
        self.clients.remove(client)
        for timer in list(self.coordinator.timers):
            if isinstance(timer, MemberTimer) and timer.member_id == client.member_id:
                self.coordinator.expire(timer)
                return

    @precondition(lambda self: self.coordinator.timers)
    @rule(number=clients)
    def time_out(self, number: int) -> None:
        """A member's timer fires; by its own clock it has already revoked its partitions, and is then fenced."""
        timers = sorted(self.coordinator.timers, key=repr)
        timer = timers[number % len(timers)]
        for client in self.clients:
            if isinstance(timer, MemberTimer) and timer.member_id == client.member_id:
                client.owned = {}
        if isinstance(timer, MemberTimer):
            self.coordinator.expire(timer)

    @rule(name=st.sampled_from(NAMES), partitions=st.none() | st.integers(1, 8))
    def change_topic(self, name: str, partitions: int | None) -> None:
        present = self.coordinator.topics.get(name)
        if partitions is None or present is None or partitions > len(present.partitions):
            self.coordinator.set_topics(**{name: partitions})

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()

    @invariant()
    def no_partition_is_shared(self) -> None:
        assert_no_overlap(self.clients)

    @invariant()
    def the_log_agrees(self) -> None:
        self.coordinator.check_replay()

    def teardown(self) -> None:
        """Let all members send heartbeats until nothing changes."""
        for _ in range(ROUNDS_MAX):
            before = [(client.epoch, client.owned) for client in self.clients]
            for client in self.clients:
                self.live(client)
                assert_no_overlap(self.clients)
            if before == [(client.epoch, client.owned) for client in self.clients] and self.is_stable():
                break
        else:
            raise AssertionError("the group does not become stable")
        self.check_coverage()

    def is_stable(self) -> bool:
        group = self.coordinator.shard.groups.get(GROUP)
        return not isinstance(group, ConsumerGroup) or group.state in (GroupState.STABLE, GroupState.EMPTY)

    def check_coverage(self) -> None:
        topics = self.coordinator.topics
        wanted = {client.member_id: self.wanted(client) for client in self.clients}
        subscribed = frozenset().union(*wanted.values()) if wanted else frozenset()
        expected = {(topic_id(name), index) for name in subscribed for index in topics[name].partitions}
        owned = {partition for client in self.clients for partition in assignment.partitions_of(client.owned)}
        assert owned == expected
        for client in self.clients:
            assert client.owned.keys() <= {topic_id(name) for name in wanted[client.member_id]}

    def wanted(self, client: Client) -> frozenset[str]:
        topics = self.coordinator.topics
        return (client.topics & topics.keys()) | regex.matching(client.regex or "", topics)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
