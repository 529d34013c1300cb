"""Downloads a snapshot of the leader in pieces, and installs it in the place of this node's log (FetchSnapshot).

The pieces are written to a file that is not a snapshot yet. It becomes one only after all of it was checked and synced.
"""

from collections.abc import Callable
from typing import NamedTuple

import structlog

from rookery.base.errors import ApiError, CorruptionError
from rookery.base.types import LeaderEpoch, NodeId
from rookery.net.peers import Peers
from rookery.protocol.api import ApiKey
from rookery.quorum import wire
from rookery.quorum.log_view import LogPosition
from rookery.quorum.replica_log import ReplicaLog
from rookery.quorum.snapshots import Snapshot
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import ReplicaKey
from rookery.quorum.wire import WireError

logger = structlog.get_logger(__name__)


class Source(NamedTuple):
    """The leader to download from, and what this node says about itself."""

    peers: Peers
    leader_id: NodeId
    epoch: LeaderEpoch
    me: ReplicaKey
    cluster_id: str
    settings: QuorumSettings


async def download(
    log: ReplicaLog,
    source: Source,
    position: LogPosition,
    *,
    on_progress: Callable[[], None],
    is_wanted: Callable[[], bool],
) -> Snapshot | None:
    """Download and install the snapshot that ends at `position`; None if that failed or is not `is_wanted` any more.

    `on_progress` is called for each piece. StorageError if the disk fails.
    """
    try:
        file = await log.begin_download(position)
        size, received = 1, 0
        while received < size:
            piece = await _fetch_piece(source, position, received)
            if not is_wanted():
                return None
            if piece.position != received or not piece.data:
                raise CorruptionError(f"the leader sent bytes from {piece.position} on, {received} was requested")
            await log.write_piece(file, piece.data)
            size, received = piece.size, received + len(piece.data)
            on_progress()
        snapshot = await log.install(file, position, is_wanted)
    except (ApiError, WireError, CorruptionError) as error:
        # The core backs off, and fetches again: the leader then names a snapshot that it has.
        logger.warning("downloading a metadata snapshot failed", end_offset=position.offset, reason=str(error))
        return None
    if snapshot is not None:
        logger.info("installed a metadata snapshot of the leader", end_offset=position.offset, size_bytes=size)
    return snapshot


async def _fetch_piece(source: Source, position: LogPosition, at: int) -> wire.SnapshotPiece:
    settings = source.settings
    request = wire.snapshot_request(
        source.me,
        source.epoch,
        position,
        at,
        cluster_id=source.cluster_id,
        max_bytes=settings.fetch_snapshot_max_bytes,
    )
    timeout_s = settings.request_timeout_ms / 1000
    response = await source.peers.request(source.leader_id, ApiKey.FETCH_SNAPSHOT, request, timeout_s=timeout_s)
    return wire.decode_snapshot_response(response)
