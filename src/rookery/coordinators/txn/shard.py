"""All transactional ids of one partition of `__transaction_state`.

The entry point of the pure core: each method takes a request as plain values and returns a `CoordinatorResult`, or the
plain response where it only reads. State changes only by `replay` of written records.

A decision that ends a transaction has the effect `SendMarkers`. Its executor calls `complete` when all markers are
written. After loading, `on_loaded` returns the effect again for every transaction that is prepared and not complete.
"""

from collections.abc import Callable
from enum import Enum

from rookery.base.errors import ErrorCode
from rookery.base.types import ProducerId, TimestampMs
from rookery.coordinators.result import CoordinatorResult, Timer, TimerKey
from rookery.coordinators.txn import describe, end_txn, expiry, init, partitions
from rookery.coordinators.txn.records import (
    FLEXIBLE_VERSION,
    PLAIN_VERSION,
    TransactionRecord,
    decode_record,
    encode_record,
)
from rookery.coordinators.txn.results import (
    AddRequest,
    DescribedTransaction,
    EndRequest,
    EndResult,
    InitRequest,
    InitResult,
    ListedTransaction,
    ListFilters,
    NeedsProducerId,
    SendMarkers,
    VerifiedPartitions,
    markers_of,
)
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.states import IDLE, can_move
from rookery.coordinators.txn.timers import AbortTimer, ExpiryTimer, TimeoutTimer
from rookery.coordinators.txn.transaction import CLASSIC, Transaction


class VolatileChange(Enum):
    """The state that the log does not carry."""

    LOADED = "loaded"


class TransactionShard:
    """`transaction_version` returns the present level of the cluster's feature transaction.version."""

    def __init__(self, settings: TransactionSettings, *, transaction_version: Callable[[], int]) -> None:
        self.settings = settings
        self._transaction_version = transaction_version
        self.transactions: dict[str, Transaction] = {}
        self._is_loaded = False

    # The runtime's protocol

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        # The plain version has no fields for the newer protocol. A transaction that was ended by it keeps them, even if
        # the feature's level has been lowered: without them its retries and markers would be taken for classic ones.
        is_newer = record.transaction is not None and record.transaction.client_version != CLASSIC
        version = FLEXIBLE_VERSION if is_newer or self._transaction_version() else PLAIN_VERSION
        return encode_record(record, version=version)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def replay(self, record: TransactionRecord) -> None:
        transactional_id, transaction = record
        before = self.transactions.get(transactional_id)
        if transaction is None:
            assert before is None or before.state in IDLE or not self._is_loaded
            self.transactions.pop(transactional_id, None)
            return
        is_allowed = can_move(before.state if before is not None else None, transaction.state)
        assert is_allowed or not self._is_loaded, f"{before} cannot become {transaction}"
        self.transactions[transactional_id] = transaction

    def replay_pending(self, record: TransactionRecord, producer_id: ProducerId) -> None:
        """Ignore a transactional record: the coordinator writes none to this topic."""

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """Ignore a marker, which appears if a client has added this topic to its transaction."""

    def install(self, change: VolatileChange) -> None:
        assert change is VolatileChange.LOADED
        self._is_loaded = True

    def on_loaded(self, now_ms: TimestampMs) -> CoordinatorResult[None]:
        """Set the timers, and return the markers of all prepared transactions.

        The former coordinator may have written some of the markers or none. Without sending them again, the other
        partitions would stay open for ever.
        """
        timers = (
            Timer(AbortTimer(), self.settings.timeout_check_interval_ms),
            Timer(ExpiryTimer(), self.settings.expiration_check_interval_ms),
        )
        effects = [markers_of(each) for each in self.transactions.values() if each.is_prepared]
        return CoordinatorResult(
            response=None, timers=timers, volatile_changes=[VolatileChange.LOADED], effects=effects
        )

    def on_timer(self, key: TimerKey, now_ms: TimestampMs) -> CoordinatorResult[None]:
        match key:
            case AbortTimer():
                again = Timer(key, self.settings.timeout_check_interval_ms)
                return CoordinatorResult(
                    response=None, timers=[again, *expiry.timed_out(self.transactions.values(), now_ms)]
                )
            case TimeoutTimer():
                transaction = self.transactions.get(key.transactional_id)
                return expiry.on_timeout(transaction, key, self._transaction_version(), now_ms)
            case ExpiryTimer():
                records = expiry.expire(self.transactions.values(), self.settings, now_ms)
                again = Timer(key, self.settings.expiration_check_interval_ms)
                return CoordinatorResult(response=None, records=records, timers=(again,), divisible=True)
        raise AssertionError(f"unknown timer: {key}")

    # Producers

    def init(
        self, request: InitRequest, now_ms: TimestampMs, *, new_producer_id: ProducerId | None
    ) -> CoordinatorResult[InitResult | NeedsProducerId]:
        return init.init(
            self.transactions.get(request.transactional_id),
            request,
            settings=self.settings,
            transaction_version=self._transaction_version(),
            now_ms=now_ms,
            new_producer_id=new_producer_id,
        )

    def add_partitions(self, request: AddRequest, now_ms: TimestampMs) -> CoordinatorResult[VerifiedPartitions]:
        return partitions.add(self.transactions.get(request.transactional_id), request, now_ms)

    def verify_partitions(self, request: AddRequest) -> VerifiedPartitions | ErrorCode:
        return partitions.verify(self.transactions.get(request.transactional_id), request)

    def end(
        self, request: EndRequest, now_ms: TimestampMs, *, new_producer_id: ProducerId | None
    ) -> CoordinatorResult[EndResult | NeedsProducerId]:
        transaction = self.transactions.get(request.transactional_id)
        return end_txn.end(transaction, request, now_ms=now_ms, new_producer_id=new_producer_id)

    def complete(self, ended: SendMarkers, now_ms: TimestampMs) -> CoordinatorResult[ErrorCode]:
        return end_txn.complete(self.transactions.get(ended.transactional_id), ended.prepared, now_ms)

    # Tools

    def describe(self, transactional_id: str) -> DescribedTransaction | ErrorCode:
        return describe.describe(self.transactions.get(transactional_id), transactional_id)

    def list(self, filters: ListFilters, now_ms: TimestampMs) -> list[ListedTransaction]:
        return describe.list_filtered(self.transactions.values(), filters, now_ms)
