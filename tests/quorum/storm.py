"""A storm over a quorum: messages lost, doubled, late and out of order, disks that sync late, replicas that crash.

`choose(n)` returns a number below n and is the only source of what happens: a `Random`, or hypothesis, which then
shrinks a failure to a short one. After the storm the network is calm, and the quorum must elect a leader and commit.
"""

from collections.abc import Callable
from math import inf
from random import Random
from typing import TypeAlias

from rookery.base.types import NodeId
from rookery.quorum import events
from tests.quorum.replicas import Message, Replica, ViolationError, World

Choose: TypeAlias = Callable[[int], int]

_CALM_MS = 60_000
_MESSAGES_MAX = 60


class Storm:
    def __init__(self, choose: Choose, size: int) -> None:
        self._choose = choose
        self.world = World(size, jitter=lambda: choose(1000) / 1000)
        self._values = 0
        self._cut: set[tuple[NodeId, NodeId]] = set()
        self._weights = self._weather()
        self._total = sum(weight for _, weight in self._weights)

    def rage(self, steps: int) -> None:
        self.world.boot()
        for _ in range(steps):
            self._act()
            self.world.check()

    def calm_down(self) -> None:
        """Heal everything; a record that is proposed now must be committed on every replica."""
        world = self.world
        # From here on chance is fair: replicas that always wait for the same time may never agree.
        world.jitter = Random(0).random
        world.lose_messages()
        for replica in world.replicas.values():
            if not replica.alive:
                replica.boot()
        world.run(_CALM_MS)
        if len(world.leaders) != 1:
            raise ViolationError("a leader in the end", f"{len(world.leaders)} replicas lead")
        (leader,) = world.leaders
        leader.propose("after the storm")
        world.run(_CALM_MS)
        for replica in world.alive:
            if [entry.value for entry in replica.entries[: replica.high_watermark]][-1:] != ["after the storm"]:
                raise ViolationError("progress in the end", f"node {replica.node_id} did not commit the last record")

    def _act(self) -> None:
        dice = self._choose(self._total)
        for action, weight in self._weights:
            if dice < weight:
                action()
                return
            dice -= weight

    def _weather(self) -> list[tuple[Callable[[], None], int]]:
        """How often what happens: drawn for each storm, so that some are mild, and some lack a kind of fault."""
        return [
            (lambda: self._with_message(self._deliver), 60),
            (self._sync, 5 + self._choose(20)),
            (self._propose, 5 + self._choose(10)),
            (self._pass_time, 1 + self._choose(8)),
            (lambda: self._with_message(self._lose), self._choose(8)),
            (lambda: self._with_message(self._double), self._choose(4)),
            (self._crash_or_boot, self._choose(4)),
            (self._replace_disk, self._choose(3)),
            (self._cut_or_heal, self._choose(3)),
            (self._resign, self._choose(2)),
            (lambda: self.world.advance(self._choose(30)), 1 + self._choose(5)),
        ]

    def _pick(self, replicas: list[Replica]) -> Replica | None:
        return replicas[self._choose(len(replicas))] if replicas else None

    def _with_message(self, act: Callable[[Message], None]) -> None:
        messages = self.world.messages
        if messages:
            act(messages.pop(self._choose(min(len(messages), _MESSAGES_MAX))))

    def _deliver(self, message: Message) -> None:
        if (message.source, message.target) in self._cut:
            self.world.fail(message)
        else:
            self.world.deliver(message)

    def _lose(self, message: Message) -> None:
        self.world.fail(message)

    def _double(self, message: Message) -> None:
        if message.is_request:
            self.world.messages.append(message)
        self._deliver(message)

    def _sync(self) -> None:
        replica = self._pick([replica for replica in self.world.alive if replica.is_syncing])
        if replica is not None:
            replica.sync()

    def _pass_time(self) -> None:
        """To the next deadline, or a little before or after it."""
        deadlines = [replica.core.deadline_ms for replica in self.world.alive]
        next_ms = min(deadlines, default=inf)
        if next_ms < inf:
            self.world.advance(max(next_ms - self.world.now_ms + self._choose(5) - 1, 1))

    def _propose(self) -> None:
        leader = self._pick(self.world.leaders)
        if leader is not None:
            self._values += 1
            leader.propose(f"value {self._values}")

    def _crash_or_boot(self) -> None:
        replica = self._pick(list(self.world.replicas.values()))
        if replica is not None:
            if replica.alive:
                replica.kill()
            else:
                replica.boot()

    def _replace_disk(self) -> None:
        """Replace a disk, if a majority still has its records: more lost disks than that lose records in any quorum."""
        replicas = list(self.world.replicas.values())
        lost = replicas[self._choose(len(replicas))]
        others = sum(each.disk.is_whole for each in replicas if each is not lost)
        if others >= self.world.voters.majority:
            lost.replace_disk()

    def _cut_or_heal(self) -> None:
        """Cut one direction between two replicas, or heal all."""
        if self._choose(3) == 0:
            self._cut.clear()
        else:
            nodes = list(self.world.replicas)
            self._cut.add((nodes[self._choose(len(nodes))], nodes[self._choose(len(nodes))]))

    def _resign(self) -> None:
        leader = self._pick(self.world.leaders)
        if leader is not None:
            leader.step(events.Resign())
