"""Moves the partitions of a transaction at every step of it: the coordinator's, those with data, the group's.

A first run counts the appends of leaders. The following runs each move a partition right after one of them: the one
that was appended to, or the one of the transaction's coordinator. Whatever moves, the client's retries must end the
transaction as the client requested, with all of its records or none.
"""

import asyncio
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.runtime import abs_hash
from rookery.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.coordinators.cluster import Cluster, Fate
from tests.simulation.transfer import BEFORE, BOTH, SETTLED_S, TOPICS, TRANSACTIONAL_ID, Transfer
from tests.simulation.world import World
from tests.support.transactions import Ended, Protocol

CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
INTERNAL = {OFFSETS_TOPIC: 2, TRANSACTIONS_TOPIC: 2}
COORDINATOR = TopicPartition(TRANSACTIONS_TOPIC, abs_hash(TRANSACTIONAL_ID) % INTERNAL[TRANSACTIONS_TOPIC])


class Plan(NamedTuple):
    protocol: Protocol
    commit: bool
    fate: Fate
    # Whether the coordinator's partition moves, or the one that was appended to.
    moves_coordinator: bool
    # Whether the old leader learns late that it is deposed.
    is_late: bool
    # Whether the old leader is killed, instead of deposed.
    crashes: bool = False


class Stage:
    """One run in its own world, with a move at the given step, if any."""

    def __init__(self, plan: Plan, step: int | None, patch: pytest.MonkeyPatch) -> None:
        self._plan = plan
        self._step = step
        self._world = World(seed=1)
        self.cluster = Cluster(self._world, patch)
        self.transfer = Transfer(self._world, self.cluster.bootstrap, protocol=plan.protocol, commit=plan.commit)
        self.steps: list[TopicPartition] = []

    def play(self) -> None:
        self._world.run(self._main())
        assert not self._world.violations.found, (self._plan, self._step, self._world.violations.found)

    async def _main(self) -> None:
        spawn, cluster = self._world.loop.spawn, self.cluster
        await cluster.start({**{topic.name: topic.partitions for topic in TOPICS}, **INTERNAL}, CONFIG)
        await spawn(self._world.new_process("before", "before"), self.transfer.run_before())
        await asyncio.sleep(1)
        cluster.at_step(-1 if self._step is None else self._step, self._move)
        await spawn(self._world.new_process("client", "client"), self.transfer.run())
        await asyncio.sleep(SETTLED_S)
        self.steps = list(cluster.steps)
        await spawn(self._world.new_process("auditor", "auditor"), self.transfer.look())

    def _move(self, appended: TopicPartition) -> None:
        plan = self._plan
        partition = COORDINATOR if plan.moves_coordinator else appended
        self._world.note(f"move {partition} after an append to {appended}")
        if plan.crashes:
            self.cluster.crash(partition, plan.fate)
        else:
            self.cluster.move(partition, plan.fate, is_late=plan.is_late)


def play(plan: Plan, step: int | None) -> Stage:
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage(plan, step, patch)
        stage.play()
    return stage


def check(stage: Stage, where: str) -> None:
    stage.transfer.check_whole(where, client_survived=True)
    # A marker that is sent again, by the same coordinator or by the next one, must not be refused (KAFKA-19999).
    # Markers of a deposed one may be: TRANSACTION_COORDINATOR_FENCED.
    assert ErrorCode.INVALID_PRODUCER_EPOCH not in stage.cluster.refused_markers, where


def move_everywhere(plan: Plan, *, step: int = 1, first: int = 0) -> int:
    """Run the plan with a move at each step; returns the number of steps."""
    steps = undisturbed_steps(plan.protocol, plan.commit)
    for number in range(first, len(steps), step):
        check(play(plan, number), f"{plan} at {number}: {steps[number]}")
    return len(steps)


@cache
def undisturbed_steps(protocol: Protocol, commit: bool) -> list[TopicPartition]:
    whole = play(Plan(protocol, commit, Fate.KEPT, moves_coordinator=False, is_late=False), None)
    assert whole.transfer.seen.ended is Ended.DONE
    assert whole.transfer.seen.values == (BOTH if commit else BEFORE)
    return whole.steps


PLANS = [Plan(*each) for each in product(Protocol, [True, False], Fate, [True, False], [True, False])]


CRASHES = [Plan(*each, False, True) for each in product(Protocol, [True, False], Fate, [True, False])]


@pytest.mark.parametrize("plan", PLANS)
def test_a_move_never_leaves_half_a_transaction(plan: Plan) -> None:
    """Each plan tests every eighth step; together they cover all."""
    steps = move_everywhere(plan, step=8, first=PLANS.index(plan) % 8)
    # The epoch, partitions and offsets added, four batches, offsets, the decision, five markers, the completion.
    assert steps >= 14


@pytest.mark.parametrize("plan", CRASHES)
def test_a_crash_of_one_broker_never_leaves_half_a_transaction(plan: Plan) -> None:
    move_everywhere(plan, step=8, first=CRASHES.index(plan) % 8)


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS + CRASHES)
def test_a_move_at_any_step(plan: Plan) -> None:
    move_everywhere(plan)
