"""A replay without pauses."""

from collections.abc import Iterable

from rookery.base.types import Offset
from rookery.metadata.loader import Loaded, MetadataLoader


def replay(
    loader: MetadataLoader,
    batches: Iterable[tuple[Offset, Iterable[bytes]]],
    *,
    snapshot: Iterable[bytes] = (),
    snapshot_end: Offset = 0,
) -> Loaded:
    steps = loader.replay(batches, snapshot=list(snapshot), snapshot_end=snapshot_end)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        loaded: Loaded = end.value
        return loaded
