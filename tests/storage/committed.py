"""A reader of committed records, which skips aborted ones as clients do, and the results that it should return."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rookery.base.types import Offset, ProducerId
from rookery.records.batch import iterate_headers
from rookery.records.record import decode_records
from rookery.storage.log import Log
from tests.storage.samples import read_bytes
from tests.support.aborted import aborted_batches


def committed_offsets(data: bytes, aborted: Sequence[tuple[ProducerId, Offset]]) -> list[Offset]:
    """Return the offsets of the records that a client delivers from a read_committed fetch."""
    assert aborted == sorted(aborted, key=lambda pair: pair[1])
    skipped = list(aborted_batches(data, aborted))
    return [
        record.offset
        for position, header in iterate_headers(data)
        if not header.is_control and not any(header.base_offset in offsets for offsets in skipped)
        for record in decode_records(data[position : position + header.size_bytes])
    ]


def read_committed(
    log: Log, high_watermark: Offset, *, offset: Offset | None = None, max_bytes: int = 400
) -> list[Offset]:
    """Return the offsets that a consumer sees from `offset` on, in small fetches."""
    offset = log.start_offset if offset is None else offset
    start, stable, found = offset, log.last_stable_offset(high_watermark), list[Offset]()
    while offset < stable:
        read = log.read(offset, max_bytes, end_offset=stable)
        data = read_bytes(read.slices)
        found += committed_offsets(data, list(log.find_aborted(offset, read, stable)))
        ends = [header.last_offset + 1 for _, header in iterate_headers(data)]
        if not ends:
            break
        offset = ends[-1]
    return [record_offset for record_offset in found if record_offset >= start]


class Entry(NamedTuple):
    """One batch of a history; `committed` is None unless it is a marker."""

    base_offset: Offset
    size: int = 1
    producer_id: ProducerId = -1
    transactional: bool = False
    committed: bool | None = None

    @property
    def end_offset(self) -> Offset:
        return self.base_offset + self.size


class Transaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    marker_offset: Offset | None
    committed: bool | None


def transactions_of(history: Sequence[Entry]) -> list[Transaction]:
    """Return the transactions in the order of their first offsets; open ones have no marker."""
    open_ones: dict[ProducerId, Offset] = {}
    found: list[Transaction] = []
    for entry in history:
        if entry.committed is not None:
            first_offset = open_ones.pop(entry.producer_id, None)
            if first_offset is not None:
                found.append(Transaction(entry.producer_id, first_offset, entry.base_offset, entry.committed))
        elif entry.transactional:
            open_ones.setdefault(entry.producer_id, entry.base_offset)
    found += [Transaction(producer_id, offset, None, None) for producer_id, offset in open_ones.items()]
    return sorted(found, key=lambda transaction: transaction.first_offset)


def stable_offset_of(history: Sequence[Entry], high_watermark: Offset, start_offset: Offset = 0) -> Offset:
    undecided = [
        transaction.first_offset
        for transaction in transactions_of(history)
        if transaction.marker_offset is None or transaction.marker_offset >= high_watermark
    ]
    return max(min([high_watermark, *undecided]), start_offset)


def aborted_of(history: Sequence[Entry], start: Offset, end: Offset) -> list[tuple[ProducerId, Offset]]:
    return [
        (transaction.producer_id, transaction.first_offset)
        for transaction in transactions_of(history)
        if transaction.committed is False
        and transaction.marker_offset is not None
        and transaction.marker_offset >= start
        and transaction.first_offset < end
    ]


def visible_of(history: Sequence[Entry], start: Offset, end: Offset) -> list[Offset]:
    """Return the offsets of the records in [start, end) that were not aborted."""
    aborted = [transaction for transaction in transactions_of(history) if transaction.committed is False]
    return [
        offset
        for entry in history
        for offset in range(max(entry.base_offset, start), min(entry.end_offset, end))
        if entry.committed is None and not (entry.transactional and _is_in(entry, aborted))
    ]


def _is_in(entry: Entry, transactions: Iterable[Transaction]) -> bool:
    return any(
        transaction.producer_id == entry.producer_id
        and transaction.first_offset <= entry.base_offset < (transaction.marker_offset or 0)
        for transaction in transactions
    )
