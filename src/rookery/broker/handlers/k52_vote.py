"""Vote (52): a candidate for the quorum's next epoch asks a voter for its vote, or whether it would get it (KIP-595).

`quorum.core` decides.

Versions: v1 directory ids of both replicas, and the endpoints of the leader in the response (KIP-853). v2 the question
whether the voter would grant its vote (KIP-996).
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import VoteRequest, VoteResponse


async def handle(context: ClusterContext, request: VoteRequest) -> VoteResponse:
    return await context.services.quorum.receive(ApiKey.VOTE, request)
