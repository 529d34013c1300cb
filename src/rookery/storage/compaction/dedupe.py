"""Which records of a compacted log stay: pure, batch by batch.

Theory of operation. One pass over the dirty part fills an `OffsetMap`: key -> offset of its latest record. A second
pass, over everything from the log's start to the end of the mapped range, sends each batch through a `BatchFilter`:
- a record stays if it is the latest of its key, or lies after the mapped range;
- a tombstone that stays is dropped later: the first cleaning writes now + `delete.retention.ms` into its batch as the
  delete horizon (KIP-534), and a cleaning after that moment drops it, so that readers have had time to see it;
- a transaction's marker is dropped in the same way once no batch of the transaction is left; data of aborted
  transactions is dropped immediately;
- offsets never change: a batch keeps its base offset and its last offset delta, whatever is left in it;
- a producer's last batch stays as an empty header, since it carries the producer's last sequence number; so does the
  last batch of the cleaned range, since it carries the offset that the range ends with.

The work is Python code, record by record, in a thread that shares the interpreter with the event loop. So a batch of
the mapped range of which all or nothing stays is not decoded a second time, the records that stay of other batches are
copied, and long calls are split.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from rookery.base.types import NO_OFFSET, NO_TIMESTAMP, Buffer, Offset, ProducerEpoch, ProducerId, TimestampMs
from rookery.base.values import value_class
from rookery.records.batch import BatchHeader, Codec, make_attributes, seal
from rookery.records.compression import DECOMPRESSED_SIZE_MAX, compress
from rookery.records.control import ControlType, control_type
from rookery.records.keys import PLAIN_KEY_SIZE_MAX, Keys, read_bounds, read_keys, read_timestamp_deltas
from rookery.records.record import open_records, read_span, rebase_span, record_timestamp
from rookery.storage.config import FOREVER_MS

# Measured: a short key or a digest, an offset and their share of a dictionary that has just been resized.
ENTRY_SIZE_BYTES = 208
# Longer than any key that is stored unchanged, so that no key can equal the digest of another one.
_DIGEST_SIZE = PLAIN_KEY_SIZE_MAX + 1
_BUCKET_BITS = 14
_AFTER_THE_RANGE: Offset = 2**63 - 1


class OffsetMap:
    """Key -> offset of its latest record, over the batches from `first_offset` to `latest_offset`.

    Short keys are stored unchanged, long ones as digests. An entry is twice the offset, plus one for a tombstone:
    sorted by offset, the entries show what stays of a mapped batch without decoding it.
    """

    __slots__ = ("_buckets", "_entries", "_entries_max", "first_offset", "has_tombstones", "latest_offset")

    def __init__(self, memory_bytes_max: int, *, first_offset: Offset = 0) -> None:
        self._entries_max = max(1, memory_bytes_max // ENTRY_SIZE_BYTES)
        self._entries: dict[bytes | None, int] = {}
        # Sorted entries, by their upper bits.
        self._buckets: dict[int, list[int]] = {}
        # Whether a tombstone was ever added.
        self.has_tombstones = False
        self.first_offset = first_offset
        self.latest_offset: Offset = first_offset - 1

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        """Whether no more batches should be added; one batch may exceed the limit, so that there is always progress."""
        return len(self._entries) >= self._entries_max

    def add_batch(self, header: BatchHeader, data: Buffer, *, size_max: int) -> None:
        """Add the keys of a batch's records from `first_offset` on."""
        found = read_keys(open_records(header, data, size_max=size_max), header)
        keys, offsets, entries = _identities(found), found.offsets, self._entries
        self._buckets = {}
        if header.base_offset < self.first_offset:
            skipped = bisect_left(offsets, self.first_offset)
            keys[:skipped] = [None] * skipped
        if isinstance(offsets, range):
            entries.update(zip(keys, range(2 * offsets.start, 2 * offsets.stop, 2), strict=True))
        else:
            entries.update(zip(keys, [2 * offset for offset in offsets], strict=True))
        self.has_tombstones |= bool(found.tombstones)
        for index in found.tombstones:
            if entries[keys[index]] == 2 * offsets[index]:
                entries[keys[index]] += 1
        entries.pop(None, None)

    def survivors(self, header: BatchHeader) -> Sequence[int] | None:
        """Return the entries of a mapped batch's records that are the latest of their keys; None for other batches."""
        if not self.first_offset <= header.base_offset <= self.latest_offset:
            return None
        start, end = 2 * header.base_offset, 2 * header.last_offset + 2
        found: list[int] = []
        buckets = self._buckets or self._fill_buckets()
        for number in range(start >> _BUCKET_BITS, (end - 1 >> _BUCKET_BITS) + 1):
            bucket = buckets.get(number, ())
            found += bucket[bisect_left(bucket, start) : bisect_left(bucket, end)]
        return found

    def _fill_buckets(self) -> dict[int, list[int]]:
        """Sort the entries in buckets: one sort of all of them would block the event loop for too long."""
        buckets: dict[int, list[int]] = defaultdict(list)
        for entry in self._entries.values():
            buckets[entry >> _BUCKET_BITS].append(entry)
        for bucket in buckets.values():
            bucket.sort()
        self._buckets = buckets
        return buckets

    def not_superseded(self, found: Keys) -> list[int]:
        """Return the indexes of the records that have a key for which the map has no later record."""
        keys, entries = _identities(found), self._entries
        if found.are_plain and entries.keys().isdisjoint(keys):
            return list(range(len(keys)))
        return [
            index
            for index, (key, offset) in enumerate(zip(keys, found.offsets, strict=True))
            if key is not None and entries.get(key, NO_OFFSET) >> 1 <= offset
        ]


