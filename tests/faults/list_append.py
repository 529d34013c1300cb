"""The list-append run: checks that committed transactions have all their records, whatever is killed.

Workers with librdkafka append to four partitions in every transaction, and abort a fifth of them on purpose. They soon
drop unacknowledged records. Meanwhile the broker is killed (SIGKILL), suspended (SIGSTOP) and restarted cleanly;
workers are killed, or suspended until another process has their transactional id and then resumed. One reader of
committed records reads during the run, and another one reads everything at the end.

It runs with every system of `bench.systems`, so that Rookery and Apache Kafka can be compared: `Outcome` counts the
torn transactions. Records, journals, workers and readers are those of the bank.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.faults.bank import ABORTED, Audit, read_journals
from tests.faults.bank_building import DEADLINE_S, Reader, Staff, branch_partitions, end_offsets, open_bank
from tests.faults.bank_worker import APPENDER, CONFLUENT
from tests.support.waiting import eventually

APPENDERS = dict.fromkeys(("ann", "bob", "cid", "dot"), APPENDER)
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
KILL, STOP, RESTART, KILL_WORKER, ZOMBIE = "SIGKILL", "SIGSTOP", "restart", "SIGKILL of a worker", "zombie"
_WEIGHTS = {KILL: 10, STOP: 2, RESTART: 1, KILL_WORKER: 2, ZOMBIE: 1}
# Commits between two faults, so that every fault hits transactions.
_COMMITS_BETWEEN = 8
_PAUSE_S_MAX = 0.3
_STOP_S = (0.1, 2.0)
_ZOMBIE_S = 1.0


class Broker(Protocol):
    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class System(Protocol):
    @property
    def name(self) -> str: ...

    def start(self, directory: Path, settings: dict[str, str]) -> Broker: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    system: str
    torn: frozenset[str]
    # The number of committed transactions, and of those whose abort was confirmed.
    committed: int
    aborted: int
    faults: Counter[str]
    violations: tuple[str, ...]

    def __str__(self) -> str:
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.system}: {len(self.torn)} torn of {self.committed} committed transactions, "
            f"{self.aborted} aborted; {faults}"
        )


class ListAppend:
    """One run. `kills` is how often the broker is killed; other faults happen in between."""

    def __init__(self, system: System, directory: Path, *, kills: int, seed: int, settings: dict[str, str]) -> None:
        self._system = system
        self._directory = directory
        self._kills = kills
        self._seed = seed
        self._settings = SETTINGS | settings
        self._random = random.Random(f"{seed}/faults")
        self._faults: Counter[str] = Counter()

    def run(self) -> Outcome:
        directory = self._directory / "broker"
        self._broker = self._system.start(directory, self._settings)
        try:
            with ExitStack() as parts:
                return self._run(parts)
        finally:
            self._broker.kill()

    def _run(self, parts: ExitStack) -> Outcome:
        bootstrap = self._broker.bootstrap
        open_bank(bootstrap)
        reader = parts.enter_context(closing(Reader(bootstrap)))
        clients = dict.fromkeys(APPENDERS, CONFLUENT)
        self._staff = Staff(bootstrap, self._directory / "staff", seed=self._seed, clients=clients, roles=APPENDERS)
        parts.enter_context(closing(self._staff))
        for name in APPENDERS:
            self._staff.start(name)
        while self._faults[KILL] < self._kills:
            self._await_commits()
            time.sleep(self._random.uniform(0.0, _PAUSE_S_MAX))
            self._break(self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0])
        self._await_commits()
        for name in APPENDERS:
            self._staff.stop(name)
        return self._audit(reader)

    def _await_commits(self) -> None:
        goal = self._staff.committed() + _COMMITS_BETWEEN
        eventually(
            lambda: self._staff.committed() >= goal,
            lambda: f"no worker makes progress\n{self._staff.logs()}",
            timeout_s=DEADLINE_S,
        )

    def _break(self, fault: str) -> None:
        name = self._random.choice(list(APPENDERS))
        breaking: dict[str, Callable[[], None]] = {
            KILL: lambda: self._restart(self._broker.kill),
            STOP: self._stop_broker,
            RESTART: lambda: self._restart(self._broker.stop),
            KILL_WORKER: lambda: self._kill_worker(name),
            ZOMBIE: lambda: self._make_zombie(name),
        }
        breaking[fault]()
        self._faults[fault] += 1

    def _restart(self, end: Callable[[], None]) -> None:
        end()
        self._broker = self._system.start(self._directory / "broker", self._settings)

    def _stop_broker(self) -> None:
        os.kill(self._broker.pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(*_STOP_S))
        os.kill(self._broker.pid, signal.SIGCONT)

    def _kill_worker(self, name: str) -> None:
        self._staff.kill(name)
        self._staff.start(name)

    def _make_zombie(self, name: str) -> None:
        """Suspend a worker, resume it when its successor works, and kill it after a while."""
        zombie = self._staff.suspend(name)
        self._staff.start(name)
        self._await_commits()
        zombie.send_signal(signal.SIGCONT)
        time.sleep(self._random.uniform(0.0, _ZOMBIE_S))
        zombie.kill()
        zombie.wait()

    def _audit(self, reader: Reader) -> Outcome:
        places, bootstrap = branch_partitions(), self._broker.bootstrap
        stable, written = (
            partial(end_offsets, bootstrap, isolation, places) for isolation in ("read_committed", "read_uncommitted")
        )
        eventually(lambda: stable() == written(), "no transaction stays open", timeout_s=DEADLINE_S)
        ends = stable()
        reader.await_ends(ends)
        with closing(Reader(bootstrap)) as late:
            late.await_ends(ends)
            late.stop()
        reader.stop()
        journals = read_journals(self._staff.journals)
        audit = Audit(late.seen, journals, ())
        violations = audit.violations()
        if reader.by_partition() != late.by_partition():
            violations.append("the reader during the run and the reader at the end saw different records")
        return Outcome(
            system=self._system.name,
            torn=frozenset(audit.torn()),
            committed=len(audit.committed()) - 1,
            aborted=len(journals[ABORTED]),
            faults=self._faults,
            violations=tuple(violations),
        )
