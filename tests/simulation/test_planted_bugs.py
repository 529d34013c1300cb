"""Mutations: bugs that the simulator must catch, each by the checker whose business it is, within a few seeds.

A checker that never fails proves nothing. Each test breaks one function of the node and runs worlds until the named
checker complains; the same worlds without the bug are clean (`test_simulation` and `make sim`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from rookery.base.errors import ErrorCode
from rookery.records.batch import BatchHeader
from rookery.replication.replica import Replica
from rookery.storage import log as log_module
from rookery.storage import recovery
from rookery.storage.flush import FlushJob
from rookery.storage.producers import Duplicate, ProducerStates
from rookery.storage.segment import Segment
from tests.simulation.scenarios import SCENARIOS, simulate

_SEEDS_MAX = 12
_FAULTS_S = 20.0

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    name: str
    plant: Plant
    scenario: str
    checker: str


def skip_fsync(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge under flush.messages=1 without waiting for the disk."""
    patch.setattr(FlushJob, "run", lambda self: None)


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


def skip_crc_in_recovery(patch: pytest.MonkeyPatch) -> None:
    """Keep torn batches: the file is extended with zeroes to what the header promises."""
    patch.setattr(recovery, "compute_crc", lambda data: recovery_crc(data))


def acknowledge_before_write(patch: pytest.MonkeyPatch) -> None:
    """Keep the last batch of each segment in memory until the next one comes."""
    original = Segment.append


BUGS = [
    Bug("skip fsync", skip_fsync, "power", "exactly-once-in-order"),
    Bug("show unsynced records", show_unsynced_records, "power", "stable-reads"),
    Bug("skip duplicate check", skip_duplicate_check, "processes", "exactly-once-in-order"),
    Bug("forget producers at start", forget_producers_at_start, "processes", "exactly-once-in-order"),
    Bug("wrong offset for duplicates", tell_wrong_offset_for_duplicates, "processes", "exactly-once-in-order"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    scenario = replace(SCENARIOS[bug.scenario], faults_s=_FAULTS_S)
    seen: set[str] = set()
    for seed in range(1, _SEEDS_MAX + 1):
        found = {violation.checker for violation in simulate(seed, scenario).violations}
        if bug.checker in found:
            return
        seen |= found
    pytest.fail(f"{bug.checker} did not notice in {_SEEDS_MAX} worlds; others: {sorted(seen) or 'none'}")
