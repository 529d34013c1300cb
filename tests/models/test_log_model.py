"""The log compared with a plain list: hypothesis runs the same operations on both and compares all results."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from rookery.base.errors import ErrorCode
from rookery.base.types import Offset
from rookery.records.batch import iterate_headers, read_header
from rookery.storage.config import LogConfig
from tests.faults.files import Survival
from tests.models.log_machine import LogMachine
from tests.storage.samples import batch, read_bytes

RECORD_MS = st.integers(1, 50)


class ModelBatch:
    def __init__(self, base_offset: int, timestamps_ms: list[int], data: bytes) -> None:
        self.base_offset = base_offset
        self.timestamps_ms = timestamps_ms
        self.data = data

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.timestamps_ms)


class LogModel(LogMachine):
    """`batches` are the expected batches from the log's start on."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[ModelBatch] = []
        self.sequence = 0

    @property
    def end(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.start

    @initialize(segment_bytes=st.integers(100, 1000), interval=st.integers(0, 300), index_bytes=st.integers(36, 200))
    def open(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            segment_ms=40,
            retention_ms=-1,
        )
        self._open(config)

    @rule(timestamps=st.lists(RECORD_MS, min_size=1, max_size=4), size=st.integers(0, 120))
    def append(self, timestamps: list[int], size: int) -> None:
        data = batch(*timestamps, value=b"v" * size, producer_id=1, epoch=0, sequence=self.sequence)
        header = read_header(data)
        assert self.log.producers.check(header) is None
        offset = self.log.append(data, header, leader_epoch=2)
        assert offset == self.end
        self.batches.append(ModelBatch(offset, timestamps, bytes(data)))
        self.sequence += len(timestamps)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.start + round(part * (self.end - self.start))
        if offset < self.end:
            self.batches = [item for item in self.batches if item.end_offset <= offset and offset > self.start]
            self.flushed = min(self.flushed, self.end)
        self.log.truncate_to(offset)
        self._forget_producer()

    def _forget_producer(self) -> None:
        state = self.log.producers.get(1)
        self.sequence = state.last_sequence + 1 if state else 0

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + round(part * (self.end - self.start))
        self.log.advance_start_offset(offset)
        self._start_at(max(self.start, offset))

    @rule(retention_bytes=st.integers(0, 2000))
    def retain_by_size(self, retention_bytes: int) -> None:
        self._retain(LogConfig(retention_bytes=retention_bytes, retention_ms=-1), now_ms=self.clock.now_ms())
        self._start_at(self.log.start_offset)
        assert (
            self.log.size_bytes - self.log.segments[0].size_bytes < max(retention_bytes, 1)
            or len(self.log.segments) == 1
        )

    @rule(age_ms=st.integers(0, 60))
    def retain_by_time(self, age_ms: int) -> None:
        self._retain(LogConfig(retention_ms=age_ms), now_ms=60)
        kept_from = next(
            (item.base_offset for item in self.batches if max(item.timestamps_ms) >= 60 - age_ms), self.end
        )
        assert self.log.start_offset <= max(self.start, kept_from)
        self._start_at(self.log.start_offset)

    def _start_at(self, offset: Offset) -> None:
        self.start = offset
        self.batches = [item for item in self.batches if item.end_offset > offset]

    @rule(survival=st.sampled_from(list(Survival)))
    def crash(self, survival: Survival) -> None:
        self._crash(survival)
        self.batches = [item for item in self.batches if item.end_offset <= self.log.end_offset]
        self._forget_producer()

    @rule(part=st.floats(0, 1), max_bytes=st.integers(0, 2000), end_part=st.floats(0, 1), at_least_one=st.booleans())
    def read(self, part: float, max_bytes: int, end_part: float, at_least_one: bool) -> None:
        offset = self.start + round(part * (self.end - self.start))
        limit = offset + round(end_part * (self.end - offset))
        found = self.log.read(offset, max_bytes, end_offset=limit, at_least_one=at_least_one)
        assert found.error_code == ErrorCode.NONE
        data = read_bytes(found.slices)
        wanted = [item.data for item in self.batches if item.end_offset > offset and item.end_offset <= limit]
        assert offset < limit or not data
        if offset < limit and wanted:
            assert b"".join(wanted).startswith(data)
            first = len(wanted[0])
            assert len(data) <= max(max_bytes, first if at_least_one else 0)
            assert len(data) >= (first if at_least_one or max_bytes >= first else 0)
            assert (
                len(data) == sum(map(len, wanted))
                or len(data) >= max_bytes
                or max_bytes < first
                or self._ends_whole(data)
            )

    def _ends_whole(self, data: bytes) -> bool:
        """A read may stop before a segment whose first batch does not fit into the rest."""
        return sum(header.size_bytes for _, header in iterate_headers(data)) == len(data)

    @rule(offset=st.integers(-3, 3))
    def read_out_of_range(self, offset: int) -> None:
        wanted = self.start + offset if offset < 0 else self.end + offset
        found = self.log.read(wanted, 100)
        inside = self.start <= wanted <= self.end
        assert (found.error_code == ErrorCode.NONE) == inside

    @rule(timestamp_ms=st.integers(0, 60))
    def find_timestamp(self, timestamp_ms: int) -> None:
        records = self._records()
        expected = next((record for record in records if record[1] >= timestamp_ms), None)
        found = self.log.offset_for_timestamp(timestamp_ms)
        assert (found[:2] if found else None) == expected

    @precondition(lambda self: self.batches)
    @rule()
    def find_latest(self) -> None:
        records = self._records()
        found = self.log.max_timestamp_offset()
        expected = max(records, key=lambda record: (record[1], -record[0]), default=None)
        assert (found[:2] if found else None) == expected

    def _records(self) -> list[tuple[int, int]]:
        pairs = [(item.base_offset + delta, ms) for item in self.batches for delta, ms in enumerate(item.timestamps_ms)]
        return [(offset, ms) for offset, ms in pairs if offset >= self.start]


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
