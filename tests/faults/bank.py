"""The bank of test_bank.py: its records, its journals, and the audit that compares the two.

A transfer is two postings, a debit and a credit, on accounts in different topics and partitions. One transaction makes
one or more transfers. Each posting has the number of postings in its transaction, so that a torn transaction is found.
Requests are transfers that a customer writes to a separate topic; clerks consume that topic and make each transfer in
the transaction that also commits its offset.

A worker writes the state of each transaction to its journal: begun; committed or aborted, if the broker confirmed it. A
transaction that begins as aborting will never be committed. A transaction without an end in the journal, because its
worker was killed or fenced, may have been committed or aborted, but only as a whole.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

BRANCHES = ("bank-east", "bank-west")
REQUESTS = "bank-requests"
PARTITIONS = 3
ACCOUNTS = 12
OPENING_BALANCE = 1_000
OPENING = "opening"

BEGUN, ABORTING, COMMITTED, ABORTED, FAILED = "begun", "aborting", "committed", "aborted", "failed"


class Transfer(NamedTuple):
    """A movement of money from the debited account to the credited one."""

    name: str
    debited: int
    credited: int
    amount: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()


def decode_transfer(data: bytes) -> Transfer:
    return Transfer(*json.loads(data))


@dataclass(frozen=True, slots=True)
class Posting:
    """A change of an account's balance; one record."""

    transaction: str
    # How many postings the transaction has.
    parts: int
    transfer: str
    account: int
    amount: int

    @property
    def place(self) -> tuple[str, int]:
        """The topic and partition of the account."""
        return BRANCHES[self.account % len(BRANCHES)], self.account // len(BRANCHES) % PARTITIONS

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decode_posting(data: bytes) -> Posting:
    return Posting(**json.loads(data))


def postings(transaction: str, transfers: Sequence[Transfer]) -> Iterator[Posting]:
    parts = 2 * len(transfers)
    for transfer in transfers:
        yield Posting(transaction, parts, transfer.name, transfer.debited, -transfer.amount)
        yield Posting(transaction, parts, transfer.name, transfer.credited, transfer.amount)


def opening_postings() -> list[Posting]:
    return [Posting(OPENING, ACCOUNTS, OPENING, account, OPENING_BALANCE) for account in range(ACCOUNTS)]


class Journal:
    """A file with one event and transaction per line. Each line is written without a buffer: SIGKILL loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, event: str, transaction: str, text: str = "") -> None:
        os.write(self._file, f"{event} {transaction} {text}".strip().encode() + b"\n")


def read_journal(path: Path) -> list[tuple[str, str]]:
    """Return the events and transactions, in order."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(event, transaction) for event, transaction, *_ in (line.split(" ", 2) for line in lines)]


class Seen(NamedTuple):
    """A posting, and the offset at which a reader found it."""

    topic: str
    partition: int
    offset: int
    posting: Posting


@dataclass(frozen=True, slots=True)
class Audit:
    """Compares the records that a `read_committed` reader saw with the journals and the requests."""

    seen: Sequence[Seen]
    # Event -> transactions.
    journal: Mapping[str, set[str]]
    # The names of the requested transfers.
    requests: Sequence[str]

    def violations(self) -> list[str]:
        return [*self._balance(), *self._whole(), *self._ended_as_reported(), *self._requests_once(), *self._places()]

    def torn(self) -> set[str]:
        """Return the transactions that are incomplete or stored twice, and confirmed ones that are missing."""
        visible = self._by_transaction()
        lost = self.journal.get(COMMITTED, set()) - visible.keys()
        return {name for name, found in visible.items() if not _is_whole(found)} | lost

    def committed(self) -> set[str]:
        """Return the transactions that are visible, or whose commit was confirmed."""
        return self._by_transaction().keys() | self.journal.get(COMMITTED, set())

    def _balance(self) -> Iterator[str]:
        total = sum(seen.posting.amount for seen in self.seen)
        if total != ACCOUNTS * OPENING_BALANCE:
            yield f"the bank holds {total} instead of {ACCOUNTS * OPENING_BALANCE}"

    def _whole(self) -> Iterator[str]:
        for transaction, found in self._by_transaction().items():
            if not _is_whole(found):
                yield f"{transaction} is torn or stored twice: {found}"

    def _ended_as_reported(self) -> Iterator[str]:
        visible = self._by_transaction()
        for event in (ABORTING, ABORTED):
            for transaction in sorted(self.journal.get(event, set()) & visible.keys()):
                yield f"{transaction} is {event} and visible: {visible[transaction]}"
        for transaction in sorted(self.journal.get(COMMITTED, set()) - visible.keys()):
            yield f"{transaction} is committed and not visible"

    def _requests_once(self) -> Iterator[str]:
        transactions = defaultdict(set)
        for seen in self.seen:
            transactions[seen.posting.transfer].add(seen.posting.transaction)
        for request in self.requests:
            if len(transactions[request]) != 1:
                yield f"{request} was applied by {sorted(transactions[request])}"

    def _places(self) -> Iterator[str]:
        twice = [place for place, count in Counter(seen[:3] for seen in self.seen).items() if count > 1]
        if twice:
            yield f"offsets were read twice: {twice}"
        for seen in self.seen:
            if seen.posting.place != (seen.topic, seen.partition):
                yield f"in the wrong partition: {seen}"

    def _by_transaction(self) -> dict[str, list[Seen]]:
        found = defaultdict(list)
        for seen in self.seen:
            found[seen.posting.transaction].append(seen)
        return found


def _is_whole(found: Sequence[Seen]) -> bool:
    """Return whether these are all postings of a transaction, each once."""
    return len(found) == found[0].posting.parts == len({seen.posting for seen in found})


def read_journals(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Return the transactions of all workers by event."""
    events = defaultdict(set)
    for path in paths:
        for event, transaction in read_journal(path):
            events[event].add(transaction)
    return events
