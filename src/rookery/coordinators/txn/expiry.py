"""Time-outs of transactions, and expiry of unused transactional ids.

Both are measured by the wall clock, since both outlive a process. If the clock is set back to before a transaction's
start, the transaction's time starts again: it would otherwise stay open until the clock has caught up.
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
        if _has_timed_out(each, now_ms) or _starts_in_future(each, now_ms)
    ]


def on_timeout(
    transaction: Transaction | None, key: TimeoutTimer, transaction_version: int, now_ms: TimestampMs
) -> CoordinatorResult[None]:
    """Abort a transaction that was found timed out, unless it has ended since."""
    if transaction is None or (key.producer_id, key.producer_epoch) != (
        transaction.producer_id,
        transaction.producer_epoch,
    ):
        return CoordinatorResult(response=None)
    if _starts_in_future(transaction, now_ms):
        return _written(transaction.moved(State.ONGOING, now_ms, start_ms=now_ms))
    if _has_timed_out(transaction, now_ms):
        return _written(fenced(transaction, now_ms, transaction_version, keep_last_epoch=True))
    return CoordinatorResult(response=None)


def _written(transaction: Transaction) -> CoordinatorResult[None]:
    return CoordinatorResult(
        response=None,
        records=[TransactionRecord(transaction.transactional_id, transaction)],
        effects=[markers_of(transaction)] if transaction.is_prepared else (),
    )


def _has_timed_out(transaction: Transaction, now_ms: TimestampMs) -> bool:
    return transaction.state is State.ONGOING and transaction.start_ms + transaction.timeout_ms < now_ms


def _starts_in_future(transaction: Transaction, now_ms: TimestampMs) -> bool:
    return transaction.state is State.ONGOING and transaction.start_ms > now_ms


def expire(
    transactions: Iterable[Transaction], settings: TransactionSettings, now_ms: TimestampMs
) -> list[TransactionRecord]:
    """Return the tombstones of transactional ids that have been unused for longer than their expiration time."""
    return [
        TransactionRecord(each.transactional_id, None)
        for each in transactions
        if each.state in IDLE and each.update_ms + settings.expiration_ms <= now_ms
    ]
