"""What the active controller does without a request: leases, probes, leaders that return, records while idle."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from uuid import UUID

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, Offset
from rookery.controller import upkeep
from rookery.controller.service import Controller
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.image import ClusterImage, PartitionImage
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from rookery.metadata.requests import BrokerHeartbeat, Registration
from rookery.metadata.security_requests import NewToken
from rookery.protocol.principal import Principal
from tests.controller.cluster import broker, directory
from tests.controller.manual_log import ManualLog

TOPIC = UUID(int=7)


class Log(ManualLog):
    """A metadata log that commits immediately."""

    def __init__(self, metadata: MetadataPublisher) -> None:
        super().__init__(metadata, commits_at_once=True)
        self.records: list[MetadataRecord] = []

    async def propose(self, values: Sequence[bytes], *, epoch: int) -> "tuple[Offset, asyncio.Future[None]]":
        self.records += map(decode_record, values)
        return await super().propose(values, epoch=epoch)


class World:
    """An active controller with three brokers, whose epochs are their node ids, and one partition."""

    def __init__(
        self, *, voters: int = 3, reachable: Sequence[NodeId] = (), static: dict[str, str] | None = None
    ) -> None:
        self.clock = ManualClock()
        self.metadata = MetadataPublisher()
        self.log = Log(self.metadata)
        self.reachable = set(reachable)
        self.probed: list[NodeId] = []
        self.controller = Controller(
            self.log,
            self.metadata,
            node_id=9,
            cluster_id="c",
            static=static or {},
            random=Random(1),
            clock=self.clock,
            voter_count=lambda: voters,
            probe=self.probe,
        )

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics["t"].partitions[0]

    async def probe(self, node_id: NodeId) -> bool:
        self.probed.append(node_id)
        # Each probe takes some time of the clock that the controller reads.
        self.clock.advance(200)
        return node_id in self.reachable

    async def commit(self, *records: MetadataRecord) -> None:
        await self.log.propose([encode_record(record) for record in records], epoch=1)

    async def beat(self, *node_ids: NodeId) -> None:
        for node_id in node_ids:
            await self.controller.heartbeat(
                BrokerHeartbeat(node_id=node_id, broker_epoch=node_id, metadata_offset=1_000_000)
            )

    async def pass_time(self, seconds: float, *alive: NodeId) -> None:
        """Let time pass in steps of a second, with heartbeats and the check of leases in each."""
        for _ in range(round(seconds)):
            self.clock.advance(1000)
            await self.beat(*alive)
            await self.controller._upkeep.fence_lost()

    def fenced(self) -> list[NodeId]:
        return [node_id for node_id, each in self.image.brokers.items() if each.fenced]


def run(scenario: Callable[[World], Awaitable[None]], world: Callable[[], World] = World) -> None:
    async def main() -> None:
        here = world()
        await here.commit(
            *(FeatureLevelRecord(feature.name, feature.max_supported_version) for feature in SUPPORTED_FEATURES),
            *(broker(node_id) for node_id in (1, 2, 3)),
            TopicRecord("t", TOPIC),
            PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1),
        )
        here.controller.activate(1)
        await scenario(here)
        await here.controller.close()

    asyncio.run(main())


def test_a_silent_broker_is_fenced_when_its_lease_ends() -> None:
    async def scenario(world: World) -> None:
        await world.pass_time(8, 2, 3)
        assert world.fenced() == []
        await world.pass_time(2, 2, 3)
        assert world.fenced() == [1]
        assert (world.partition.leader, world.partition.isr) == (2, (2, 3))
        await world.beat(1)
        assert world.fenced() == [], "it is heard of again"

    run(scenario)


def test_a_broker_that_is_never_unfenced_loses_the_partitions_it_kept() -> None:
    async def scenario(world: World) -> None:
        await world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,)))
        registered = await world.controller.register_broker(
            Registration(
                node_id=1,
                cluster_id="c",
                incarnation_id=UUID(int=99),
                endpoints=(BrokerEndpoint("P", "h", 1),),
                features=SUPPORTED_FEATURES,
                log_directories=(directory(1),),
                previous_broker_epoch=1,
            )
        )
        assert registered.outcome.code is ErrorCode.NONE
        assert (world.fenced(), world.partition.leader) == ([1], 1)
        await world.pass_time(10, 2, 3)
        assert (world.partition.leader, world.partition.elr) == (-1, (1,))

    run(scenario)


def test_all_are_silent() -> None:
    async def scenario(world: World) -> None:
        await world.pass_time(10)
        assert world.fenced() == [1, 2, 3]
        assert (world.partition.leader, world.partition.isr) == (-1, ())

    run(scenario)


async def probing_ends(world: World) -> None:
    tasks = world.controller._upkeep._tasks
    await asyncio.gather(*(task for task in tasks if "_watch" in repr(task.get_coro())), return_exceptions=True)


@pytest.fixture
def fast_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_PROBE_PAUSE_S", 0.001)


@pytest.mark.usefixtures("fast_probes")
def test_a_broken_connection_leads_to_an_early_fence() -> None:
    async def scenario(world: World) -> None:
        world.controller.connection_lost(1)
        world.controller.connection_lost(1)
        await probing_ends(world)
        assert world.fenced() == [1]
        assert 2 <= len(world.probed) <= 6, "about a second of probes"
        assert world.partition.leader == 2
        world.controller.connection_lost(1)
        world.controller.connection_lost(17)
        assert world.controller._upkeep._lost == {}, "fenced and unknown brokers are not probed"

    run(scenario)


@pytest.mark.usefixtures("fast_probes")
def test_a_broker_that_answers_stays() -> None:
    async def scenario(world: World) -> None:
        world.controller.connection_lost(1)
        await probing_ends(world)
        assert (world.fenced(), world.probed) == ([], [1])

    run(scenario, lambda: World(reachable=[1]))


@pytest.mark.usefixtures("fast_probes")
def test_a_new_controller_finds_the_broker_that_ended_with_the_last_one() -> None:
    async def scenario(world: World) -> None:
        world.controller.probe_brokers()
        await probing_ends(world)
        assert set(world.probed) == {1, 2, 3}
        assert world.fenced() == [1]

    run(scenario, lambda: World(reachable=[2, 3]))


@pytest.mark.usefixtures("fast_probes")
def test_a_heartbeat_ends_the_probing() -> None:
    async def scenario(world: World) -> None:
        world.controller.connection_lost(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.beat(1)
        await probing_ends(world)
        assert world.fenced() == []

    run(scenario)


@pytest.mark.usefixtures("fast_probes")
def test_a_controller_that_reaches_no_broker_waits_for_the_leases() -> None:
    async def scenario(world: World) -> None:
        for node_id in (1, 2, 3):
            world.controller.connection_lost(node_id)
        await probing_ends(world)
        assert world.fenced() == []
        await world.pass_time(10)
        assert world.fenced() == [1, 2, 3]

    run(scenario)


def test_preferred_leaders_return_after_two_passes() -> None:
    async def scenario(world: World) -> None:
        await world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=2))
        await world.controller._upkeep.return_leaders()
        assert world.partition.leader == 2, "it has just joined the ISR"
        await world.controller._upkeep.return_leaders()
        assert world.partition.leader == 1
        end = world.log.next_offset
        for _ in range(3):
            await world.controller._upkeep.return_leaders()
        assert world.log.next_offset == end

    run(scenario)


def test_unclean_elections_wait_for_the_setting() -> None:
    async def scenario(world: World) -> None:
        await world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1, isr=()))
        await world.controller._upkeep.elect_unclean()
        assert world.partition.leader == -1
        await world.commit(ConfigRecord(2, "t", "unclean.leader.election.enable", "true"))
        await world.controller._upkeep.elect_unclean()
        assert (world.partition.leader, world.partition.recovery_state) == (1, 1)

    run(scenario)


@pytest.mark.parametrize(("voters", "records"), [(1, 0), (3, 2)])
def test_only_a_quorum_with_other_voters_shows_progress(voters: int, records: int) -> None:
    async def scenario(world: World) -> None:
        await world.controller._upkeep.show_progress()
        start = world.log.next_offset
        await world.controller._upkeep.show_progress()
        await world.controller._upkeep.show_progress()
        assert world.log.next_offset - start == records

    run(scenario, lambda: World(voters=voters))


def test_an_idle_node_that_is_alone_writes_nothing() -> None:
    static = {
        "leader.imbalance.check.interval.seconds": "1",
        "unclean.leader.election.interval.ms": "5",
        "metadata.max.idle.interval.ms": "5",
    }

    async def scenario(world: World) -> None:
        await asyncio.sleep(0.1)
        assert world.log.next_offset == len(SUPPORTED_FEATURES) + 5

    run(scenario, lambda: World(voters=1, static=static))


def test_expired_delegation_tokens_are_removed() -> None:
    settings = {"delegation.token.secret.key": "secret", "delegation.token.expiry.check.interval.ms": "5"}

    async def scenario(world: World) -> None:
        user = Principal("User", "alice")
        for lifetime_ms in (1000, 5000):
            request = NewToken(requester=user, owner=user, max_lifetime_ms=lifetime_ms)
            assert (await world.controller.security.create_token(request)).outcome.code is ErrorCode.NONE
        world.clock.advance(1001)
        while len(world.image.tokens) == 2:
            await asyncio.sleep(0.005)
        (left,) = world.image.tokens.values()
        assert left.max_ms - left.issue_ms == 5000

    run(scenario, lambda: World(voters=1, static=settings))


def test_a_controller_that_stops_leading_does_nothing_more() -> None:
    async def scenario(world: World) -> None:
        world.controller.deactivate()
        world.clock.advance(100_000)
        world.controller.connection_lost(1)
        await asyncio.sleep(0.25)
        assert world.fenced() == []
        assert world.probed == []

    run(scenario, lambda: World(static={"broker.session.timeout.ms": "800"}))
