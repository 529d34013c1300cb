"""Groups whose coordinator moves: members, static or not, continue without a rebalance, and no commit is lost."""

import asyncio
from collections.abc import Mapping
from itertools import cycle

import pytest

from rookery.base.types import Offset, TopicPartition
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster as Client
from rookery.coordinators.runtime import abs_hash
from rookery.metadata.internal_topics import OFFSETS_TOPIC
from tests.coordinators.cluster import Cluster, Fate
from tests.coordinators.test_moves import INTERNAL
from tests.coordinators.test_moves_planted import load_short_logs
from tests.simulation.checkers import GroupHistory
from tests.simulation.own_members import KINDS, OwnMember
from tests.simulation.transfer import GROUP, PARTITIONS, TOPICS
from tests.simulation.users import new_consumer, new_producer
from tests.simulation.world import World

COORDINATOR = TopicPartition(OFFSETS_TOPIC, abs_hash(GROUP) % INTERNAL[OFFSETS_TOPIC])
_STABLE_S = 15.0
_MOVES = ((Fate.KEPT, False), (Fate.LOST, False), (Fate.KEPT, True), (Fate.LOST, True))


class Stage:
    """Three brokers, and a process that writes records."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.world = World(seed=seed)
        self.cluster = Cluster(self.world, patch)
        self.history = GroupHistory(self.world.violations)

    async def start(self) -> None:
        await self.cluster.start({**{topic.name: topic.partitions for topic in TOPICS}, **INTERNAL}, {})
        # The records have a leader epoch that is not the default of a field.
        for partition in PARTITIONS * 2:
            self.cluster.move(partition, Fate.KEPT, is_late=False)
            await asyncio.sleep(0.1)
        await self.world.loop.spawn(self.world.new_process("producer", "producer"), self.produce(20))

    async def produce(self, count: int) -> None:
        world = self.world
        async with new_producer(
            world, name="producer", bootstrap=self.cluster.bootstrap, randomness=world.new_random()
        ) as producer:
            for number in range(count):
                for topic, partition in PARTITIONS:
                    await (await producer.send(topic, b"%d" % number, partition=partition))

    def check(self) -> None:
        assert not self.world.violations.found, self.world.violations.found


def settings_of(kind: Mapping[str, object], instance_id: str | None) -> dict[str, object]:
    return {"group.id": GROUP, **kind, **({} if instance_id is None else {"group.instance.id": instance_id})}


def move_stable_group(kind: Mapping[str, object], patch: pytest.MonkeyPatch) -> None:
    """Check that two members, one of them static, keep their assignments and commits while the coordinator moves."""
    stage = Stage(1, patch)

    async def member(instance_id: str | None, seen: list[tuple[str, int, int]]) -> None:
        consumer = new_consumer(
            stage.world,
            name=f"member-{instance_id}",
            bootstrap=stage.cluster.bootstrap,
            settings=settings_of(kind, instance_id),
        )
        async with consumer:
            consumer.subscribe([topic.name for topic in TOPICS])
            deadline_s = stage.world.loop.time() + _STABLE_S
            while stage.world.loop.time() < deadline_s:
                await consumer.poll(0.5)
            for fate, is_late in _MOVES:
                metadata = consumer.group_metadata()
                seen.append((metadata.member_id, metadata.generation_id, len(consumer.assignment())))
                await consumer.commit()
                if instance_id is not None:
                    stage.cluster.move(COORDINATOR, fate, is_late=is_late)
                deadline_s = stage.world.loop.time() + _STABLE_S
                while stage.world.loop.time() < deadline_s:
                    await consumer.poll(0.5)
                committed = await consumer.committed(sorted(consumer.assignment()))
                # The data was written in the partition's third leader epoch.
                assert {(each.offset, each.leader_epoch) for each in committed.values()} == {(20, 2)}

    async def main() -> None:
        await stage.start()
        static: list[tuple[str, int, int]] = []
        dynamic: list[tuple[str, int, int]] = []
        spawn, process = stage.world.loop.spawn, stage.world.new_process
        await asyncio.gather(
            spawn(process("static", "static"), member("instance", static)),
            spawn(process("dynamic", "dynamic"), member(None, dynamic)),
        )
        for seen in (static, dynamic):
            assert len(seen) == len(_MOVES)
            assert len(set(seen)) == 1, f"a rebalance: {seen}"
            assert seen[0][2] == 2

    stage.world.run(main())
    stage.check()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.get("partition.assignment.strategy", "consumer")))
def test_a_stable_group_moves_without_a_rebalance(kind: Mapping[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    move_stable_group(kind, monkeypatch)


def test_a_commit_that_a_new_coordinator_does_not_load_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load_short_logs(monkeypatch)
    with pytest.raises(AssertionError):
        move_stable_group(KINDS[0], monkeypatch)


@pytest.mark.parametrize("seed", range(4))
def test_a_group_that_rebalances_while_its_coordinator_moves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members join and leave, and commit. A partition has one owner, and acknowledged commits are found later."""
    stage = Stage(seed, monkeypatch)
    world, kind = stage.world, KINDS[seed]

    def new_member(number: int) -> OwnMember:
        member = OwnMember(
            world,
            stage.history,
            name=f"member-{number}",
            group=GROUP,
            bootstrap=stage.cluster.bootstrap,
            partitions=PARTITIONS,
            kind=kind,
        )
        member.may_stall = False
        return member

    async def fetch() -> dict[TopicPartition, Offset]:
        client = Client.at(stage.cluster.bootstrap, client_id="auditor", timeout_s=2)
        found = await Admin.over(client).committed_offsets(GROUP)
        await client.close()
        return {partition: found[partition].offset for partition in PARTITIONS}

    async def main() -> None:
        await stage.start()
        members = [new_member(number) for number in range(3)]
        tasks, random, moves = [], world.new_random(), cycle(_MOVES)
        for member in members:
            tasks.append(world.loop.spawn(world.new_process(member.name, member.name), member.run()))
            for fate, is_late in (next(moves), next(moves)):
                await asyncio.sleep(random.uniform(0.0, 2.0))
                stage.cluster.move(COORDINATOR, fate, is_late=is_late)
        await asyncio.sleep(10)
        members[0].leave()
        await asyncio.sleep(random.uniform(0.0, 0.3))
        stage.cluster.move(COORDINATOR, Fate.KEPT, is_late=True)
        await asyncio.sleep(2 * _STABLE_S)
        owned = [member.owned or frozenset() for member in members[1:]]
        assert sorted(partition for each in owned for partition in each) == sorted(PARTITIONS)
        assert stage.history.commit_count > 0
        floor = stage.history.floor(PARTITIONS)
        found = await world.loop.spawn(world.new_process("auditor", "auditor"), fetch())
        stage.history.on_fetched(found, floor)
        for task in tasks:
            task.cancel()

    world.run(main())
    stage.check()
