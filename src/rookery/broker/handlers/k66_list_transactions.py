"""ListTransactions (66): the transactional ids that this broker coordinates, with their producers and states.

A transaction must match all filters. Unknown states match nothing and are listed in the response. While one of the
coordinator's partitions is being loaded, the response is COORDINATOR_LOAD_IN_PROGRESS.

Versions: v0 filters of states and producer ids, flexible. v1 a duration in milliseconds, for transactions that have
been open for longer; below 0 is none. v2 a pattern for whole transactional ids, in RE2's syntax:
INVALID_REGULAR_EXPRESSION if it is malformed; null or empty is none (KIP-1152).
"""

from collections.abc import Iterable

from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.coordinators import regex
from rookery.coordinators.txn.results import ListedTransaction, ListFilters
from rookery.coordinators.txn.states import STATES_BY_LABEL
from rookery.protocol.messages import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)

_NO_DURATION = -1


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern = request.get("transactional_id_pattern")
    if pattern and regex.problem(pattern) is not None:
        return _respond(ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = frozenset(STATES_BY_LABEL[name] for name in request.state_filters if name in STATES_BY_LABEL)
    unknown = [name for name in request.state_filters if name not in STATES_BY_LABEL]
    if unknown and not states:
        return _respond(ErrorCode.NONE, unknown)
    listed = context.services.transactions.list(
        ListFilters(
            states=states,
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.get("duration_filter", _NO_DURATION),
            matches=regex.matcher(pattern) if pattern else None,
        )
    )
    if isinstance(listed, ErrorCode):
        return _respond(listed)
    return _respond(ErrorCode.NONE, unknown, listed)


def _respond(
    code: ErrorCode, unknown: Iterable[str] = (), listed: Iterable[ListedTransaction] = ()
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=code,
        unknown_state_filters=list(unknown),
        transaction_states=[
            ListTransactionsResponseTransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for each in listed
        ],
    )
