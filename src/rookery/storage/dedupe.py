"""Which records of a compacted log stay: pure, batch by batch.

Theory of operation. One pass over the dirty part fills an `OffsetMap`: key -> offset of its latest record. A second
pass, over everything from the log's start to the end of the mapped range, sends each batch through a `BatchFilter`:
- a record stays if it is the latest of its key, or lies behind the mapped range;
- a tombstone that stays goes later: the first cleaning writes now + `delete.retention.ms` into its batch as the delete
  horizon (KIP-534), a cleaning after that moment drops it, so that readers have had the time to see it;
- a transaction's marker goes the same way once no batch of the transaction is left; data of aborted transactions goes
  at once;
- offsets never change: a batch keeps its base offset and its last offset delta, whatever is left in it;
- a producer's last batch stays as an empty header, since it carries the producer's last sequence number; so does the
  last batch of the cleaned range, since it carries the offset that the range ends with.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from rookery.base.types import NO_OFFSET, NO_TIMESTAMP, Buffer, Offset, ProducerEpoch, ProducerId, TimestampMs
from rookery.records.batch import BatchHeader, Codec, make_attributes, seal
from rookery.records.compression import DECOMPRESSED_SIZE_MAX, compress
from rookery.records.control import ControlType, control_type
from rookery.records.record import RecordSpan, iterate_spans, open_batch, rebase_span, record_timestamp
from rookery.storage.config import FOREVER_MS

# A 16-byte digest, an offset and their share of a dictionary that has just grown, as measured.
ENTRY_SIZE_BYTES = 192
_DIGEST_SIZE = 16


class OffsetMap:
    """Key -> offset of its latest record, over all batches up to `latest_offset`; keys are kept as digests."""

    __slots__ = ("_entries_max", "_offsets", "latest_offset")

    def __init__(self, memory_bytes_max: int) -> None:
        self._entries_max = max(1, memory_bytes_max // ENTRY_SIZE_BYTES)
        self._offsets: dict[bytes, Offset] = {}
        self.latest_offset: Offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """No further batch should be added. One batch may go over the limit, so that there is always progress."""
        return len(self._offsets) >= self._entries_max

    def add_batch(self, header: BatchHeader, data: Buffer, *, from_offset: Offset, size_max: int) -> None:
        """Enter the keys of a batch's records from `from_offset` on."""
        _, payload = open_batch(data, size_max=size_max)
        for span in iterate_spans(payload, header):
            offset = header.base_offset + span.offset_delta
            if span.key is not None and offset >= from_offset:
                self._offsets[_digest(span.key)] = offset

    def is_superseded(self, key: bytes, offset: Offset) -> bool:
        return self._offsets.get(_digest(key), NO_OFFSET) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()


