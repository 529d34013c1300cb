"""EndQuorumEpoch (54): a leader of the quorum that stops asks the voters to elect another one (KIP-595).

The request lists the preferred successors, best first. `quorum.core` decides.

Versions: v1 flexible, successors with directory ids and the leader's endpoints (KIP-853).
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import EndQuorumEpochRequest, EndQuorumEpochResponse


async def handle(context: ClusterContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    return await context.services.quorum.receive(ApiKey.END_QUORUM_EPOCH, request)
