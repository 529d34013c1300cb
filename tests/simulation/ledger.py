"""The transfers of the simulated bank, with their outcomes as far as the workers know them, and their checkers.

A transfer is one transaction: debits and credits with the sum zero, each a record in the partition of its account. A
teller's transfer has one debit and one or two credits, a clerk's a debit and a credit for each of up to three requests.
Workers record what they are about to do and the responses; readers, what they saw with isolation level read_committed.
The checkers, by name:

    no-aborted-reads         no reader ever sees a record of a transfer that was not committed
    atomic-transfers         all records of a transfer are in the log or none; if its commit was confirmed, all are
    confirmed-reads          a read up to a last stable offset has all earlier records that were confirmed before it
    worker-order             in each partition a worker's records are in the order of its transfers, each once
    constant-money           the sum of all debits and credits is zero
    requests-once            a request is applied once if it is below the group's committed offset, else not at all
    no-hanging-transactions  when workers have ended, their transactions end: all stored records can be read
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from rookery.base.types import Offset, TopicPartition
from tests.simulation.checkers import ReadRecord, Violations

_SETTLED_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


class Fate(Enum):
    """The outcome of a transfer, as far as its worker knows it.

    NOT_COMMITTED: the worker did not request a commit, or the broker rejected it.
    """

    NOT_COMMITTED = auto()
    UNKNOWN = auto()
    CONFIRMED = auto()


class Entry(NamedTuple):
    """One stored record of a transfer."""

    worker: str
    number: int
    leg: int
    amount: int
    request: str
    padding: int = 0

    def encode(self) -> bytes:
        return " ".join(map(str, self[:-1])).encode() + b" " + b"." * self.padding

    @classmethod
    def decode(cls, value: bytes) -> "Entry":
        worker, number, leg, amount, request, padding = value.decode().split(" ")
        return cls(worker, int(number), int(leg), int(amount), request, len(padding))

    @property
    def transfer(self) -> tuple[str, int]:
        return self.worker, self.number

    def __str__(self) -> str:
        return f"{self.worker}:{self.number}/{self.leg}"


@dataclass(slots=True)
class Transfer:
    """A transfer. `legs` are its records, each with its partition."""

    worker: str
    number: int
    legs: tuple[tuple[TopicPartition, Entry], ...]
    fate: Fate = Fate.NOT_COMMITTED
    # The offsets of its batches that were acknowledged.
    offsets: dict[TopicPartition, Offset] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.worker}:{self.number}"


@dataclass
class Ledger:
    """All transfers, by worker and number."""

    violations: Violations
    transfers: dict[tuple[str, int], Transfer] = field(default_factory=dict)

    def add(self, transfer: Transfer) -> None:
        self.transfers[transfer.worker, transfer.number] = transfer

    @property
    def confirmed(self) -> list[Transfer]:
        return [transfer for transfer in self.transfers.values() if transfer.fate is Fate.CONFIRMED]


def check_confirmed(
    ledger: Ledger, confirmed: Iterable[Transfer], ends: Mapping[TopicPartition, Offset], seen: set[bytes]
) -> None:
    """Check that `seen`, read up to the last stable offsets `ends`, has the transfers confirmed before `ends` was read.

    Markers may be written after the confirmation; until then the last stable offset is below the transfer's records.
    """
    for transfer in confirmed:
        missing = [
            str(partition)
            for partition, entry in transfer.legs
            if transfer.offsets[partition] < ends[partition] and entry.encode() not in seen
        ]
        if missing:
            ledger.violations.add(
                "confirmed-reads", f"{transfer} was confirmed, but was not found on {missing} before {ends}"
            )


def check_reads(ledger: Ledger, reads: Mapping[tuple[TopicPartition, Offset], bytes]) -> None:
    """Check that no record of an uncommitted transfer was read during the run."""
    for (partition, offset), value in reads.items():
        entry = Entry.decode(value)
        if ledger.transfers[entry.transfer].fate is Fate.NOT_COMMITTED:
            ledger.violations.add(
                "no-aborted-reads", f"{entry} was read at {partition}@{offset}, but its transfer was not committed"
            )


def check_transfers(ledger: Ledger, log: Sequence[ReadRecord]) -> None:
    """Check the log at the end of the run. `log` has all readable records, sorted by offset in each partition."""
    seen = Counter((record.partition, Entry.decode(record.value)) for record in log)
    for transfer in ledger.transfers.values():
        found = [leg for leg in transfer.legs if seen[leg]]
        if transfer.fate is Fate.NOT_COMMITTED and found:
            ledger.violations.add("no-aborted-reads", f"{transfer} was not committed, but {_show(found)} can be read")
        elif transfer.fate is not Fate.NOT_COMMITTED and len(found) not in _allowed_counts(transfer):
            outcome = "confirmed" if transfer.fate is Fate.CONFIRMED else "perhaps committed"
            ledger.violations.add(
                "atomic-transfers",
                f"{transfer} was {outcome}, but of {_show(transfer.legs)} there is only {_show(found)}",
            )
    amount = sum(Entry.decode(record.value).amount for record in log)
    if amount:
        ledger.violations.add("constant-money", f"the accounts add up to {amount}")


def _allowed_counts(transfer: Transfer) -> tuple[int, ...]:
    return (len(transfer.legs),) if transfer.fate is Fate.CONFIRMED else (0, len(transfer.legs))


def check_worker_order(ledger: Ledger, log: Sequence[ReadRecord]) -> None:
    last: dict[tuple[TopicPartition, str], tuple[int, int]] = {}
    for record in log:
        entry = Entry.decode(record.value)
        known = last.get((record.partition, entry.worker), (-1, -1))
        if (entry.number, entry.leg) <= known:
            ledger.violations.add(
                "worker-order",
                f"{entry} is at {record.partition}@{record.offset}, after {entry.worker}:{known[0]}/{known[1]}",
            )
        last[record.partition, entry.worker] = entry.number, entry.leg


def check_requests(
    ledger: Ledger,
    log: Sequence[ReadRecord],
    requests: Sequence[ReadRecord],
    committed: Mapping[TopicPartition, Offset],
) -> None:
    applied: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for record in log:
        entry = Entry.decode(record.value)
        applied[entry.request].add(entry.transfer)
    for request in requests:
        name = request.value.decode().split(" ")[0]
        wanted = int(request.offset < committed[request.partition])
        if len(applied[name]) != wanted:
            ledger.violations.add(
                "requests-once",
                f"{name} at {request.partition}@{request.offset} is applied by {sorted(applied[name]) or 'no worker'}, "
                f"and {committed[request.partition]} is committed",
            )


def check_states(ledger: Ledger, states: Mapping[str, str]) -> None:
    for transactional_id, state in states.items():
        if state not in _SETTLED_STATES:
            ledger.violations.add("no-hanging-transactions", f"the transaction of {transactional_id} is {state}")


def _show(legs: Iterable[tuple[TopicPartition, Entry]]) -> str:
    return ", ".join(f"{entry} on {partition}" for partition, entry in legs) or "nothing"
