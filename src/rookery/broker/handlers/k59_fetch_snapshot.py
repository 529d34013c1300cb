"""FetchSnapshot (59): a piece of a snapshot, for a replica whose log ends before the leader's begins (KIP-630).

`quorum.core` decides, `quorum.snapshots` reads the file.

Versions: v1 the directory id of the replica (KIP-853).
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import FetchSnapshotRequest, FetchSnapshotResponse


async def handle(context: ClusterContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    return await context.services.quorum.receive(ApiKey.FETCH_SNAPSHOT, request)
