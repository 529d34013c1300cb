"""DescribeQuorum (55): leader, epoch and high watermark of the metadata log, and how far each replica has fetched it.

Only the leader of the quorum knows that, so brokers forward the request to it (KIP-642).

Versions: v1 times of the last fetch and of the last moment when a replica was caught up (KIP-836). v2 directory ids,
endpoints of the voters, error messages (KIP-853).
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse


async def handle(context: ClusterContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return await context.services.quorum.receive(ApiKey.DESCRIBE_QUORUM, request)
