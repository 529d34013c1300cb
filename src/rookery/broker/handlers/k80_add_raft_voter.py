"""AddRaftVoter (80): make a controller that follows the metadata log a voter of the quorum (KIP-853).

The response is sent when the new set of voters is committed.

Versions: v1 may ask for the response when the change is in the leader's log (KIP-1186).
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import AddRaftVoterRequest, AddRaftVoterResponse


async def handle(context: ClusterContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    return await context.services.quorum.receive(ApiKey.ADD_RAFT_VOTER, request)
