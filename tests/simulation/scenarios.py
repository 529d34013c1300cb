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
from tests.simulation.checkers import (
    History,
    Violation,
    check_confirmed_topics,
    check_exactly_once_in_order,
    check_stable_log,
)
from tests.simulation.classic_members import ClassicMember
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.faults import DISK_FAULTS, NETWORK_FAULTS, POWER_FAULTS, PROCESS_FAULTS, Fault, Nemesis
from tests.simulation.groups import Group
from tests.simulation.members import SESSION_TIMEOUT_MS, Member
from tests.simulation.users import (
    OperatorUser,
    ProducerUser,
    ReaderUser,
    choose_names,
    create_topics,
    list_topics,
    read_everything,
)
from tests.simulation.world import Machine, World

Result = TypeVar("Result")

_NEVER = str(2**63 - 1)
FAULTS_S = 45.0
# A user may be in its longest wait when the last fault ends.
_QUIET_S_MAX = 90.0
_PEACE_S = 3.0
_MAIN_S_MAX = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    # What happens to the machine; the network has its own troubles in all scenarios.
    faults: tuple[Fault, ...]
    settings: tuple[str, ...] = ()
    topics: tuple[NewTopic, ...]
    unsynced_topics: frozenset[TopicName] = frozenset()
    loses_power: bool = False
    faults_s: float = FAULTS_S
    # How long it is quiet between faults at most: the seed chooses one.
    pauses_s: tuple[float, ...] = (2.0, 6.0, 15.0)


_SMALL_SEGMENTS = {"segment.ms": "4000", "index.interval.bytes": "500"}
_ORDERS = NewTopic(name="orders", partitions=3, configs=_SMALL_SEGMENTS)
_CLICKS = NewTopic(name="clicks", partitions=2, configs=_SMALL_SEGMENTS | {"flush.messages": _NEVER})
# Fewer partitions to load, and groups that form quickly.
_SETTINGS = (
    "offsets.topic.num.partitions=3",
    "group.initial.rebalance.delay.ms=300",
    f"group.consumer.min.session.timeout.ms={SESSION_TIMEOUT_MS}",
    f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
)
_SYNCED = ("log.flush.interval.messages=1",)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="processes",
            faults=PROCESS_FAULTS,
            topics=(_ORDERS, _CLICKS),
            unsynced_topics=frozenset({"orders", "clicks"}),
        ),
        Scenario(
            name="power",
            faults=PROCESS_FAULTS + 3 * POWER_FAULTS,
            settings=_SYNCED,
            topics=(_ORDERS, _CLICKS),
            unsynced_topics=frozenset({"clicks"}),
            loses_power=True,
        ),
        Scenario(
            name="disks",
            faults=DISK_FAULTS,
            settings=_SYNCED,
            topics=(_ORDERS,),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    scenario: str
    faults_s: float
    violations: tuple[Violation, ...]
    digest: str
    step_count: int
    simulated_s: float
    acknowledged_count: int
    read_count: int
    commit_count: int
    generation_count: int
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
        faults_s=chosen.faults_s,
        violations=tuple(world.violations.found),
        digest=world.trace.digest,
        step_count=world.trace.step_count,
        simulated_s=world.loop.time(),
        acknowledged_count=run.history.acknowledged_count,
        read_count=run.history.read_count,
        commit_count=sum(group.history.commit_count for group in run.groups),
        generation_count=sum(group.history.generation for group in run.groups),
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
        self._machine: Machine = world.new_machine("broker", *_SETTINGS, *scenario.settings)
        self._machine.on_power_loss = self.history.on_power_loss
        self._hosts: list[str] = []
        self._partitions = [
            TopicPartition(topic.name, index) for topic in scenario.topics for index in range(topic.partitions)
        ]
        self.groups = [self._new_group("billing", ClassicMember), self._new_group("shipping", ConsumerMember)]

    def _new_group(self, name: str, member_type: type[Member]) -> Group:
        return Group(
            self._world,
            self._world.violations,
            name=name,
            member_type=member_type,
            bootstrap=self._machine.address,
            partitions=self._partitions,
            hosts=self._hosts,
        )

    async def main(self) -> None:
        world = self._world
        try:
            async with asyncio.timeout(_MAIN_S_MAX):
                await self._main()
        except TimeoutError:
            world.violations.add("progress", f"the run has not ended after {_MAIN_S_MAX:g} simulated seconds")
        except ApiError as error:
            world.violations.add("progress", f"the topics cannot be made: {error}")

    async def _main(self) -> None:
        self._machine.boot()
        await self._start("operator", create_topics(self._machine.address, self._scenario.topics))
        producers = self._start_producers()
        self._start_readers()
        operator = OperatorUser(self._world, self.history, bootstrap=self._machine.address)
        self._start(operator.name, operator.run())
        nemesis = Nemesis(self._world, self._machine, self._hosts, self._scenario.pauses_s)
        await asyncio.gather(
            nemesis.run(self._scenario.faults, NETWORK_FAULTS, duration_s=self._scenario.faults_s),
            *(group.churn(self._scenario.faults_s) for group in self.groups),
        )
        nemesis.end()
        for group in self.groups:
            group.calm_down()
        self._world.tell("faults have ended")
        await asyncio.wait(producers.values(), timeout=_QUIET_S_MAX)
        for name in [name for name, task in producers.items() if not task.done()]:
            self._world.tell_waiting(name)
            self._world.violations.add("progress", f"{name} still waits after {_QUIET_S_MAX:g} s of peace")
        for group in self.groups:
            await group.check_convergence()
        await asyncio.sleep(_PEACE_S)
        await self._audit()
        await self._machine.stop()

    def _start_producers(self) -> "dict[str, asyncio.Task[None]]":
        tasks = {}
        for name in choose_names(self._random, "producer", 3):
            user = ProducerUser(
                self._world, self.history, name=name, bootstrap=self._machine.address, partitions=self._partitions
            )
            pause_s = self._random.choice((0.05, 0.2, 0.5))
            tasks[name] = self._start(name, user.run(round(1.5 * self._scenario.faults_s / pause_s), pause_s))
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
                for group in self.groups:
                    await self._start("auditor", group.check_offsets())
                topics = await self._start("auditor", list_topics(self._machine.address))
        except TimeoutError:
            self._world.violations.add("progress", f"the log was not read within {_QUIET_S_MAX:g} s of peace")
            return
        except ApiError as error:
            self._world.violations.add("exactly-once-in-order", f"the log cannot be read at the end: {error}")
            return
        check_exactly_once_in_order(self.history, log)
        check_stable_log(self.history, log)
        check_confirmed_topics(self.history, topics)
