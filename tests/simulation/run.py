"""One run of a scenario in its own world: the part that all scenarios share.

The nodes of a site are booted and users work while faults happen. Then the faults end, and the final state is checked.
The users and the checks depend on the kind of run, see `log_run` and `bank_run`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from rookery.base.errors import ApiError
from rookery.base.types import TopicName, TopicPartition
from rookery.client.admin import NewTopic
from tests.simulation.cluster_site import ClusterPlan, ClusterSite
from tests.simulation.faults import Fault
from tests.simulation.site import LoneMachine, Site
from tests.simulation.users import create_topics
from tests.simulation.world import World

Result = TypeVar("Result")

FAULTS_S = 45.0
# A user may have just begun its longest wait when the last fault ends.
QUIET_S_MAX = 90.0
_MAIN_S_MAX = 3600.0


class Counts(NamedTuple):
    """Counts of the work in a run, to see that there was some."""

    acknowledged: int
    read: int
    commits: int
    generations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    run: "type[Run]"
    # The faults of a lone machine; faults of the network happen in all scenarios.
    faults: tuple[Fault, ...] = ()
    # The nodes and faults of a cluster; None if there is a lone machine.
    cluster: ClusterPlan | None = None
    settings: tuple[str, ...] = ()
    topics: tuple[NewTopic, ...]
    unsynced_topics: frozenset[TopicName] = frozenset()
    loses_power: bool = False
    faults_s: float = FAULTS_S
    # The longest pauses between faults; the seed chooses one of them.
    pauses_s: tuple[float, ...] = (2.0, 6.0, 15.0)


class Run(ABC):
    def __init__(self, world: World, scenario: Scenario) -> None:
        self._world = world
        self._scenario = scenario
        self._random = world.new_random()
        self._hosts: list[str] = []
        self._site: Site = self._new_site()
        self._partitions = [
            TopicPartition(topic.name, index) for topic in scenario.topics for index in range(topic.partitions)
        ]

    def _new_site(self) -> Site:
        settings, pauses_s = self._scenario.settings, self._scenario.pauses_s
        if self._scenario.cluster is not None:
            return ClusterSite(self._world, self._hosts, self._scenario.cluster, settings=settings, pauses_s=pauses_s)
        faults = self._scenario.faults
        return LoneMachine(self._world, self._hosts, faults=faults, settings=settings, pauses_s=pauses_s)

    @property
    @abstractmethod
    def counts(self) -> Counts: ...

    async def _prepare(self) -> None:
        """Set up the cluster, in addition to its topics, before there are users and faults."""
        return

    @abstractmethod
    def _start_users(self) -> None:
        """Start the users that work in the background."""

    @abstractmethod
    def _churn(self, duration_s: float) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines that run while faults happen, and end with them."""

    @abstractmethod
    async def _settle(self) -> None:
        """Let all users finish after the faults have ended."""

    @abstractmethod
    async def _audit(self) -> None:
        """Read the final state and check it."""

    async def main(self) -> None:
        try:
            async with asyncio.timeout(_MAIN_S_MAX):
                await self._main()
        except TimeoutError:
            self._violate("progress", f"the run has not ended after {_MAIN_S_MAX:g} simulated seconds")
        except ApiError as error:
            self._violate("progress", f"the topics cannot be created: {error}")

    async def _main(self) -> None:
        duration_s = self._scenario.faults_s
        await self._site.boot()
        await self._start("operator", create_topics(self._site.bootstrap, self._scenario.topics))
        await self._prepare()
        self._start_users()
        await asyncio.gather(self._site.inject_faults(duration_s), *self._churn(duration_s))
        await self._site.end_faults()
        self._world.note("faults have ended")
        await self._settle()
        await self._try_to_audit()
        await self._site.stop()

    async def _try_to_audit(self) -> None:
        try:
            async with asyncio.timeout(QUIET_S_MAX):
                await self._audit()
        except TimeoutError:
            self._violate("progress", f"the log was not read within {QUIET_S_MAX:g} s without faults")
        except ApiError as error:
            self._violate("progress", f"the log cannot be read at the end: {error}")

    def _start(self, name: str, body: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Start a user on its own host."""
        self._hosts.append(name)
        return self._world.loop.spawn(self._world.new_process(name, name), body)

    async def _await_users(self, tasks: "dict[str, asyncio.Task[None]]") -> None:
        """Wait for users to finish, at most for the longest wait of a user."""
        await asyncio.wait(tasks.values(), timeout=QUIET_S_MAX)
        for name in [name for name, task in tasks.items() if not task.done()]:
            self._world.note_waiting_tasks(name)
            self._violate("progress", f"{name} still waits after {QUIET_S_MAX:g} s without faults")

    def _violate(self, checker: str, message: str) -> None:
        self._world.violations.add(checker, message)
