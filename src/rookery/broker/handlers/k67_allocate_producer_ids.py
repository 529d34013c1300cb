"""AllocateProducerIds (67): a block of producer ids for a broker (KIP-730).

Versions: v0.
"""

from rookery.broker.context import ClusterContext
from rookery.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(context: ClusterContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    block = await context.services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(
        error_code=block.outcome.code, producer_id_start=block.first, producer_id_len=block.size
    )