class AbortedTransactions:
    """The offset ranges of aborted transactions; filled by one pass over the headers of a stable range."""

    def __init__(self) -> None:
        self._open: dict[ProducerId, Offset] = {}
        self._first_offsets: dict[ProducerId, list[Offset]] = defaultdict(list)
        self._last_offsets: dict[ProducerId, list[Offset]] = defaultdict(list)

    def note_data(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    def note_marker(self, header: BatchHeader, kind: int | None) -> None:
        first_offset = self._open.pop(header.producer_id, None)
        if kind == ControlType.ABORT and first_offset is not None:
            self._first_offsets[header.producer_id].append(first_offset)
            self._last_offsets[header.producer_id].append(header.last_offset)

    def contains(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional or header.producer_id not in self._first_offsets:
            return False
        slot = bisect_right(self._first_offsets[header.producer_id], header.base_offset) - 1
        return slot >= 0 and header.base_offset <= self._last_offsets[header.producer_id][slot]


class LastRecord(NamedTuple):
    """The end of a producer's history in a log."""

    # The last offset of its last data batch, -1 if only a transaction's marker is left of it.
    data_offset: Offset
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSettings:
    now_ms: TimestampMs
    delete_retention_ms: int
    # `max.message.bytes`: a delete horizon is not worth a batch that is larger than this.
    batch_size_max: int
    # The offset at which the cleaned range ends.
    end_offset: Offset
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX


class BatchFilter:
    """Applies the rules above to the batches of a range, which it must see in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        settings: FilterSettings,
        *,
        last_records: Mapping[ProducerId, LastRecord],
        aborted: AbortedTransactions,
    ) -> None:
        self._offsets = offsets
        self._settings = settings
        self._last_records = last_records
        self._aborted = aborted
        # Producers of which a data batch was seen since their last marker.
        self._with_data: set[ProducerId] = set()

    def clean(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        """What is left of a batch: `data` itself if all of it, None if nothing."""
        if header.is_control:
            return self._clean_control(header, data)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        if self._aborted.contains(header):
            return self._emptied(header)
        if header.base_offset > self._offsets.latest_offset:
            # Behind the mapped range, which ends with a batch.
            return data
        return self._clean_data(header, data)

    def _clean_control(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        kind = control_type(data)
        if kind is None:
            return self._emptied(header)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return data
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if has_data:
            return data
        if self._is_expired(header):
            return self._emptied(header)
        if header.delete_horizon_ms is not None:
            return data
        _, payload = open_batch(data)
        return self._rewritten(header, payload, list(iterate_spans(payload, header)), sets_horizon=True)

    def _clean_data(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        _, payload = open_batch(data, size_max=self._settings.decompressed_size_max)
        kept = [span for span in iterate_spans(payload, header) if self._stays(header, span)]
        if not kept:
            return self._emptied(header)
        sets_horizon = header.delete_horizon_ms is None and any(span.is_tombstone for span in kept)
        dropped_any = len(kept) < header.record_count
        if not dropped_any and not sets_horizon:
            return data
        batch = self._rewritten(header, payload, kept, sets_horizon=sets_horizon)
        if sets_horizon and len(batch) > max(header.size_bytes, self._settings.batch_size_max):
            # The horizon makes every timestamp delta longer. Tombstones that stay for good are the lesser evil.
            return self._rewritten(header, payload, kept, sets_horizon=False) if dropped_any else data
        return batch

    def _stays(self, header: BatchHeader, span: RecordSpan) -> bool:
        if span.key is None or self._offsets.is_superseded(span.key, header.base_offset + span.offset_delta):
            return False
        return not (span.is_tombstone and self._is_expired(header))

    def _is_expired(self, header: BatchHeader) -> bool:
        return header.delete_horizon_ms is not None and header.delete_horizon_ms <= self._settings.now_ms

    def _rewritten(
        self, header: BatchHeader, payload: bytes, kept: list[RecordSpan], *, sets_horizon: bool
    ) -> bytearray:
        """The batch with the records in `kept`, which are copied, not encoded anew."""
        base_ms, attributes = header.base_timestamp_ms, header.attributes
        if sets_horizon:
            base_ms = min(self._settings.now_ms + self._settings.delete_retention_ms, FOREVER_MS)
            attributes |= make_attributes(Codec.NONE, delete_horizon=True)
            shift_ms = header.base_timestamp_ms - base_ms
            parts: list[Buffer] = [rebase_span(payload, span, span.timestamp_delta_ms + shift_ms) for span in kept]
        else:
            parts = [memoryview(payload)[span.start : span.end] for span in kept]
        max_timestamp_ms = header.max_timestamp_ms
        if not header.is_log_append_time:
            max_timestamp_ms = max(record_timestamp(header, span) for span in kept)
        left = header._replace(
            attributes=attributes,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_timestamp_ms,
            record_count=len(kept),
        )
        return seal(left, compress(Codec(header.codec_id), b"".join(parts)))

    def _emptied(self, header: BatchHeader) -> bytearray | None:
        """A header without records, for the batches that must not vanish."""
        if not (self._is_last_of_producer(header) or header.last_offset + 1 == self._settings.end_offset):
            return None
        attributes = make_attributes(
            Codec.NONE,
            log_append_time=header.is_log_append_time,
            transactional=header.is_transactional,
            control=header.is_control,
        )
        return seal(header._replace(attributes=attributes, base_timestamp_ms=NO_TIMESTAMP, record_count=0), b"")

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset != NO_OFFSET:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch
