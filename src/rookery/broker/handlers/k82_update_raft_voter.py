"""UpdateRaftVoter (82): a voter reports its own endpoints and supported versions to the leader (KIP-853).

Versions: v0.
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import UpdateRaftVoterRequest, UpdateRaftVoterResponse


async def handle(context: ClusterContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    return await context.services.quorum.receive(ApiKey.UPDATE_RAFT_VOTER, request)
