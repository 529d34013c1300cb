"""Where the nodes of a run are: on one machine, or on those of a cluster (`cluster_site`), with the faults there."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from tests.simulation.faults import NETWORK_FAULTS, Fault, Nemesis
from tests.simulation.world import Machine, World


class Site(Protocol):
    """The nodes that the users of a run work with."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def boots(self) -> int:
        """How often nodes were booted."""
        ...

    async def boot(self) -> None:
        """Boot all nodes, and wait until topics can be created."""

    def on_power_loss(self, listener: Callable[[], None]) -> None:
        """Set the function that is called after each power loss."""

    def inject_faults(self, duration_s: float) -> Coroutine[Any, Any, None]:
        """Return the coroutine that injects faults for a while."""

    async def end_faults(self) -> None:
        """End all faults, and check that the nodes become available again."""

    async def stop(self) -> None:
        """Stop all nodes cleanly."""


class LoneMachine:
    """A cluster of one node."""

    def __init__(
        self,
        world: World,
        hosts: Sequence[str],
        *,
        faults: Sequence[Fault],
        settings: Sequence[str],
        pauses_s: Sequence[float],
    ) -> None:
        self._world = world
        self._hosts = hosts
        self._faults = faults
        self._pauses_s = pauses_s
        self._machine: Machine = world.new_machine("broker", *settings)

    @property
    def bootstrap(self) -> str:
        return self._machine.address

    @property
    def boots(self) -> int:
        return self._machine.boots

    async def boot(self) -> None:
        self._machine.boot()

    def on_power_loss(self, listener: Callable[[], None]) -> None:
        self._machine.on_power_loss = listener

    def inject_faults(self, duration_s: float) -> Coroutine[Any, Any, None]:
        self._nemesis = Nemesis(self._world, self._machine, self._hosts, self._pauses_s)
        return self._nemesis.run(self._faults, NETWORK_FAULTS, duration_s=duration_s)

    async def end_faults(self) -> None:
        self._nemesis.end()

    async def stop(self) -> None:
        await self._machine.stop()
