"""Batches that were packed before they were queued, and the memory that several of them share.

`client.arrow` packs many batches in one pass into one buffer, and they are sent from it without a copy. `buffer.memory`
counts each batch alone, but a single one keeps the whole buffer alive. So when most of a buffer is settled, the batches
that still wait copy their payloads out of it. Batches on the wire do not: their responses are due soon, and a batch
that is retried copies its payload then.

Pure. `client.arrow` creates a `SharedBuffer` for each pass, `batches` adds and removes batches.
"""

from typing import NamedTuple, Protocol

from rookery.base.types import Buffer, TimestampMs

# The rest of a shared buffer is copied when it is at most one part in this many.
_COPY_DIVISOR = 4


class SharingBatch(Protocol):
    """A batch whose payload is a slice of a shared buffer."""

    is_on_wire: bool

    def copy_payload(self) -> None: ...


class SharedBuffer:
    """Tracks which batches use a buffer. Call `grow` for each batch as it is packed, and `complete` after the last."""

    __slots__ = ("_batches", "_held_bytes", "_is_complete", "_size_bytes")

    def __init__(self) -> None:
        self._size_bytes = 0
        self._held_bytes = 0
        self._is_complete = False
        self._batches: dict[int, tuple[SharingBatch, int]] = {}

    def grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes

    def complete(self) -> None:
        self._is_complete = True
        self._copy_rest()

    def add(self, batch: SharingBatch, size_bytes: int) -> None:
        self._batches[id(batch)] = (batch, size_bytes)
        self._held_bytes += size_bytes

    def remove(self, batch: SharingBatch) -> None:
        """Remove a batch that is settled or has copied its payload."""
        _, size_bytes = self._batches.pop(id(batch))
        self._held_bytes -= size_bytes
        self._copy_rest()

    def _copy_rest(self) -> None:
        if self._is_complete and self._held_bytes * _COPY_DIVISOR <= self._size_bytes:
            for batch, _ in list(self._batches.values()):
                if id(batch) in self._batches and not batch.is_on_wire:
                    batch.copy_payload()


class PackedBatch(NamedTuple):
    """Records that `client.arrow` packed and compressed: the bytes after a batch's header."""

    payload: Buffer
    record_count: int
    base_timestamp_ms: TimestampMs
    max_timestamp_ms: TimestampMs
    uncompressed_size: int
    record_size_max: int
    # The buffer of which the payload is a slice, or None if the payload has its own memory.
    shared_buffer: SharedBuffer | None = None
