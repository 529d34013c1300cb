"""EndTxn (26): commit or abort a transaction.

The response is sent when the outcome is certain: when the coordinator's record of it is committed. The markers follow.
Until the last one is written, a new transaction of the same producer gets CONCURRENT_TRANSACTIONS, and so does a retry
of this request; after that, the retry gets the same response as the first request.

Versions: v2 may return PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v3 flexible. v4 may return
TRANSACTION_ABORTABLE, which never happens here. v5 (KIP-890) every transaction has its own epoch: the response has the
id and epoch of the next one, and a transaction that the coordinator does not know may be aborted.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.broker.answers import code_known_to, respond
from rookery.broker.context import RequestContext
from rookery.coordinators.txn.results import EndRequest, EndResult
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_BUMP
from rookery.protocol.messages import EndTxnRequest, EndTxnResponse

_FENCED_SINCE = 2
_EPOCH_BUMP_SINCE = 5


def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    version = context.api_version
    ended = context.services.transactions.end(
        EndRequest(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            commit=request.committed,
            client_version=EPOCH_BUMP if version >= _EPOCH_BUMP_SINCE else CLASSIC,
        )
    )
    return respond(ended, lambda result: _respond(version, result))


def _respond(version: int, result: EndResult | ErrorCode) -> EndTxnResponse:
    if isinstance(result, ErrorCode):
        result = EndResult(result)
    return EndTxnResponse(
        error_code=code_known_to(version, result.error_code, fenced_since=_FENCED_SINCE),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )
