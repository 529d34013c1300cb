"""Transfers in transactions, while the broker and the workers are repeatedly killed with SIGKILL.

Afterwards the sum of all accounts is unchanged. No transfer is torn, no aborted transfer is visible, every transfer
whose commit was confirmed is visible exactly once, and every request is applied exactly once. No transaction stays
open: the last stable offset of each partition is its high watermark, although one worker ended during a transaction and
did not return. A reader that read during the run saw the same records as one that reads afterwards.
"""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.faults.bank import (
    ABORTED,
    ABORTING,
    BEGUN,
    COMMITTED,
    Audit,
    Posting,
    Seen,
    Transfer,
    opening_postings,
    postings,
    read_journal,
    read_journals,
)
from tests.faults.bank_building import (
    DEADLINE_S,
    MIXED,
    OWN,
    STAFF,
    Customer,
    Reader,
    Staff,
    branch_partitions,
    end_offsets,
    internal_partitions,
    open_bank,
)
from tests.faults.bank_worker import DRIFTER
from tests.support.broker import start_broker
from tests.support.waiting import eventually

SEED = 20
COMMITS_BETWEEN_KILLS = 10
SETTLE_S_MAX = 0.1
BROKER = "the broker"
LEAVER = next(name for name, role in STAFF.items() if role == DRIFTER)
SETTINGS = (
    "group.min.session.timeout.ms=500",
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)


