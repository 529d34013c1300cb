"""The checkers of the bank, each with a valid history and with one that violates the invariant."""

from collections.abc import Sequence

from rookery.base.types import Offset, TopicPartition
from tests.simulation.checkers import ReadRecord, Violations
from tests.simulation.ledger import (
    Entry,
    Fate,
    Ledger,
    Transfer,
    check_confirmed,
    check_reads,
    check_requests,
    check_states,
    check_transfers,
    check_worker_order,
)

CASH, LOANS, REQUESTS = (TopicPartition(topic, 0) for topic in ("cash", "loans", "requests"))


def transfer(number: int = 0, fate: Fate = Fate.CONFIRMED, *, worker: str = "ann", request: str = "-") -> Transfer:
    """Return a transfer of five from an account on CASH to one on LOANS; its offsets are ten times its number."""
    debit, credit = (Entry(worker, number, leg, amount, request) for leg, amount in enumerate((-5, 5)))
    offsets = {CASH: 10 * number, LOANS: 10 * number}
    return Transfer(worker, number, ((CASH, debit), (LOANS, credit)), fate, offsets)


def ledger(*transfers: Transfer) -> Ledger:
    made = Ledger(Violations())
    for one in transfers:
        made.add(one)
    return made


def log_of(*transfers: Transfer) -> list[ReadRecord]:
    """Return the records of these transfers, at their offsets."""
    return [
        ReadRecord(partition, one.offsets[partition], entry.encode())
        for one in transfers
        for partition, entry in one.legs
    ]


def found(checked: Ledger) -> list[str]:
    return [violation.checker for violation in checked.violations.found]


def complaints_about_transfers(log: Sequence[ReadRecord], *transfers: Transfer) -> list[str]:
    checked = ledger(*transfers)
    check_transfers(checked, log)
    return found(checked)


def test_entries_survive_their_encoding() -> None:
    entry = Entry("ann", 3, 1, -20, "request-7", padding=4)
    assert Entry.decode(entry.encode()) == entry


def test_confirmed_reads() -> None:
    def complaints(ends: dict[TopicPartition, Offset], *seen: Transfer) -> list[str]:
        one = transfer(1)
        checked = ledger(one)
        check_confirmed(checked, [one], ends, {record.value for record in log_of(*seen)})
        return found(checked)

    whole = {CASH: 11, LOANS: 11}
    assert complaints(whole, transfer(1)) == []
    assert complaints({CASH: 10, LOANS: 10}) == [], "its markers may not be written yet"
    assert complaints(whole) == ["confirmed-reads"]
    assert complaints({CASH: 10, LOANS: 11}) == ["confirmed-reads"], "one partition is enough"
    assert complaints(whole, transfer(2)) == ["confirmed-reads"], "another transfer does not count"


def test_no_aborted_reads_during_the_run() -> None:
    def complaints(fate: Fate) -> list[str]:
        one = transfer(1, fate)
        checked = ledger(one)
        check_reads(checked, {(record.partition, record.offset): record.value for record in log_of(one)[:1]})
        return found(checked)

    assert complaints(Fate.CONFIRMED) == complaints(Fate.UNKNOWN) == []
    assert complaints(Fate.NOT_COMMITTED) == ["no-aborted-reads"]


def test_no_aborted_reads_at_the_end() -> None:
    kept, dropped = transfer(0), transfer(1, Fate.NOT_COMMITTED)
    assert complaints_about_transfers(log_of(kept), kept, dropped) == []
    assert complaints_about_transfers(log_of(kept, dropped), kept, dropped) == ["no-aborted-reads"]


def test_atomic_transfers() -> None:
    confirmed, unknown = transfer(0), transfer(1, Fate.UNKNOWN)
    assert complaints_about_transfers(log_of(confirmed, unknown), confirmed, unknown) == []
    assert complaints_about_transfers(log_of(confirmed), confirmed, unknown) == [], "it may have been aborted"
    assert complaints_about_transfers([], confirmed) == ["atomic-transfers"]
    for torn in (confirmed, unknown):
        assert complaints_about_transfers(log_of(torn)[:1], torn) == ["atomic-transfers", "constant-money"]
    moved = [ReadRecord(LOANS, record.offset, record.value) for record in log_of(confirmed)]
    assert complaints_about_transfers(moved, confirmed) == ["atomic-transfers"], "at the wrong offset"


def test_constant_money() -> None:
    one = transfer()
    assert complaints_about_transfers(log_of(one), one) == []
    assert complaints_about_transfers([*log_of(one), *log_of(one)[1:]], one) == ["constant-money"]


def test_worker_order() -> None:
    def complaints(*log: ReadRecord) -> list[str]:
        checked = ledger()
        check_worker_order(checked, log)
        return found(checked)

    first, second, other = log_of(transfer(0)), log_of(transfer(1)), log_of(transfer(0, worker="bob"))
    assert complaints(*first, *second, *other) == []
    assert complaints(*second, *other) == [], "aborted transfers leave a gap"
    assert complaints(first[0], second[0], second[1]) == []
    assert complaints(*second, *first) == ["worker-order"] * 2
    assert complaints(*first, first[0]) == ["worker-order"], "twice"


def test_requests_once() -> None:
    def complaints(committed: Offset, *applied: Transfer) -> list[str]:
        checked = ledger()
        requests = [ReadRecord(REQUESTS, offset, b"request-%d 0 1 5" % offset) for offset in range(2)]
        check_requests(checked, log_of(*applied), requests, {REQUESTS: committed})
        return found(checked)

    first, second = (transfer(number, request=f"request-{number}") for number in range(2))
    assert complaints(0) == complaints(1, first) == complaints(2, first, second) == []
    assert complaints(2, first) == ["requests-once"], "lost"
    assert complaints(1, first, second) == ["requests-once"], "it would be applied again"
    assert complaints(1, first, transfer(2, request="request-0")) == ["requests-once"], "applied twice"


def test_no_hanging_transactions() -> None:
    checked = ledger()
    check_states(checked, {"ann": "Empty", "bob": "CompleteCommit", "cid": "CompleteAbort", "dot": "Dead"})
    assert found(checked) == []
    check_states(checked, {"ann": "Ongoing", "bob": "PrepareCommit", "cid": "Empty"})
    assert found(checked) == ["no-hanging-transactions"] * 2
