"""One run of a scenario in a world of its own: what all scenarios have in common.

A machine is booted, users work while faults happen, then it is peaceful, and what is there at the end is looked at.
What the users do and what is checked is up to the kinds of runs, see `log_run` and `bank_run`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from rookery.base.errors import ApiError
from rookery.base.types import TopicName, TopicPartition
from rookery.client.admin import NewTopic
from tests.simulation.faults import NETWORK_FAULTS, Fault, Nemesis
from tests.simulation.users import create_topics
from tests.simulation.world import Machine, World

Result = TypeVar("Result")

FAULTS_S = 45.0
# A user may be in its longest wait when the last fault ends.
QUIET_S_MAX = 90.0
_MAIN_S_MAX = 3600.0


class Counts(NamedTuple):
    """What was done in a run, to see that something was."""

    acknowledged: int
    read: int
    commits: int
    generations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    run: "type[Run]"
    # What happens to the machine; the network has its own troubles in all scenarios.
    faults: tuple[Fault, ...]
    settings: tuple[str, ...] = ()
    topics: tuple[NewTopic, ...]
    unsynced_topics: frozenset[TopicName] = frozenset()
    loses_power: bool = False
    faults_s: float = FAULTS_S
    # How long it is quiet between faults at most: the seed chooses one.
    pauses_s: tuple[float, ...] = (2.0, 6.0, 15.0)


class Run(ABC):
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario
        self._random = world.new_random()
        self._machine: Machine = world.new_machine("broker", *scenario.settings)
        self._hosts: list[str] = []
        self._partitions = [
            TopicPartition(topic.name, index) for topic in scenario.topics for index in range(topic.partitions)
        ]

    @property
    @abstractmethod
    def counts(self) -> Counts: ...

    async def _prepare(self) -> None:
        """Whatever the cluster needs besides its topics, before there are users and faults."""
        return

    @abstractmethod
    def _start_users(self) -> None:
        """Those who work in the background."""

    @abstractmethod
    def _churn(self, duration_s: float) -> list[Coroutine[Any, Any, None]]:
        """What goes on while faults happen, and ends when they do."""

    @abstractmethod
    async def _settle(self) -> None:
        """The faults have ended: see to it that everyone comes to an end."""

    @abstractmethod
    async def _audit(self) -> None:
        """Look at what is there, and check it."""

    async def main(self) -> None:
        try:
            async with asyncio.timeout(_MAIN_S_MAX):
                await self._main()
        except TimeoutError:
            self._violate("progress", f"the run has not ended after {_MAIN_S_MAX:g} simulated seconds")
        except ApiError as error:
            self._violate("progress", f"the topics cannot be made: {error}")

    async def _main(self) -> None:
        duration_s = self._scenario.faults_s
        self._machine.boot()
        await self._start("operator", create_topics(self._machine.address, self._scenario.topics))
        await self._prepare()
        self._start_users()
        nemesis = Nemesis(self._world, self._machine, self._hosts, self._scenario.pauses_s)
        await asyncio.gather(
            nemesis.run(self._scenario.faults, NETWORK_FAULTS, duration_s=duration_s), *self._churn(duration_s)
        )
        nemesis.end()
        self._world.tell("faults have ended")
        await self._settle()
        await self._try_to_audit()
        await self._machine.stop()

    async def _try_to_audit(self) -> None:
        try:
            async with asyncio.timeout(QUIET_S_MAX):
                await self._audit()
        except TimeoutError:
            self._violate("progress", f"the log was not read within {QUIET_S_MAX:g} s of peace")
        except ApiError as error:
            self._violate("progress", f"the log cannot be read at the end: {error}")

    def _start(self, name: str, body: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Start a user on a host of its own."""
        self._hosts.append(name)
        return self._world.loop.spawn(self._world.new_process(name, name), body)

    async def _await_users(self, tasks: "dict[str, asyncio.Task[None]]") -> None:
        """They have the longest wait of a user to finish."""
        await asyncio.wait(tasks.values(), timeout=QUIET_S_MAX)
        for name in [name for name, task in tasks.items() if not task.done()]:
            self._world.tell_waiting(name)
            self._violate("progress", f"{name} still waits after {QUIET_S_MAX:g} s of peace")

    def _violate(self, checker: str, message: str) -> None:
        self._world.violations.add(checker, message)
