"""What time does: it ends transactions that take too long, and removes transactional ids that nobody uses.

Both are measured with the wall clock, since both outlive a process. If that is set back to before a transaction's
beginning, the transaction's time begins anew, so that no clock can make it last for ever.
"""

from collections.abc import Iterable

from rookery.base.types import TimestampMs
from rookery.coordinators.result import CoordinatorResult, Timer
from rookery.coordinators.txn.end_txn import fenced
from rookery.coordinators.txn.records import TransactionRecord
from rookery.coordinators.txn.results import markers_of
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.states import IDLE, State
from rookery.coordinators.txn.timers import TimeoutTimer
from rookery.coordinators.txn.transaction import Transaction


def timed_out(transactions: Iterable[Transaction], now_ms: TimestampMs) -> list[Timer]:
    return [
        Timer(TimeoutTimer(each.transactional_id, each.producer_id, each.producer_epoch), 0)
        for each in transactions
        if _is_over(each, now_ms) or _is_ahead(each, now_ms)
    ]


def on_timeout(
    transaction: Transaction | None, key: TimeoutTimer, transaction_version: int, now_ms: TimestampMs
) -> CoordinatorResult[None]:
    """Unless the transaction that was found came to its end meanwhile."""
    if transaction is None or (key.producer_id, key.producer_epoch) != (
        transaction.producer_id,
        transaction.producer_epoch,
    ):
        return CoordinatorResult(response=None)
    if _is_ahead(transaction, now_ms):
        return _decided(transaction.moved(State.ONGOING, now_ms, start_ms=now_ms))
    if _is_over(transaction, now_ms):
        return _decided(fenced(transaction, now_ms, transaction_version, keeps_instance=True))
    return CoordinatorResult(response=None)


def _decided(transaction: Transaction) -> CoordinatorResult[None]:
    return CoordinatorResult(
        response=None,
        records=[TransactionRecord(transaction.transactional_id, transaction)],
        effects=[markers_of(transaction)] if transaction.is_prepared else (),
    )


def _is_over(transaction: Transaction, now_ms: TimestampMs) -> bool:
    return transaction.state is State.ONGOING and transaction.start_ms + transaction.timeout_ms < now_ms


def _is_ahead(transaction: Transaction, now_ms: TimestampMs) -> bool:
    return transaction.state is State.ONGOING and transaction.start_ms > now_ms


def expire(
    transactions: Iterable[Transaction], settings: TransactionSettings, now_ms: TimestampMs
) -> list[TransactionRecord]:
    """Tombstones."""
    return [
        TransactionRecord(each.transactional_id, None)
        for each in transactions
        if each.state in IDLE and each.update_ms + settings.expiration_ms <= now_ms
    ]
