"""The cleaner compared with a plain list: after any appends and cleanings, readers see the same values."""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rookery.base.clock import ManualClock
from rookery.base.files import OsFiles
from rookery.records.batch import Codec
from rookery.records.record import Record
from rookery.storage.compaction.cleaner import Cleaner
from rookery.storage.compaction.dedupe import ENTRY_SIZE_BYTES
from tests.storage.cleaning import COMPACT, append, clean, fold, make_cleaner, open_log, read_records, seal

_KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
_VALUES = st.none() | st.binary(min_size=1, max_size=30)
_RETENTION_MS = 100
_CONFIG = replace(COMPACT, segment_bytes=400, delete_retention_ms=_RETENTION_MS)


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.log = open_log(OsFiles(), Path(self.directory.name), self.clock, _CONFIG)
        self.cleaner = make_cleaner(self.log)
        # Every record ever appended.
        self.history: list[Record] = []
        # Producer id -> its next sequence.
        self.sequences: dict[int, int] = {}

    def teardown(self) -> None:
        self.directory.cleanup()

    @rule(
        pairs=st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=4),
        codec=st.sampled_from(Codec),
        producer_id=st.none() | st.integers(1, 2),
    )
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, producer_id: int | None) -> None:
        producer = None
        if producer_id is not None:
            producer = producer_id, self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = producer[1] + len(pairs)
        self.history += append(self.log, *pairs, producer=producer, codec=codec)

    @rule()
    def seal(self) -> None:
        seal(self.log)

    @rule(duration_ms=st.sampled_from([1, _RETENTION_MS // 2, _RETENTION_MS]))
    def wait(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)

    @rule(keys_max=st.sampled_from([1, 2, 3, 1000]))
    def clean(self, keys_max: int) -> None:
        self.cleaner = self._cleaner(keys_max)
        clean(self.cleaner)

    @precondition(lambda self: self.history)
    @rule()
    def clean_everything(self) -> None:
        """Nothing dirty is left, and of each key at most one record lies below the active segment."""
        seal(self.log)
        self.cleaner = self._cleaner(1000)
        clean(self.cleaner)
        assert self.cleaner.dirty_range(self.log).dirty_bytes == 0
        keys = [record.key for record in read_records(self.log)]
        assert len(keys) == len(set(keys))

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = open_log(
            OsFiles(), Path(self.directory.name), self.clock, _CONFIG, recovery_point=self.log.recovery_point
        )
        self.cleaner = self._cleaner(1000)

    def _cleaner(self, keys_max: int) -> Cleaner:
        return make_cleaner(self.log, memory_bytes=keys_max * ENTRY_SIZE_BYTES)

    @invariant()
    def readers_see_the_same_values_from_every_offset(self) -> None:
        left = read_records(self.log)
        known = {record.offset: record for record in self.history}
        assert all(known[record.offset] == record for record in left)
        assert [record.offset for record in left] == sorted(record.offset for record in left)
        for offset in {0, self.log.end_offset // 3, self.log.end_offset // 2, self.log.end_offset}:
            assert read_records(self.log, offset) == [record for record in left if record.offset >= offset]
        for offset in range(self.log.end_offset + 1):
            seen = fold(record for record in left if record.offset >= offset)
            assert seen == fold(record for record in self.history if record.offset >= offset)

    @invariant()
    def the_end_and_the_producers_are_as_they_were(self) -> None:
        assert self.log.end_offset == len(self.history)
        for producer_id, next_sequence in self.sequences.items():
            state = self.log.producers.get(producer_id)
            assert state is not None
            assert state.last_sequence == next_sequence - 1


TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
