"""The batches of a fetch that a `read_committed` reader skips."""

from collections import deque
from collections.abc import Iterable, Iterator

from rookery.base.types import Buffer, Offset, ProducerId
from rookery.records.batch import iterate_headers
from rookery.records.control import ControlType, control_type


def aborted_batches(data: Buffer, aborted: Iterable[tuple[ProducerId, Offset]]) -> Iterator[range]:
    """Yield the offsets of the batches of aborted transactions. `aborted` has their producers and first offsets.

    A producer's records are aborted from the first offset to its abort marker.
    """
    waiting = deque(sorted(aborted, key=lambda transaction: transaction[1]))
    skipped: set[ProducerId] = set()
    view = memoryview(data)
    for start, header in iterate_headers(view):
        while waiting and waiting[0][1] <= header.last_offset:
            skipped.add(waiting.popleft()[0])
        if not header.is_control:
            if header.is_transactional and header.producer_id in skipped:
                yield range(header.base_offset, header.last_offset + 1)
        elif control_type(view[start : start + header.size_bytes]) == ControlType.ABORT:
            skipped.discard(header.producer_id)
