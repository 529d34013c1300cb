"""Enumerates every crash point of a transaction, from the first added partition to the last record of its end.

A simulated node runs one transaction over four partitions of two topics and a group's offsets. A first run counts the
changes of the disk. The following runs each stop in the middle of the next change: in the coordinator's records, the
data, the pending offsets, each of the markers. The node is booted again, and

- either the client retries, as clients do: then the transaction must end as the client requested,
- or the client died too: then all of the transaction must be visible or none, and no transaction may hang.
"""

import asyncio
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest

from rookery.coordinators.txn.shard import TransactionShard
from tests.faults.files import Survival
from tests.simulation.transfer import BEFORE, BOTH, SETTLED_S, TOPICS, Transfer
from tests.simulation.users import create_topics
from tests.simulation.world import Machine, World
from tests.support.transactions import Ended, Protocol

SETTINGS = (
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)
SYNCED = (*SETTINGS, "log.flush.interval.messages=1")
_REBOOT_S = 0.5


class Plan(NamedTuple):
    protocol: Protocol
    commit: bool
    # Whether the client dies with the node.
    client_dies: bool
    survival: Survival = Survival.EVERYTHING
    settings: tuple[str, ...] = SETTINGS


class Stage:
    """One run in its own world, stopped at the given change of the disk, if any."""

    def __init__(self, plan: Plan, crash_at: int | None) -> None:
        self._plan = plan
        self._crash_at = crash_at
        self._world = World(seed=1)
        self._machine: Machine = self._world.new_machine("broker", *plan.settings)
        self._machine.survival = plan.survival
        self.transfer = Transfer(self._world, self._machine.address, protocol=plan.protocol, commit=plan.commit)
        # The number of crash points.
        self.mutations = 0

    def play(self) -> None:
        self._world.run(self._main())
        assert not self._world.violations.found, (self._plan, self._crash_at, self._world.violations.found)

    async def _main(self) -> None:
        machine, spawn, crashed = self._machine, self._world.loop.spawn, asyncio.Event()
        machine.on_power_loss = crashed.set
        machine.boot()
        await spawn(self._world.new_process("operator", "operator"), create_topics(machine.address, TOPICS))
        await spawn(self._world.new_process("before", "before"), self.transfer.run_before())
        before = machine.disk.mutation_count
        if self._crash_at is not None:
            machine.disk.stop_after(self._crash_at)
        process = self._world.new_process("client", "client")
        client = spawn(process, self.transfer.run())
        if self._crash_at is None:
            await client
            self.mutations = machine.disk.mutation_count - before
        else:
            await crashed.wait()
            if self._plan.client_dies:
                process.kill()
            await asyncio.sleep(_REBOOT_S)
            machine.boot()
            await asyncio.sleep(SETTLED_S)
        await spawn(self._world.new_process("auditor", "auditor"), self.transfer.look())
        await machine.stop()


def crash_everywhere(plan: Plan, *, step: int = 1, first: int = 0) -> int:
    """Run the plan with a crash at each point; returns the number of crash points."""
    whole = Stage(plan, None)
    whole.play()
    assert whole.transfer.seen.ended is Ended.DONE
    assert whole.transfer.seen.values == (BOTH if plan.commit else BEFORE)
    for crash_at in range(first, whole.mutations, step):
        stage = Stage(plan, crash_at)
        stage.play()
        stage.transfer.check_whole(f"{plan} at {crash_at}", client_survived=not plan.client_dies)
    return whole.mutations


KILLS = list(product(Protocol, [True, False], [True, False]))


@pytest.mark.parametrize(("protocol", "commit", "client_dies"), KILLS)
def test_a_killed_node_never_leaves_half_a_transaction(protocol: Protocol, commit: bool, client_dies: bool) -> None:
    """All writes survive, up to the one that was cut.

    Every second point is tested: the even ones with a client that dies, the odd ones with a client that survives.
    """
    points = crash_everywhere(Plan(protocol, commit, client_dies), step=2, first=int(not client_dies))
    # Partitions and offsets added, four batches, offsets, the decision, five markers, the completion.
    assert points >= 13


@pytest.mark.long
@pytest.mark.parametrize(("protocol", "commit", "client_dies"), KILLS)
def test_a_kill_at_any_point(protocol: Protocol, commit: bool, client_dies: bool) -> None:
    crash_everywhere(Plan(protocol, commit, client_dies))


def lose_power_everywhere(survival: Survival, *, commit: bool, step: int = 1, first: int = 0) -> None:
    """Lose power at each point, with an fsync before every response."""
    plan = Plan(Protocol.V2, commit, client_dies=False, survival=survival, settings=SYNCED)
    crash_everywhere(plan, step=step, first=first)


POWER_LOSSES = list(product(Survival, [True, False]))


@pytest.mark.parametrize(("survival", "commit"), POWER_LOSSES)
def test_a_power_loss_never_leaves_half_a_transaction(survival: Survival, commit: bool) -> None:
    """Every third point is tested; together the survivals cover all points."""
    lose_power_everywhere(survival, commit=commit, step=3, first=list(Survival).index(survival) % 3)


@pytest.mark.long
@pytest.mark.parametrize(("survival", "commit"), POWER_LOSSES)
def test_a_power_loss_at_any_point(survival: Survival, commit: bool) -> None:
    lose_power_everywhere(survival, commit=commit)


def test_markers_that_are_not_delivered_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The enumeration finds a bug: a coordinator that forgets its prepared transactions does not pass."""
    on_loaded = TransactionShard.on_loaded
    monkeypatch.setattr(
        TransactionShard, "on_loaded", lambda shard, now_ms: replace(on_loaded(shard, now_ms), effects=())
    )
    with pytest.raises(AssertionError, match="Prepare"):
        crash_everywhere(Plan(Protocol.V2, commit=True, client_dies=True))
