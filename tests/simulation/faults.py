"""The faults of a simulated world: a seeded sequence; each fault ends by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from tests.simulation.network import Latency
from tests.simulation.world import Machine, World

Fault = Callable[["Nemesis"], Awaitable[None]]

_HOUR_MS = 3_600_000


class Nemesis:
    """Injects faults into one machine and, concurrently, into the links of its users."""

    def __init__(self, world: World, machine: Machine, hosts: Sequence[str], pauses_s: Sequence[float]) -> None:
        self.world = world
        self.machine = machine
        self.hosts = hosts
        self.random: Random = world.new_random()
        # The pauses differ between worlds: long operations complete only in worlds with long pauses.
        self._pause_s_max = self.random.choice(pauses_s)

    async def run(self, *lanes: Sequence[Fault], duration_s: float) -> None:
        """Inject faults for a while. The faults of one lane happen one after the other; lanes run concurrently."""
        end_s = self.world.loop.time() + duration_s
        await asyncio.gather(*(self._run_lane(faults, end_s) for faults in lanes))

    async def _run_lane(self, faults: Sequence[Fault], end_s: float) -> None:
        while self.world.loop.time() < end_s:
            await asyncio.sleep(self.random.uniform(0.05, self._pause_s_max))
            fault = self.random.choice(faults)
            self.world.note(f"fault: {fault.__name__}")
            await fault(self)

    def end(self) -> None:
        """End all faults that last."""
        self.world.network.heal()
        self.world.network.latency = Latency()
        self.machine.disk.sync_failure_chance = 0.0

    async def pause(self, longest_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0.01, longest_s))

    async def boot(self, longest_s: float) -> None:
        """Boot the machine after a pause, unless it is up."""
        await self.pause(longest_s)
        if not self.machine.is_up:
            self.machine.boot()

    async def slow_disk(self) -> None:
        """Make work on the disk slow for a while."""
        usual_s, self.machine.disk.delay_s_max = self.machine.disk.delay_s_max, self.random.uniform(0.1, 1.0)
        await self.pause(4)
        self.machine.disk.delay_s_max = usual_s


async def kill(nemesis: Nemesis) -> None:
    nemesis.machine.kill()
    await nemesis.boot(4)


async def kill_after_a_write(nemesis: Nemesis) -> None:
    """Kill the process after a write, while responses are in flight."""
    nemesis.machine.disk.after_mutations(nemesis.random.randrange(1, 40), nemesis.machine.kill)
    await nemesis.pause(5)
    nemesis.machine.kill()
    await nemesis.boot(4)


async def kill_before_responses(nemesis: Nemesis) -> None:
    """Kill the process right after users' records were written, on a slow network: the acknowledgements are lost."""
    nemesis.world.network.latency = Latency(0.05, nemesis.random.uniform(0.1, 1.0))
    kill_with_responses_lost = partial(nemesis.machine.kill, responses_arrive=False)
    nemesis.machine.disk.after_mutations(nemesis.random.randrange(1, 5), kill_with_responses_lost, _is_users_log)
    await nemesis.pause(5)
    nemesis.machine.kill()
    nemesis.world.network.latency = Latency()
    await nemesis.boot(2)


def _is_users_log(path: Path) -> bool:
    return path.suffix == ".log" and not path.parent.name.startswith("__")


async def kill_while_starting(nemesis: Nemesis) -> None:
    nemesis.machine.kill()
    nemesis.machine.boot()
    await asyncio.sleep(nemesis.random.uniform(0, 0.02))
    nemesis.machine.kill()
    await nemesis.boot(1)


async def restart(nemesis: Nemesis) -> None:
    await nemesis.machine.stop()
    await nemesis.boot(2)


async def lose_power(nemesis: Nemesis) -> None:
    await nemesis.slow_disk()
    nemesis.machine.lose_power()
    await nemesis.boot(4)


async def lose_power_in_a_write(nemesis: Nemesis) -> None:
    nemesis.machine.disk.stop_after(nemesis.random.randrange(40))
    await nemesis.pause(5)
    nemesis.machine.lose_power()
    await nemesis.boot(4)


async def lose_power_after_kill(nemesis: Nemesis) -> None:
    """Kill the process, let the next one serve its unsynced writes, and then lose power."""
    await nemesis.slow_disk()
    nemesis.machine.kill()
    nemesis.machine.boot()
    await nemesis.pause(1.5)
    nemesis.machine.lose_power()
    await nemesis.boot(4)


async def reset_connections(nemesis: Nemesis) -> None:
    nemesis.world.network.reset_some(nemesis.random.choice((0.2, 1.0)))


async def cut_links(nemesis: Nemesis) -> None:
    count = nemesis.random.randint(1, len(nemesis.hosts))
    for host in nemesis.random.sample(nemesis.hosts, count):
        nemesis.world.network.cut(host, nemesis.machine.name)
    await nemesis.pause(15)
    nemesis.world.network.heal()


async def slow_network(nemesis: Nemesis) -> None:
    nemesis.world.network.latency = Latency(0.05, nemesis.random.uniform(0.1, 1.5))
    await nemesis.pause(5)
    nemesis.world.network.latency = Latency()


async def slow_disk(nemesis: Nemesis) -> None:
    await nemesis.slow_disk()


async def fail_syncs(nemesis: Nemesis) -> None:
    """Let syncs fail. A disk error takes the directory offline permanently, so that the machine is restarted."""
    nemesis.machine.disk.sync_failure_chance = 0.2
    nemesis.machine.may_fail_to_start = True
    await nemesis.pause(3)
    nemesis.machine.disk.sync_failure_chance = 0.0
    nemesis.machine.kill()
    nemesis.machine.may_fail_to_start = False
    await nemesis.boot(1)


async def jump_clock(nemesis: Nemesis) -> None:
    nemesis.world.clock.jumped_ms += nemesis.random.choice((1_000, 60_000, _HOUR_MS))


NETWORK_FAULTS: tuple[Fault, ...] = (reset_connections, cut_links, slow_network)
PROCESS_FAULTS: tuple[Fault, ...] = (
    kill,
    kill_after_a_write,
    kill_while_starting,
    restart,
    slow_disk,
    jump_clock,
)
TRANSACTION_FAULTS: tuple[Fault, ...] = (*PROCESS_FAULTS, kill_before_responses)
POWER_FAULTS: tuple[Fault, ...] = (lose_power, lose_power_in_a_write, lose_power_after_kill)
DISK_FAULTS: tuple[Fault, ...] = (fail_syncs, slow_disk)
