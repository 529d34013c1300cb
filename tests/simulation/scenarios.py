"""Whole runs: a scenario fixes the settings and the faults, a seed everything else.

Each scenario checks what docs/durability.md promises under its settings:

    processes   nodes are killed, stopped and booted, networks fail: acknowledged records stay with default settings
    power       power losses too: those stay that waited for an fsync (flush.messages=1); the topic `clicks` does not
                wait, and may lose the end of its log, but stores nothing twice
    disks       fsync fails now and then, which takes the node's directory offline until it is booted again
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from rookery.base.errors import ApiError
from rookery.base.types import TopicName, TopicPartition
from rookery.client.admin import NewTopic
from tests.simulation.checkers import History, Violation, check_exactly_once_in_order, check_stable_log
from tests.simulation.faults import DISK_FAULTS, NETWORK_FAULTS, POWER_FAULTS, PROCESS_FAULTS, Fault, Nemesis
from tests.simulation.users import ProducerUser, ReaderUser, choose_names, create_topics, read_everything
from tests.simulation.world import Machine, World

Result = TypeVar("Result")

_NEVER = str(2**63 - 1)
# A user may be in its longest wait when the last fault ends.
_QUIET_S_MAX = 90.0
_MAIN_S_MAX = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    faults: tuple[Fault, ...]
    settings: tuple[str, ...] = ()
    topics: tuple[NewTopic, ...]
    unsynced_topics: frozenset[TopicName] = frozenset()
    loses_power: bool = False
    faults_s: float = 45.0


_SMALL_SEGMENTS = {"segment.ms": "4000", "index.interval.bytes": "500"}
_ORDERS = NewTopic(name="orders", partitions=3, configs=_SMALL_SEGMENTS)
_CLICKS = NewTopic(name="clicks", partitions=2, configs=_SMALL_SEGMENTS | {"flush.messages": _NEVER})
_SYNCED = ("log.flush.interval.messages=1",)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="processes",
            faults=NETWORK_FAULTS + PROCESS_FAULTS,
            topics=(_ORDERS, _CLICKS),
            unsynced_topics=frozenset({"orders", "clicks"}),
        ),
        Scenario(
            name="power",
            faults=NETWORK_FAULTS + PROCESS_FAULTS + POWER_FAULTS,
            settings=_SYNCED,
            topics=(_ORDERS, _CLICKS),
            unsynced_topics=frozenset({"clicks"}),
            loses_power=True,
        ),
        Scenario(
            name="disks",
            faults=NETWORK_FAULTS + DISK_FAULTS,
            settings=_SYNCED,
            topics=(_ORDERS,),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    scenario: str
    violations: tuple[Violation, ...]
    digest: str
    step_count: int
    simulated_s: float
    acknowledged_count: int
    read_count: int
    lines: tuple[str, ...]


def scenario_for(seed: int) -> Scenario:
    return list(SCENARIOS.values())[seed % len(SCENARIOS)]


def simulate(seed: int, scenario: Scenario | None = None) -> Outcome:
    """One world from its beginning to its end."""
    chosen = scenario or scenario_for(seed)
    world = World(seed)
    run = _Run(world, chosen)
    world.run(run.main())
    return Outcome(
        seed=seed,
        scenario=chosen.name,
        violations=tuple(world.violations.found),
        digest=world.trace.digest,
        step_count=world.trace.step_count,
        simulated_s=world.loop.time(),
        acknowledged_count=run.history.acknowledged_count,
        read_count=run.history.read_count,
        lines=tuple(world.trace.lines),
    )


class _Run:
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario
        self._random = world.new_random()
        self.history = History(
            world.violations, unsynced_topics=scenario.unsynced_topics, loses_power=scenario.loses_power
        )
        self._machine: Machine = world.new_machine("broker", *scenario.settings)
        self._machine.on_power_loss = self.history.on_power_loss
        self._hosts: list[str] = []
        self._partitions = [
            TopicPartition(topic.name, index) for topic in scenario.topics for index in range(topic.partitions)
        ]

    async def main(self) -> None:
        world = self._world
        try:
            async with asyncio.timeout(_MAIN_S_MAX):
                await self._main()
        except TimeoutError:
            world.violations.add("progress", f"the run has not ended after {_MAIN_S_MAX:g} simulated seconds")

    async def _main(self) -> None:
        self._machine.boot()
        await self._start("operator", create_topics(self._machine.address, self._scenario.topics))
        producers = self._start_producers()
        self._start_readers()
        nemesis = Nemesis(self._world, self._machine, self._hosts)
        await nemesis.run(self._scenario.faults, duration_s=self._scenario.faults_s)
        nemesis.end()
        self._world.tell("faults have ended")
        _, late = await asyncio.wait(producers, timeout=_QUIET_S_MAX)
        if late:
            self._world.violations.add(
                "progress", f"{len(late)} producers still wait after {_QUIET_S_MAX:g} s of peace"
            )
        await self._audit()
        await self._machine.stop()

    def _start_producers(self) -> "list[asyncio.Task[None]]":
        tasks = []
        for name in choose_names(self._random, "producer", 3):
            user = ProducerUser(
                self._world, self.history, name=name, bootstrap=self._machine.address, partitions=self._partitions
            )
            pause_s = self._random.choice((0.05, 0.2, 0.5))
            tasks.append(self._start(name, user.run(round(1.5 * self._scenario.faults_s / pause_s), pause_s)))
        return tasks

    def _start_readers(self) -> None:
        for name in choose_names(self._random, "reader", 2):
            user = ReaderUser(
                self._world, self.history, name=name, bootstrap=self._machine.address, partitions=self._partitions
            )
            self._start(name, user.run())

    def _start(self, name: str, body: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Start a user on a host of its own."""
        self._hosts.append(name)
        return self._world.loop.spawn(self._world.new_process(name, name), body)

    async def _audit(self) -> None:
        try:
            async with asyncio.timeout(_QUIET_S_MAX):
                log = await self._start("auditor", read_everything(self._machine.address, self._partitions))
        except (TimeoutError, ApiError) as error:
            self._world.violations.add("progress", f"the log cannot be read at the end: {error!r}")
            return
        check_exactly_once_in_order(self.history, log)
        check_stable_log(self.history, log)
