"""InitProducerId (22): an id and epoch for a producer, idempotent or transactional.

Without a transactional id every request gets a new id with epoch 0; the id and epoch that a producer had before are
ignored. With one, the coordinator returns the id that belongs to it, with a higher epoch than all before: older
instances are fenced. If one of them left a transaction open, it is aborted, and the response is CONCURRENT_TRANSACTIONS
until that has ended. An empty transactional id is INVALID_REQUEST, a time-out that is not above 0 or is above
`transaction.max.timeout.ms` INVALID_TRANSACTION_TIMEOUT.

Versions: v2 flexible. v3 the former id and epoch, both or none: a producer that continues after an error, and gets
PRODUCER_FENCED if another instance has started meanwhile. v4 may return that; before, it is INVALID_PRODUCER_EPOCH. v5
may return TRANSACTION_ABORTABLE, which never happens. v6 two-phase commit (KIP-939):
TRANSACTIONAL_ID_AUTHORIZATION_FAILED unless `transaction.two.phase.commit.enable` allows it, and UNSUPPORTED_VERSION
even then; keeping a prepared transaction is UNSUPPORTED_VERSION, too.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from rookery.broker.answers import code_known_to, respond
from rookery.broker.context import RequestContext
from rookery.coordinators.txn.results import InitRequest, InitResult
from rookery.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

_FENCED_SINCE = 4


def handle(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    producer_id = request.get("producer_id", NO_PRODUCER_ID)
    producer_epoch = request.get("producer_epoch", NO_PRODUCER_EPOCH)
    transactional_id = request.transactional_id
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH) or transactional_id == "":
        return _answer(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return _take_new_id(context)
    refusal = _refuse_two_phase_commit(context, request)
    if refusal is not None:
        return _answer(refusal)
    initialized = context.services.transactions.init_producer_id(
        InitRequest(
            transactional_id=transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    )
    return respond(initialized, lambda result: _respond(context.api_version, result))


async def _take_new_id(context: RequestContext) -> InitProducerIdResponse:
    code, producer_id = await context.services.producer_ids.take()
    return _answer(code, producer_id, 0 if code is ErrorCode.NONE else NO_PRODUCER_EPOCH)


def _refuse_two_phase_commit(context: RequestContext, request: InitProducerIdRequest) -> ErrorCode | None:
    if request.get("enable2_pc", False):
        is_allowed = context.services.config().boolean("transaction.two.phase.commit.enable")
        return ErrorCode.UNSUPPORTED_VERSION if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION if request.get("keep_prepared_txn", False) else None


def _respond(version: int, result: InitResult | ErrorCode) -> InitProducerIdResponse:
    if isinstance(result, ErrorCode):
        return _answer(result)
    code = code_known_to(version, result.error_code, fenced_since=_FENCED_SINCE)
    return _answer(code, result.producer_id, result.producer_epoch)


def _answer(
    code: ErrorCode, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
