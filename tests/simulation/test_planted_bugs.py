"""Mutations: bugs that the simulator must catch, each by the checker whose business it is, within a few seeds.

A checker that never fails proves nothing. Each test breaks one function of the node and runs worlds until the named
checker complains; the same worlds without the bug are clean (`test_simulation` and `make sim`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import Buffer
from rookery.coordinators.decision import Timer
from rookery.coordinators.group.classic import rebalance
from rookery.coordinators.group.classic.turn import Turn
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.offsets import commit
from rookery.coordinators.group.timers import SessionTimer
from rookery.coordinators.runtime import Coordinator
from rookery.coordinators.timers import Timers
from rookery.quorum import driver
from rookery.records.batch import BatchHeader
from rookery.replication.replica import Replica
from rookery.storage import recovery
from rookery.storage.flush import FlushJob
from rookery.storage.log import Log
from rookery.storage.producers import Duplicate, ProducerStates
from rookery.storage.segment import Segment
from tests.faults.files import CrashFile
from tests.simulation.faults import Fault, lose_power, lose_power_in_a_write
from tests.simulation.scenarios import SCENARIOS, simulate

_SEEDS_MAX = 25
_FAULTS_S = 20.0
_PAUSES_S = (2.0, 6.0)

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    """`faults` are those that bring the bug to light, where all of the scenario's would take long."""

    name: str
    plant: Plant
    scenario: str
    checker: str
    faults: tuple[Fault, ...] = ()


def skip_fsync(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge under flush.messages=1 without waiting for the disk."""
    original = FlushJob.run

    def run(self: FlushJob) -> None:
        if not self._directory.name.startswith("orders"):
            original(self)

    patch.setattr(FlushJob, "run", run)


def show_unsynced_records(patch: pytest.MonkeyPatch) -> None:
    """Move the high watermark when records are written, though they wait for their fsync."""
    original = Replica._appended

    def appended(self: Replica) -> None:
        original(self)
        if self.state.local_end_moved(self.log.end_offset):
            self._changed(self)

    patch.setattr(Replica, "_appended", appended)


def skip_duplicate_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda self, header: None)


def forget_producers_at_start(patch: pytest.MonkeyPatch) -> None:
    """Neither snapshots nor batches bring the producers' sequence numbers back."""
    original = recovery.load

    def load(*args: Any, **kwargs: Any) -> recovery.LoadedLog:
        loaded = original(*args, **kwargs)
        loaded.producers = ProducerStates()
        return loaded

    patch.setattr(recovery, "load", load)
    patch.setattr(recovery, "load_producers", lambda files, directory, view: ProducerStates())


def tell_wrong_offset_for_duplicates(patch: pytest.MonkeyPatch) -> None:
    original = ProducerStates.check

    def check(self: ProducerStates, header: BatchHeader) -> Duplicate | ErrorCode | None:
        known = original(self, header)
        return known._replace(base_offset=known.base_offset + 1) if isinstance(known, Duplicate) else known

    patch.setattr(ProducerStates, "check", check)


def keep_torn_end(patch: pytest.MonkeyPatch) -> None:
    """Recovery finds the first bad batch but leaves it in the file."""
    patch.setattr(Segment, "cut", lambda self, position: None)


def skip_fsync_of_metadata(patch: pytest.MonkeyPatch) -> None:
    async def flush(log: Log, executor: object) -> None:
        """Says that it did."""

    patch.setattr(driver, "flush_in_executor", flush)


def write_late(patch: pytest.MonkeyPatch) -> None:
    """Keep each batch in memory until the next one comes, and acknowledge it meanwhile."""
    original = CrashFile.append
    held: dict[CrashFile, bytes] = {}

    def append(self: CrashFile, data: Buffer) -> None:
        if self.path.suffix == ".log" and "orders" in str(self.path):
            data, held[self] = held.get(self, b""), bytes(data)
        original(self, data)

    patch.setattr(CrashFile, "append", append)


def keep_generation(patch: pytest.MonkeyPatch) -> None:
    """A rebalance that does not count: the assignments of two rebalances look like those of one."""
    original = rebalance._begin_generation

    def begin(turn: Turn) -> None:
        turn.group.generation = max(1, turn.group.generation - 1)
        original(turn)

    patch.setattr(rebalance, "_begin_generation", begin)


def assign_what_others_own(patch: pytest.MonkeyPatch) -> None:
    """A member of the new protocol is given a partition before its former owner, at an older epoch, gave it up."""
    patch.setattr(ConsumerGroup, "is_free", lambda self, partition: True)


def accept_former_generations(patch: pytest.MonkeyPatch) -> None:
    """A member that was thought dead commits where its successor has gone on."""
    patch.setattr(commit, "check_commit", lambda *args, **kwargs: ErrorCode.NONE)


def answer_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Answer a commit when it is written, though it still waits for its fsync."""
    original = Coordinator._answer_when_committed

    def answer(self: Any, hosted: Any, answers: Any) -> None:
        hosted.end_offset = 0
        original(self, hosted, answers)

    patch.setattr(Coordinator, "_answer_when_committed", answer)


def forget_to_append_commits(patch: pytest.MonkeyPatch) -> None:
    """The coordinator keeps its state in memory only."""
    patch.setattr(Coordinator, "_append", lambda self, hosted, records, now_ms: None)


def forget_sessions(patch: pytest.MonkeyPatch) -> None:
    """Nobody notices that a member has died."""
    original = Timers.set

    def set_timer(self: Timers, timer: Timer) -> None:
        if not isinstance(timer.key, SessionTimer):
            original(self, timer)

    patch.setattr(Timers, "set", set_timer)


BUGS = [
    Bug("skip fsync", skip_fsync, "power", "exactly-once-in-order", (lose_power,)),
    Bug("skip fsync of metadata", skip_fsync_of_metadata, "power", "confirmed-topics", (lose_power,)),
    Bug("show unsynced records", show_unsynced_records, "power", "stable-reads", (lose_power,)),
    Bug("keep torn end", keep_torn_end, "power", "exactly-once-in-order", (lose_power_in_a_write,)),
    Bug("write late", write_late, "processes", "exactly-once-in-order"),
    Bug("skip duplicate check", skip_duplicate_check, "processes", "exactly-once-in-order"),
    Bug("forget producers at start", forget_producers_at_start, "processes", "exactly-once-in-order"),
    Bug("wrong offset for duplicates", tell_wrong_offset_for_duplicates, "processes", "exactly-once-in-order"),
    Bug("keep generation", keep_generation, "processes", "one-owner"),
    Bug("assign what others own", assign_what_others_own, "processes", "committed-offsets"),
    Bug("accept former generations", accept_former_generations, "processes", "committed-offsets"),
    Bug("answer before commit", answer_before_commit, "power", "committed-offsets", (lose_power,)),
    Bug("forget to append commits", forget_to_append_commits, "processes", "committed-offsets"),
    Bug("forget sessions", forget_sessions, "processes", "group-converges"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    scenario = SCENARIOS[bug.scenario]
    scenario = replace(scenario, faults=bug.faults or scenario.faults, faults_s=_FAULTS_S, pauses_s=_PAUSES_S)
    seen: set[str] = set()
    for seed in range(1, _SEEDS_MAX + 1):
        found = {violation.checker for violation in simulate(seed, scenario).violations}
        if bug.checker in found:
            return
        seen |= found
    pytest.fail(f"{bug.checker} did not notice in {_SEEDS_MAX} worlds; others: {sorted(seen) or 'none'}")