class Bank:
    """A broker that can be killed, and the workers, customer and reader around it."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        restart_broker: Callable[[], None],
        *,
        seed: int,
        clients: Mapping[str, str],
    ) -> None:
        self.bootstrap = bootstrap
        self._random = random.Random(seed)
        self._restart_broker = restart_broker
        open_bank(bootstrap)
        with ExitStack() as parts:
            self.reader = parts.enter_context(closing(Reader(bootstrap)))
            self.customer = parts.enter_context(closing(Customer(bootstrap, seed=seed)))
            self.staff = parts.enter_context(closing(Staff(bootstrap, directory, seed=seed, clients=clients)))
            for name in STAFF:
                self.staff.start(name)
            self._parts = parts.pop_all()

    def run(self, rounds: int) -> None:
        """Kill the broker and every worker once per round, in random order."""
        for _ in range(rounds):
            for victim in self._random.sample([BROKER, *STAFF], k=1 + len(STAFF)):
                self.await_commits(COMMITS_BETWEEN_KILLS)
                # The wait above ends right after a commit; a kill should hit other moments as well.
                time.sleep(self._random.uniform(0.0, SETTLE_S_MAX))
                if victim == BROKER:
                    self._restart_broker()
                else:
                    self.staff.kill(victim)
                    self.staff.start(victim)

    def await_commits(self, more: int) -> None:
        goal = self.staff.committed() + more
        _await(lambda: self.staff.committed() >= goal, lambda: f"no worker makes progress\n{self.staff.logs()}")

    def finish(self) -> None:
        """Wait until all requests are applied, and stop all workers; one of them is killed during a transaction."""
        self.customer.stop()
        requests = set(self.customer.requests)
        _await(
            lambda: requests <= self.reader.transfers(),
            lambda: f"not applied: {sorted(requests - self.reader.transfers())[:5]}\n{self.staff.logs()}",
        )
        events = self.staff.journal(LEAVER)
        _await(lambda: read_journal(events)[-1][0] in {BEGUN, ABORTING}, lambda: self.staff.log(LEAVER))
        self.staff.kill(LEAVER)
        for name in STAFF.keys() - {LEAVER}:
            self.staff.stop(name)

    def check_nothing_is_open(self) -> None:
        places = [*branch_partitions(), *internal_partitions(self.bootstrap, "__consumer_offsets")]
        _await(
            lambda: self._ends("read_committed", places) == self._ends("read_uncommitted", places),
            lambda: f"{self._ends('read_committed', places)} and {self._ends('read_uncommitted', places)}",
        )

    def audit(self) -> None:
        ends = self._ends("read_committed", branch_partitions())
        self.reader.await_ends(ends)
        with closing(Reader(self.bootstrap)) as late:
            late.await_ends(ends)
            late.stop()
        self.reader.stop()
        journals = read_journals(self.staff.journals)
        violations = Audit(late.seen, journals, self.customer.requests).violations()
        assert not violations, "\n".join([*violations, self.staff.logs()])
        assert self.reader.by_partition() == late.by_partition()
        assert len(journals[COMMITTED]) > 0 < len(journals[ABORTED])

    def close(self) -> None:
        """Close all parts without checks, even if one fails: the original failure must be reported."""
        self._parts.close()

    def _ends(self, isolation: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return end_offsets(self.bootstrap, isolation, places)


def _await(condition: Callable[[], bool], complaint: Callable[[], str]) -> None:
    eventually(condition, complaint, timeout_s=DEADLINE_S)


LONG = (pytest.mark.long, pytest.mark.timeout(3_600))


@pytest.mark.parametrize(
    ("rounds", "settings", "clients"),
    [
        pytest.param(2, SETTINGS, MIXED, marks=pytest.mark.timeout(600), id="short"),
        pytest.param(20, SETTINGS, MIXED, marks=LONG, id="long"),
        pytest.param(20, SETTINGS, OWN, marks=LONG, id="own"),
        # Every step of a transaction waits for the disk, so that kills happen between the steps.
        pytest.param(10, (*SETTINGS, "log.flush.interval.messages=1"), MIXED, marks=LONG, id="synced"),
    ],
)
def test_a_bank_survives_sigkill(
    tmp_path: Path, rounds: int, settings: tuple[str, ...], clients: Mapping[str, str]
) -> None:
    brokers = [start_broker(tmp_path / "data", *settings)]

    def restart() -> None:
        brokers[-1].kill()
        brokers.append(start_broker(tmp_path / "data", *settings, port=brokers[0].port))

    try:
        run_bank(brokers[0].address, tmp_path / "staff", restart, rounds=rounds, clients=clients)
        assert brokers[-1].stop() == 0
        assert "Traceback" not in brokers[-1].log()
    finally:
        if brokers[-1].process.poll() is None:
            brokers[-1].kill()


def run_bank(
    bootstrap: str, directory: Path, restart_broker: Callable[[], None], *, rounds: int, clients: Mapping[str, str]
) -> None:
    bank = Bank(bootstrap, directory, restart_broker, seed=SEED, clients=clients)
    try:
        bank.run(rounds)
        bank.finish()
        bank.check_nothing_is_open()
        bank.audit()
    finally:
        bank.close()


def _audit(*transactions: list[Posting], requests: tuple[str, ...] = (), **journal: str) -> list[str]:
    posted = [posting for transaction in (opening_postings(), *transactions) for posting in transaction]
    seen = [Seen(*posting.place, offset, posting) for offset, posting in enumerate(posted)]
    return Audit(seen, {event: {transaction} for event, transaction in journal.items()}, requests).violations()


def test_the_audit_finds_violations() -> None:
    moved = list(postings("t", [Transfer("r", 0, 1, 5)]))
    assert _audit(moved, requests=("r",), committed="t") == []
    assert _audit(begun="t") == [], "the outcome is unknown, and it was aborted"
    (_, torn) = _audit(moved[:1])
    assert "torn" in torn
    assert "torn" in _audit(moved, moved)[0]
    assert "aborted and visible" in _audit(moved, aborted="t")[0]
    assert "aborting and visible" in _audit(moved, aborting="t")[0]
    assert "committed and not visible" in _audit(committed="t")[0]
    assert "applied by []" in _audit(requests=("r",))[0]
    assert "applied by ['t', 'u']" in _audit(moved, list(postings("u", [Transfer("r", 0, 1, 5)])), requests=("r",))[0]
