"""Enumerates every crash point of a transaction, from the first added partition to the last record of its end.

A simulated node runs one transaction over four partitions of two topics and a group's offsets. A first run counts the
changes of the disk. The following runs each stop in the middle of the next change: in the coordinator's records, the
data, the pending offsets, each of the markers. The node is booted again, and

- either the client retries, as clients do: then the transaction must end as the client requested,
- or the client died too: then all of the transaction must be visible or none, and no transaction may hang.
"""

import asyncio
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import pytest

from rookery.base.types import Offset, TopicPartition
from rookery.client.admin import Admin, NewTopic
from rookery.coordinators.txn.shard import TransactionShard
from tests.faults.files import Survival
from tests.simulation.bank_run import offsets_at_end
from tests.simulation.users import create_topics, new_consumer, read_up_to
from tests.simulation.world import Machine, World
from tests.support.transactions import AbortableError, Ended, Protocol, TransactionalProducer, TransactionCluster

GROUP = "readers"
TOPICS = (NewTopic(name="debits", partitions=2), NewTopic(name="credits", partitions=2))
PARTITIONS = [TopicPartition(topic.name, index) for topic in TOPICS for index in range(topic.partitions)]
SOURCE = TopicPartition("debits", 0)
TIMEOUT_MS = 8_000
SETTINGS = (
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)
SYNCED = (*SETTINGS, "log.flush.interval.messages=1")
_REBOOT_S = 0.5
_REQUEST_TIMEOUT_S = 2.0


class Plan(NamedTuple):
    protocol: Protocol
    commit: bool
    # Whether the client dies with the node.
    client_dies: bool
    survival: Survival = Survival.EVERYTHING
    settings: tuple[str, ...] = SETTINGS


@dataclass
class Seen:
    """The number of crash points of a run, the end of the transaction as the client saw it, and the final state."""

    mutations: int = 0
    ended: Ended | None = None
    was_aborted_on_error: bool = False
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    committed: Offset = -1
    states: list[str] = field(default_factory=list)
    unstable: list[TopicPartition] = field(default_factory=list)


class Stage:
    """One run in its own world, stopped at the given change of the disk, if any."""

    def __init__(self, plan: Plan, crash_at: int | None) -> None:
        self._plan = plan
        self._crash_at = crash_at
        self._world = World(seed=1)
        self._machine: Machine = self._world.new_machine("broker", *plan.settings)
        self._machine.survival = plan.survival
        self._seen = Seen()

    def play(self) -> Seen:
        self._world.run(self._main())
        assert not self._world.violations.found, (self._plan, self._crash_at, self._world.violations.found)
        return self._seen

    async def _main(self) -> None:
        machine, spawn, crashed = self._machine, self._world.loop.spawn, asyncio.Event()
        machine.on_power_loss = crashed.set
        machine.boot()
        await spawn(self._world.new_process("operator", "operator"), create_topics(machine.address, TOPICS))
        await spawn(self._world.new_process("before", "before"), self._transfer(b"before", 1, commit=True))
        before, self._seen = machine.disk.mutation_count, Seen()
        if self._crash_at is not None:
            machine.disk.stop_after(self._crash_at)
        process = self._world.new_process("client", "client")
        client = spawn(process, self._transfer(b"new", 2, commit=self._plan.commit))
        if self._crash_at is None:
            await client
            self._seen.mutations = machine.disk.mutation_count - before
        else:
            await crashed.wait()
            if self._plan.client_dies:
                process.kill()
            await asyncio.sleep(_REBOOT_S)
            machine.boot()
            await asyncio.sleep(TIMEOUT_MS / 1000 + 5)
        await spawn(self._world.new_process("auditor", "auditor"), self._look())
        await machine.stop()

    def _cluster(self, client_id: str) -> TransactionCluster:
        return TransactionCluster.at(self._machine.address, client_id=client_id, timeout_s=_REQUEST_TIMEOUT_S)

    async def _transfer(self, value: bytes, offset: Offset, *, commit: bool) -> None:
        cluster = self._cluster("client")
        producer = TransactionalProducer(
            cluster, "transfers", protocol=self._plan.protocol, clock=self._world.clock, timeout_ms=TIMEOUT_MS
        )
        await producer.init()
        try:
            await producer.produce({partition: [value, value] for partition in PARTITIONS})
            await producer.send_offsets(GROUP, {SOURCE: offset})
            self._seen.ended = await producer.end(commit=commit)
        except AbortableError:
            self._seen.was_aborted_on_error = True
            self._seen.ended = await producer.end(commit=False)
        await cluster.close()

    async def _look(self) -> None:
        """Read the final state after all open transactions have timed out."""
        cluster, seen = self._cluster("auditor"), self._seen
        ends = await offsets_at_end(cluster, PARTITIONS, read_committed=False)
        stable = await offsets_at_end(cluster, PARTITIONS, read_committed=True)
        seen.unstable = [partition for partition in PARTITIONS if ends[partition] != stable[partition]]
        settings = {"isolation.level": "read_committed"}
        async with new_consumer(
            self._world, name="auditor", bootstrap=self._machine.address, settings=settings
        ) as consumer:
            for record in await read_up_to(consumer, stable):
                seen.values.setdefault(record.partition, []).append(record.value)
        seen.committed = (await Admin.over(cluster).committed_offsets(GROUP))[SOURCE].offset
        seen.states = [each.state for each in await Admin.over(cluster).list_transactions()]
        await cluster.close()


BEFORE = dict.fromkeys(PARTITIONS, [b"before"] * 2)
BOTH = dict.fromkeys(PARTITIONS, [b"before"] * 2 + [b"new"] * 2)


def check(plan: Plan, crash_at: int, seen: Seen) -> None:
    where = f"{plan} at {crash_at}: {seen}"
    assert seen.unstable == [], where
    assert seen.states[0] in ("CompleteCommit", "CompleteAbort", "Empty"), where
    # All or nothing, and the offsets with the records.
    assert (seen.values, seen.committed) in ((BEFORE, 1), (BOTH, 2)), where
    is_visible = seen.committed == 2
    if not plan.commit or seen.was_aborted_on_error:
        assert not is_visible, where
    elif seen.ended is Ended.DONE:
        assert is_visible, where
    if not plan.client_dies:
        # No other client has the transactional id, and the node came back in time.
        assert seen.ended is Ended.DONE, where


def crash_everywhere(plan: Plan, *, step: int = 1, first: int = 0) -> int:
    """Run the plan with a crash at each point; returns the number of crash points."""
    whole = Stage(plan, None).play()
    assert whole.ended is Ended.DONE
    assert whole.values == (BOTH if plan.commit else BEFORE)
    for crash_at in range(first, whole.mutations, step):
        check(plan, crash_at, Stage(plan, crash_at).play())
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
