"""Allocation of producer ids to brokers, in blocks: one metadata record per thousand ids."""

from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId
from rookery.controller.decision import ControllerResult, registered_epoch_problem
from rookery.metadata.image import ClusterImage
from rookery.metadata.records import ProducerIdsRecord
from rookery.metadata.requests import OK, Outcome, ProducerIdBlock

BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = 2**63 - 1


def decide_allocate_producer_ids(
    image: ClusterImage, node_id: NodeId, broker_epoch: int
) -> ControllerResult[ProducerIdBlock]:
    problem = registered_epoch_problem(image, node_id, broker_epoch)
    if problem:
        return ControllerResult((), ProducerIdBlock(problem))
    first = image.next_producer_id
    if first > _PRODUCER_ID_MAX - BLOCK_SIZE:
        exhausted = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids of this cluster are used up")
        return ControllerResult((), ProducerIdBlock(exhausted))
    record = ProducerIdsRecord(node_id, broker_epoch, first + BLOCK_SIZE)
    return ControllerResult((record,), ProducerIdBlock(OK, first, BLOCK_SIZE))
