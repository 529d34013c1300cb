"""InitProducerId (22): an id and epoch for an idempotent producer.

Every request gets a new id with epoch 0; the id and epoch that a producer had before (v3) only matter with a
transactional id. Transactional ids are refused with UNSUPPORTED_VERSION, which ends the producer with a clear error,
as there are no transactions here; an empty one is INVALID_REQUEST.

Versions: v2 flexible. v3 the former id and epoch, of which both or none must be given. v4 may answer PRODUCER_FENCED.
v5 and v6 concern transactions.
"""

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_ID
from rookery.broker.context import RequestContext
from rookery.protocol.message import Message

_NO_EPOCH = -1


async def handle(context: RequestContext, request: Message) -> Message:
    former_id = request.get("producer_id", NO_PRODUCER_ID)
    former_epoch = request.get("producer_epoch", _NO_EPOCH)
    if (former_id == NO_PRODUCER_ID) != (former_epoch == _NO_EPOCH) or request.transactional_id == "":
        return _answer(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _answer(ErrorCode.UNSUPPORTED_VERSION)
    code, producer_id = await context.services.producer_ids.take()
    return _answer(code, producer_id, 0 if code is ErrorCode.NONE else _NO_EPOCH)


def _answer(code: ErrorCode, producer_id: int = NO_PRODUCER_ID, epoch: int = _NO_EPOCH) -> Message:
    return Message(throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=epoch)