def _identities(found: Keys) -> list[bytes | None]:
    return found.keys if found.are_plain else [key if key is None else _identity(key) for key in found.keys]


def _identity(key: bytes) -> bytes:
    return key if len(key) <= PLAIN_KEY_SIZE_MAX else blake2b(key, digest_size=_DIGEST_SIZE).digest()


class AbortedTransactions:
    """The offset ranges of aborted transactions; filled by one pass over the headers of a stable range.

    Every transaction that begins in the range has ended, some of them after it: those are noted last, by `note_beyond`.
    """

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

    def note_beyond(self, producer_id: ProducerId, first_offset: Offset) -> None:
        """Note a transaction whose abort marker is after the range: its data would pass for the latest of its keys."""
        self._first_offsets[producer_id].append(first_offset)
        self._last_offsets[producer_id].append(_AFTER_THE_RANGE)

    def contains(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional or header.producer_id not in self._first_offsets:
            return False
        slot = bisect_right(self._first_offsets[header.producer_id], header.base_offset) - 1
        return slot >= 0 and header.base_offset <= self._last_offsets[header.producer_id][slot]


class LastRecord(NamedTuple):
    """The end of a producer's history in a log."""

    # The last offset of its last data batch, -1 if only a transaction's marker is left of it.
    data_offset: Offset
    epoch: ProducerEpoch


@value_class(kw_only=True)
class FilterSettings:
    now_ms: TimestampMs
    delete_retention_ms: int
    # `max.message.bytes`: a batch must not exceed it just because of a delete horizon.
    batch_size_max: int
    # The offset at which the cleaned range ends.
    end_offset: Offset
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX


class _Selection(NamedTuple):
    """What stays of a batch: the indexes of the records, and the positions of all records (see `Keys`)."""

    bounds: list[int]
    kept: Sequence[int]
    has_tombstones: bool = False


class BatchFilter:
    """Applies the rules above to the batches of a range, which must be passed in order."""

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
        # Producers with a data batch since their last marker.
        self._with_data: set[ProducerId] = set()

    def clean(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        """Return what is left of a batch: `data` itself if everything is, None if nothing is."""
        if header.is_control:
            return self._clean_control(header, data)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        if self._aborted.contains(header):
            return self._emptied(header)
        if header.base_offset > self._offsets.latest_offset:
            # After the mapped range, which ends with a batch: the next cleaning decides about these records.
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
        payload = open_records(header, data)
        everything = _Selection(read_bounds(payload, header.record_count), range(header.record_count))
        return self._rewritten(header, payload, everything, sets_horizon=True)

    def _clean_data(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        survivors = self._offsets.survivors(header)
        if survivors is not None:
            # Most batches end here, in logs with few keys (nothing stays) and with many (everything does), without
            # decoding.
            if not survivors:
                return self._emptied(header)
            if len(survivors) == header.record_count and not self._has_tombstone(survivors):
                return data
        payload = open_records(header, data, size_max=self._settings.decompressed_size_max)
        selection = self._select(header, payload, survivors)
        if not selection.kept:
            return self._emptied(header)
        sets_horizon = header.delete_horizon_ms is None and selection.has_tombstones
        dropped_any = len(selection.kept) < header.record_count
        if not dropped_any and not sets_horizon:
            return data
        batch = self._rewritten(header, payload, selection, sets_horizon=sets_horizon)
        if sets_horizon and len(batch) > max(header.size_bytes, self._settings.batch_size_max):
            # The horizon makes every timestamp delta longer. A batch larger than the limit would be worse than
            # tombstones that are never dropped.
            return self._rewritten(header, payload, selection, sets_horizon=False) if dropped_any else data
        return batch

    def _has_tombstone(self, survivors: Sequence[int]) -> bool:
        return self._offsets.has_tombstones and any(entry & 1 for entry in survivors)

    def _select(self, header: BatchHeader, payload: bytes, survivors: Sequence[int] | None) -> _Selection:
        """Return which records of a batch stay."""
        if survivors is not None and header.record_count == header.last_offset_delta + 1:
            # Every offset has its record.
            bounds = read_bounds(payload, header.record_count)
            kept = [(entry >> 1) - header.base_offset for entry in survivors]
            tombstones = set()
            if self._has_tombstone(survivors):
                tombstones = {index for index, entry in zip(kept, survivors, strict=True) if entry & 1}
        else:
            found = read_keys(payload, header)
            bounds, kept = found.bounds, self._offsets.not_superseded(found)
            tombstones = set(found.tombstones)
        if tombstones and self._is_expired(header):
            kept = [index for index in kept if index not in tombstones]
        return _Selection(bounds, kept, has_tombstones=not tombstones.isdisjoint(kept))

    def _is_expired(self, header: BatchHeader) -> bool:
        return header.delete_horizon_ms is not None and header.delete_horizon_ms <= self._settings.now_ms

    def _rewritten(
        self, header: BatchHeader, payload: bytes, selection: _Selection, *, sets_horizon: bool
    ) -> bytearray:
        """Return the batch with the selected records, which are copied, not encoded again."""
        base_ms, attributes, bounds = header.base_timestamp_ms, header.attributes, selection.bounds
        if sets_horizon:
            base_ms = min(self._settings.now_ms + self._settings.delete_retention_ms, FOREVER_MS)
            attributes |= make_attributes(Codec.NONE, delete_horizon=True)
            shift_ms = header.base_timestamp_ms - base_ms
            spans = [read_span(payload, bounds[index]) for index in selection.kept]
            parts: list[Buffer] = [rebase_span(payload, span, span.timestamp_delta_ms + shift_ms) for span in spans]
        else:
            parts = [payload[bounds[index] : bounds[index + 1]] for index in selection.kept]
        max_timestamp_ms = header.max_timestamp_ms
        if not header.is_log_append_time:
            deltas_ms = read_timestamp_deltas(payload, [bounds[index] for index in selection.kept])
            max_timestamp_ms = max(record_timestamp(header, delta_ms) for delta_ms in deltas_ms)
        left = header._replace(
            attributes=attributes,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_timestamp_ms,
            record_count=len(selection.kept),
        )
        return seal(left, compress(Codec(header.codec_id), b"".join(parts)))

    def _emptied(self, header: BatchHeader) -> bytearray | None:
        """Return an empty header for a batch that must not vanish, None for others.

        These are the last batch of the range, which carries its end offset, and that of a producer: without it,
        recovery would not find the last sequence number, and a retry of the producer would be appended twice.
        """
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
