"""RemoveRaftVoter (81): remove a voter from the quorum (KIP-853). The response is sent when that is committed.

Versions: v0.
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import RemoveRaftVoterRequest, RemoveRaftVoterResponse


async def handle(context: ClusterContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    return await context.services.quorum.receive(ApiKey.REMOVE_RAFT_VOTER, request)
