"""The log with transactions compared with a plain history: last stable offset, aborted list, and what a consumer sees.

Keys are unique, so compaction may remove aborted records and markers only: readers must not notice any of it.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from rookery.base.types import Offset
from rookery.records.batch import BatchHeader, read_header
from rookery.records.record import Record, build_batch
from rookery.storage.config import LogConfig
from rookery.storage.producers import Duplicate
from tests.faults.files import Survival
from tests.models.log_machine import LogMachine
from tests.storage import cleaning
from tests.storage.committed import (
    Entry,
    Transaction,
    aborted_of,
    read_committed,
    stable_offset_of,
    transactions_of,
    visible_of,
)
from tests.storage.samples import DIRECTORY, append, marker

PRODUCERS = st.integers(1, 3)
_RETENTION_MS = 50


class TransactionModel(LogMachine):
    """`history` is everything that the log has received, also below its start."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Entry] = []
        # The headers of all transactional batches, by producer, with their offsets.
        self.sent: dict[int, dict[Offset, BatchHeader]] = {}
        self.high_watermark = 0
        self.number = 0
        # Records below may have been compacted: aborted ones are gone, and so are their entries.
        self.cleaned = 0

    @property
    def end(self) -> Offset:
        return max(self.start, self.history[-1].end_offset if self.history else 0)

    @initialize(segment_bytes=st.integers(150, 900), compacts=st.booleans(), interval=st.integers(0, 300))
    def open(self, segment_bytes: int, compacts: bool, interval: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=600,
            retention_ms=-1,
            cleanup_policy=frozenset({"compact", "delete"} if compacts else {"delete"}),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=_RETENTION_MS,
        )
        self._open(config)

    def _append(self, producer_id: int, count: int, *, transactional: bool) -> None:
        state = self.log.producers.get(producer_id)
        sequence = state.last_sequence + 1 if state is not None else 0
        records = [Record(index, self.clock.now_ms(), b"%d" % (self.number + index), b"v") for index in range(count)]
        self.number += count
        data = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        producers, header = self.log.producers, read_header(data)
        assert producers.check(header) is None
        if transactional:
            is_open = any(item.producer_id == producer_id and item.committed is None for item in self._transactions)
            verification = producers.verify(header)
            assert (verification is None) == is_open
            assert producers.check_transaction(header, verification) is None
        offset = append(self.log, data)
        assert offset == self.end
        if transactional:
            self.sent.setdefault(producer_id, {})[offset] = header
        self.history.append(Entry(offset, count, producer_id, transactional))

    @property
    def _transactions(self) -> list[Transaction]:
        return transactions_of(self.history)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3))
    def write_in_transaction(self, producer_id: int, count: int) -> None:
        self._append(producer_id, count, transactional=True)

    @rule(count=st.integers(1, 3))
    def write(self, count: int) -> None:
        self._append(-1, count, transactional=False)

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        offset = append(self.log, marker(producer_id, committed=committed, timestamp_ms=self.clock.now_ms()))
        self.history.append(Entry(offset, 1, producer_id, transactional=True, committed=committed))

    @rule(part=st.floats(0, 1))
    def commit_more(self, part: float) -> None:
        ends = [entry.end_offset for entry in self.history if entry.end_offset > self.high_watermark]
        if ends:
            self.high_watermark = ends[round(part * (len(ends) - 1))]

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        # Cleaned records are committed on all replicas: none of them is truncated.
        lowest = max(self.start, self.cleaned)
        offset = lowest + round(part * (self.end - lowest))
        if offset < self.end:
            kept = [entry for entry in self.history if entry.end_offset <= offset]
            if offset <= self.start or not kept or kept[-1].end_offset < self.start:
                kept = []
            self.history = kept
            self._ended_at(self.end)
        self.log.truncate_to(offset)
        self._drop_unknown()

    def _ended_at(self, offset: int) -> None:
        """Set the end of the log. The high watermark of a leader never decreases; that of one replica does here."""
        self.flushed = min(self.flushed, offset)
        self.high_watermark = offset

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + round(part * (self.high_watermark - self.start))
        self.log.advance_start_offset(offset)
        self.start = max(self.start, offset)

    @rule(retention_bytes=st.integers(0, 2000))
    def retain(self, retention_bytes: int) -> None:
        config = LogConfig(retention_bytes=retention_bytes, retention_ms=-1)
        self._retain(config, now_ms=self.clock.now_ms(), stable_offset=self.high_watermark)
        self.start = self.log.start_offset

    @precondition(lambda self: self.log.config.compacts)
    @rule(wait_ms=st.sampled_from([0, _RETENTION_MS]), seals=st.booleans())
    def clean(self, wait_ms: int, seals: bool) -> None:
        if seals:
            self.log.roll()
            self.flush()
            self.high_watermark = self.end
        self.clock.advance(wait_ms)
        cleaner = cleaning.make_cleaner(self.log)
        cleaner._high_watermark = lambda _: self.high_watermark
        if cleaning.clean(cleaner) is not None:
            self.cleaned = self.log.segments[-1].base_offset
            self.flushed = max(self.flushed, self.log.recovery_point)

    @rule()
    def restart_cleanly(self) -> None:
        super().restart_cleanly()
        self.high_watermark = self.end

    @rule(survival=st.sampled_from(list(Survival)), loses_checkpoint=st.booleans())
    def crash(self, survival: Survival, loses_checkpoint: bool) -> None:
        # Without the recovery point a gap left by cleaning looks like a hole.
        if loses_checkpoint and not self.cleaned:
            self.log.recovery_point = 0
        self._crash(survival)
        self.history = [entry for entry in self.history if entry.end_offset <= self.log.end_offset]
        self._ended_at(self.log.end_offset)
        self._drop_unknown()

    def _drop_unknown(self) -> None:
        """Drop the part of open transactions below the first segment that a loss has made unknown.

        A snapshot has it, but one that was not synced may be lost or torn.
        """
        base = self.log.segments[0].base_offset
        for producer_id, first_offset, _, committed in self._transactions:
            state = self.log.producers.get(producer_id)
            is_known = state is not None and state.current_transaction_offset == first_offset
            if committed is None and first_offset < base and not is_known:
                self.history = [
                    Entry(entry.base_offset, entry.size)
                    if entry.producer_id == producer_id and entry.base_offset < base
                    else entry
                    for entry in self.history
                ]

    @invariant()
    def readers_stop_at_the_last_stable_offset(self) -> None:
        expected = stable_offset_of(self.history, self.high_watermark, self.start)
        assert self.log.last_stable_offset(self.high_watermark) == expected

    @invariant()
    def only_batches_of_open_transactions_are_duplicates(self) -> None:
        """A batch that is sent again is acknowledged only if it is part of the transaction that is open now."""
        opened = {item.producer_id: item.first_offset for item in self._transactions if item.committed is None}
        for producer_id, sent in self.sent.items():
            first_offset = opened.get(producer_id, self.end)
            for header in sent.values():
                verdict = self.log.producers.check(header)
                assert not isinstance(verdict, Duplicate) or verdict.base_offset >= first_offset
            own = [entry.base_offset for entry in self.history if entry.producer_id == producer_id]
            if producer_id in opened and self.log.producers.get(producer_id) is not None:
                last = self.log.producers.check(sent[own[-1]])
                assert isinstance(last, Duplicate)
                assert last.base_offset == own[-1]

    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 1500))
    def consume(self, part: float, max_bytes: int) -> None:
        stable = self.log.last_stable_offset(self.high_watermark)
        offset = self.start + round(part * (stable - self.start))
        found = read_committed(self.log, self.high_watermark, offset=offset, max_bytes=max_bytes)
        assert found == visible_of(self.history, offset, stable)

    @rule(part=st.floats(0, 1), end_part=st.floats(0, 1))
    def find_aborted(self, part: float, end_part: float) -> None:
        if self.cleaned or self.log.segments[0].base_offset:
            return
        offset = self.start + round(part * (self.end - self.start))
        end = offset + round(end_part * (self.end - offset))
        assert list(self.log._segments.find_aborted(offset, end)) == aborted_of(self.history, offset, end)

    @rule()
    def segments_with_aborted_transactions_have_files(self) -> None:
        self.log.roll()
        names = set(self.files.list_directory(DIRECTORY))
        for segment in self.log.segments[:-1]:
            name = f"{segment.base_offset:020d}.txnindex"
            assert (name in names) == (len(segment.aborted) > 0) == segment.has_aborted_file


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
