"""Batches that were packed elsewhere, and the memory that several of them share.

`client.arrow` packs many batches in one pass, into one piece of memory, and they are sent from there without a copy.
The buffer counts each batch alone, but one that stays keeps the whole piece. So what is left of a piece, once most of
it is settled, moves out: whatever waits is copied. What is on the wire is left alone: its answer is near, and if it has
to go again, it is copied then.

Pure. `client.arrow` makes a slab for each pass, `batches` and `accumulator` tell it who leaves.
"""

from typing import NamedTuple, Protocol

from rookery.base.types import Buffer, TimestampMs

# What is left of a slab is copied once it is at most this share of it.
_SHARE_TO_MOVE = 4


class Tenant(Protocol):
    """A batch whose payload lies in a slab."""

    is_on_wire: bool

    def move_out(self) -> None: ...


class Slab:
    """`grow` by each batch as it is packed, `complete` when there will be no more."""

    __slots__ = ("_held_bytes", "_is_complete", "_size_bytes", "_tenants")

    def __init__(self) -> None:
        self._size_bytes = 0
        self._held_bytes = 0
        self._is_complete = False
        self._tenants: dict[int, tuple[Tenant, int]] = {}

    def grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes

    def complete(self) -> None:
        self._is_complete = True
        self._tidy()

    def enter(self, tenant: Tenant, size_bytes: int) -> None:
        self._tenants[id(tenant)] = (tenant, size_bytes)
        self._held_bytes += size_bytes

    def leave(self, tenant: Tenant) -> None:
        """It is settled, or has a payload of its own by now."""
        _, size_bytes = self._tenants.pop(id(tenant))
        self._held_bytes -= size_bytes
        self._tidy()

    def _tidy(self) -> None:
        if self._is_complete and self._held_bytes * _SHARE_TO_MOVE <= self._size_bytes:
            for tenant, _ in list(self._tenants.values()):
                if id(tenant) in self._tenants and not tenant.is_on_wire:
                    tenant.move_out()


class SealedBatch(NamedTuple):
    """Records that were packed and compressed elsewhere (`client.arrow`): the bytes behind a batch's header."""

    payload: Buffer
    record_count: int
    base_timestamp_ms: TimestampMs
    max_timestamp_ms: TimestampMs
    uncompressed_size: int
    record_size_max: int
    # What the payload is a part of, unless it has memory of its own.
    slab: Slab | None = None
