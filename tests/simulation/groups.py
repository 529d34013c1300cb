"""A consumer group in a simulated world: members join, die and leave; at the end the live ones must agree."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rookery.base.types import Offset, TopicPartition
from rookery.client.cluster import Cluster
from tests.simulation.checkers import GroupHistory, Violations
from tests.simulation.loop import Process
from tests.simulation.members import (
    JOIN_TIMEOUT_S,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    fetch_committed,
)
from tests.simulation.users import REQUEST_TIMEOUT_S
from tests.simulation.world import World

_MEMBERS_MAX = 4
# A dead member is noticed when its session ends, then the others may use the whole rebalance time-out, and a member may
# have waited for a request's time-out before that.
CONVERGENCE_S_MAX = SESSION_TIMEOUT_MS / 1000 + 2 * REBALANCE_TIMEOUT_MS / 1000 + 2 * JOIN_TIMEOUT_S


class GroupMember(Protocol):
    """The interface of members: `members.Member`, which has only the protocol, or `own_members.OwnMember`.

    `owned` is None while a member does not know its assignment; `generation` is the member epoch in new groups.
    """

    name: str
    generation: int
    owned: frozenset[TopicPartition] | None
    may_stall: bool

    async def run(self) -> None: ...

    def leave(self) -> None: ...


class NewMember(Protocol):
    def __call__(
        self,
        world: World,
        history: GroupHistory,
        *,
        name: str,
        group: str,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
    ) -> GroupMember: ...


class Group:
    """The members of one group, all of one kind."""

    def __init__(
        self,
        world: World,
        violations: Violations,
        *,
        name: str,
        new_member: NewMember,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        hosts: list[str],
    ) -> None:
        self.history = GroupHistory(violations)
        self._world = world
        self._name = name
        self._new_member = new_member
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._hosts = hosts
        self._random = world.new_random()
        self._members: list[tuple[GroupMember, Process]] = []
        self._started = 0

    async def churn(self, duration_s: float) -> None:
        end_s = self._world.loop.time() + duration_s
        for _ in range(self._random.randint(1, _MEMBERS_MAX)):
            self._add()
        while self._world.loop.time() < end_s:
            await asyncio.sleep(self._random.uniform(0.5, 15))
            if len(self._members) > 1 and self._random.random() < 0.5:
                self._remove(self._random.randrange(len(self._members)))
            elif len(self._members) < _MEMBERS_MAX:
                self._add()

    def _add(self) -> None:
        self._started += 1
        name = f"{self._name}-{self._started}"
        member = self._new_member(
            self._world,
            self.history,
            name=name,
            group=self._name,
            bootstrap=self._bootstrap,
            partitions=self._partitions,
        )
        process = self._world.new_process(name, name)
        self._hosts.append(name)
        self._world.note(f"{name} comes")
        self._world.loop.spawn(process, member.run())
        self._members.append((member, process))

    def _remove(self, index: int) -> None:
        member, process = self._members.pop(index)
        self._hosts.remove(member.name)
        if self._random.random() < 0.5:
            self._world.note(f"{member.name} leaves")
            member.leave()
        else:
            self._world.note(f"{member.name} dies")
            process.kill()
            self._world.network.process_ended(process, silently=False)

    @property
    def is_converged(self) -> bool:
        """Whether all live members are in the newest generation and own each partition exactly once."""
        members = [member for member, _ in self._members]
        owned = [partition for member in members for partition in member.owned or ()]
        generations = {member.generation for member in members if member.owned is not None}
        return (
            all(member.owned is not None for member in members)
            and generations == {self.history.generation}
            and sorted(owned) == sorted(self._partitions)
        )

    def calm_down(self) -> None:
        for member, _ in self._members:
            member.may_stall = False

    async def check_convergence(self) -> None:
        end_s = self._world.loop.time() + CONVERGENCE_S_MAX
        while not self.is_converged:
            if self._world.loop.time() >= end_s:
                states = {
                    m.name: (m.generation, sorted(m.owned) if m.owned is not None else None) for m, _ in self._members
                }
                self.history.violations.add(
                    "group-converges",
                    f"{self._name} has not converged in {CONVERGENCE_S_MAX:g} s without faults: {states}",
                )
                return
            await asyncio.sleep(0.25)
        self._world.note(f"{self._name} has converged in generation {self.history.generation}")

    async def check_offsets(self) -> dict[TopicPartition, Offset]:
        """Fetch and check all committed offsets at the end of the run."""
        cluster = Cluster.at(self._bootstrap, client_id="auditor", timeout_s=REQUEST_TIMEOUT_S)
        committed = await cluster.retry(lambda: fetch_committed(cluster, self._name, self._partitions, self.history))
        await cluster.close()
        return committed
