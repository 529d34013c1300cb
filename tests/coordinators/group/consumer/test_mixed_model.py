"""Random members of both protocols in one group: no partition has two owners, and finally each has one."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.environment import ConsumerSettings, MemberTimer, MigrationPolicy
from rookery.coordinators.group.consumer.group import GroupState
from rookery.coordinators.result import Parked
from tests.coordinators.group.consumer.scenario import ClassicClient, Client, Coordinator, topic_id

ORDERS = frozenset({"orders"})
ROUNDS_MAX = 60
numbers = st.integers(0, 30)


class MixedGroupMachine(RuleBasedStateMachine):
    """One member of the new protocol never leaves, so that the group stays a consumer group."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(ConsumerSettings(migration_policy=MigrationPolicy.UPGRADE), orders=5)
        self.count = 0
        self.clients: list[Client] = []
        self.classic: list[ClassicClient] = []
        self.join()

    @rule()
    def join(self) -> None:
        self.count += 1
        client = Client(self.coordinator, f"member-{self.count}", topics=ORDERS)
        client.join()
        self.clients.append(client)

    @rule(cooperative=st.booleans())
    def join_classic(self, cooperative: bool) -> None:
        client = ClassicClient(self.coordinator, ORDERS, cooperative=cooperative)
        client.step()
        self.classic.append(client)

    @rule(number=numbers)
    def beat(self, number: int) -> None:
        self.live(self.clients[number % len(self.clients)])

    def live(self, client: Client) -> None:
        client.beat()
        if client.error is not None:
            client.join()

    @precondition(lambda self: self.classic)
    @rule(number=numbers)
    def beat_classic(self, number: int) -> None:
        self.live_classic(self.classic[number % len(self.classic)])

    def live_classic(self, client: ClassicClient) -> None:
        code = client.beat() if client.is_synced else client.sync()
        if code is ErrorCode.NONE:
            return
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            # It was removed or fenced: it owns nothing any more, and joins again.
            client.owned = []
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
        assert not isinstance(client.join(), Parked)
        client.sync()

    @precondition(lambda self: self.classic)
    @rule(number=numbers)
    def join_without_sync(self, number: int) -> None:
        self.classic[number % len(self.classic)].join()

    @precondition(lambda self: len(self.clients) > 1)
    @rule(number=numbers)
    def leave(self, number: int) -> None:
        self.clients.pop(1 + number % (len(self.clients) - 1)).leave()

    @precondition(lambda self: self.classic)
    @rule(number=numbers)
    def leave_classic(self, number: int) -> None:
        client = self.classic.pop(number % len(self.classic))
        client.owned = []
        client.leave()

    @rule(number=numbers)
    def time_out(self, number: int) -> None:
        """A member's timer fires; by its own clock it has already revoked its partitions."""
        timers = sorted((timer for timer in self.coordinator.timers if isinstance(timer, MemberTimer)), key=repr)
        timers = [timer for timer in timers if timer.member_id != "member-1"]
        if not timers:
            return
        timer = timers[number % len(timers)]
        for client in self.clients:
            if client.member_id == timer.member_id:
                client.owned = {}
        for classic in self.classic:
            if classic.member_id == timer.member_id:
                classic.owned = []
        self.coordinator.expire(timer)

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()

    @invariant()
    def no_partition_is_shared(self) -> None:
        assert len(set(self.owned())) == len(self.owned())

    def owned(self) -> list[assignment.Partition]:
        new = [partition for client in self.clients for partition in assignment.partitions_of(client.owned)]
        return new + [(topic_id(name), index) for client in self.classic for name, index in client.owned]

    def teardown(self) -> None:
        for _ in range(ROUNDS_MAX):
            for client in self.clients:
                self.live(client)
                self.no_partition_is_shared()
            for classic in self.classic:
                self.live_classic(classic)
                self.no_partition_is_shared()
            if self.coordinator.group.state is GroupState.STABLE and len(self.owned()) == 5:
                return
        raise AssertionError("the group does not become stable")


TestMixedGroupMachine = MixedGroupMachine.TestCase
TestMixedGroupMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
