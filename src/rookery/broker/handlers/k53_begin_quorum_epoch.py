"""BeginQuorumEpoch (53): a new leader of the quorum announces itself to a voter that does not fetch yet (KIP-595).

`quorum.core` decides.

Versions: v1 flexible, the directory id of the voter and the leader's endpoints (KIP-853).
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse


async def handle(context: ClusterContext, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    return await context.services.quorum.receive(ApiKey.BEGIN_QUORUM_EPOCH, request)
