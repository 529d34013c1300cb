"""Storms over quorums of drivers: kills, power losses, pauses, cuts and resets, snapshots and appends all the time.

After a storm everything heals, and the quorum has to elect a leader and to bring all members to the same state.
"""

import asyncio
from collections.abc import Callable

import pytest

from rookery.base.types import NodeId
from tests.quorum.members import EVERYTHING, Cluster, Member
from tests.quorum.test_voter_changes import add, remove

_STORM_S = 20.0


class Storm:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = cluster.world.new_random()

    async def rage(self) -> None:
        world = self._cluster.world
        end_s = world.loop.time() + _STORM_S
        faults = [self._kill, self._lose_power, self._pause, self._cut, self._cut_one_way, self._reset, self._crash]
        chosen = self._random.sample(faults, 3)
        if self._cluster.is_dynamic:
            chosen += [self._change_voters] * 2
        while world.loop.time() < end_s:
            await asyncio.sleep(self._random.uniform(0, 0.6))
            self._append()
            self._random.choice([*chosen, self._append, self._append, self._take_snapshot, self._boot, self._boot])()

    async def calm_down(self) -> None:
        cluster = self._cluster
        cluster.world.network.heal_links()
        for member in cluster.members.values():
            member.disk.crash_at = None
            member.resume()
        cluster.boot()
        await cluster.converge()

    def _pick(self, members: list[Member]) -> Member | None:
        return self._random.choice(members) if members else None

    def _with(self, act: Callable[[Member], object]) -> None:
        member = self._pick(self._cluster.up)
        if member is not None:
            act(member)

    def _append(self) -> None:
        member = self._pick([member for member in self._cluster.up if member.is_leading])
        if member is not None:
            self._cluster.spawn_append(member, self._random.randrange(1, 4))

    def _take_snapshot(self) -> None:
        limits = EVERYTHING if self._random.random() < 0.7 else {}
        self._with(lambda member: self._cluster.world.loop.spawn(member.process, member.take_snapshot(**limits)))

    def _change_voters(self) -> None:
        leader = self._pick([member for member in self._cluster.up if member.is_leading])
        if leader is not None:
            node_id = self._random.choice([member.node_id for member in self._cluster.up if not member.is_observer])
            is_voter = leader.running.voters.get(node_id) is not None
            self._cluster.world.loop.spawn(
                leader.process, remove(leader, node_id) if is_voter else add(leader, node_id)
            )

    def _boot(self) -> None:
        member = self._pick([member for member in self._cluster.members.values() if not member.is_up])
        if member is not None:
            member.boot()

    def _kill(self) -> None:
        self._with(lambda member: member.kill())

    def _lose_power(self) -> None:
        self._with(lambda member: member.lose_power())

    def _crash(self) -> None:
        self._with(lambda member: member.disk.stop_after(self._random.randrange(1, 12)))

    def _pause(self) -> None:
        def pause(member: Member) -> None:
            member.pause()
            self._cluster.world.loop.call_later(self._random.uniform(0.1, 5), member.resume)

        self._with(pause)

    def _two(self) -> tuple[str, str]:
        nodes: list[NodeId] = self._random.sample(list(self._cluster.members), 2)
        return self._cluster.members[nodes[0]].name, self._cluster.members[nodes[1]].name

    def _cut(self) -> None:
        self._cluster.world.network.cut(*self._two())
        self._heal_later()

    def _cut_one_way(self) -> None:
        self._cluster.world.network.cut_one_way(*self._two())
        self._heal_later()

    def _heal_later(self) -> None:
        self._cluster.world.loop.call_later(self._random.uniform(0.5, 8), self._cluster.world.network.heal)

    def _reset(self) -> None:
        self._cluster.world.network.reset_some(self._random.random())


async def weather(cluster: Cluster) -> None:
    storm = Storm(cluster)
    await storm.rage()
    await storm.calm_down()


@pytest.mark.parametrize("seed", range(12))
def test_a_storm(seed: int) -> None:
    Cluster(seed, 5 if seed % 3 == 0 else 3, observers=seed % 2).run(weather)


@pytest.mark.parametrize("seed", range(100, 110))
def test_a_storm_with_voters_that_come_and_go(seed: int) -> None:
    Cluster(seed, 1 + seed % 3, spare=3 - seed % 3, is_dynamic=True).run(weather)
