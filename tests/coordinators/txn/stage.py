"""A transaction shard with a log in memory, two clocks, and markers that wait to be delivered.

The `Stage` implements the runtime and the service (append, replay, install, timers, effects, new producer ids)
without an event loop. The wall clock can be set; timers use the other one.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, TopicPartition
from rookery.coordinators.result import CoordinatorResult, TimerKey
from rookery.coordinators.txn.records import TransactionRecord
from rookery.coordinators.txn.results import (
    NEEDS_PRODUCER_ID,
    AddRequest,
    EndRequest,
    EndResult,
    InitRequest,
    InitResult,
    SendMarkers,
)
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.shard import TransactionShard
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import EPOCH_BUMP, Transaction

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 100
TX = "tx"
A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

Producer = tuple[int, int]
NO_PRODUCER: Producer = (-1, -1)


class Stage:
    """`markers` are the effects that have not been delivered."""

    def __init__(
        self, *stored: Transaction, transaction_version: int = 2, settings: TransactionSettings | None = None
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.transaction_version = transaction_version
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.log_works = True
        self.markers: list[SendMarkers] = []
        self._elapsed_ms = 0
        self._timers: dict[TimerKey, int] = {}
        self._producer_ids = count(FIRST_PRODUCER_ID)
        self.shard = self.new_shard()
        for each in stored:
            self._append(TransactionRecord(each.transactional_id, each))
        self.run(lambda shard, now_ms: shard.on_loaded(now_ms))

    def new_shard(self) -> TransactionShard:
        return TransactionShard(self.settings, transaction_version=lambda: self.transaction_version)

    @property
    def transaction(self) -> Transaction:
        return self.shard.transactions[TX]

    def state(self) -> State:
        return self.transaction.state

    def run(self, decide: Callable[[TransactionShard, int], CoordinatorResult[Any]]) -> Any:
        """Run a result. Return the response, or NOT_COORDINATOR if the log fails."""
        result = decide(self.shard, self.now_ms)
        if result.records and not self.log_works:
            return ErrorCode.NOT_COORDINATOR
        for record in result.records:
            self._append(record)
        for change in result.volatile_changes:
            self.shard.install(change)
        for timer in result.timers:
            assert timer.delay_ms is not None
            self._timers[timer.key] = self._elapsed_ms + timer.delay_ms
        self.markers += result.effects
        return result.response

    def _append(self, record: TransactionRecord) -> None:
        key, value = self.shard.encode(record)
        self.log.append((key, value))
        decoded = self.shard.decode(key, value)
        assert decoded is not None
        if self.transaction_version:
            assert decoded == TransactionRecord(record.transactional_id, in_log(record.transaction))
        self.shard.replay(record)

    def _run_with_id(self, decide: Callable[[TransactionShard, int, int | None], CoordinatorResult[Any]]) -> Any:
        response = self.run(lambda shard, now_ms: decide(shard, now_ms, None))
        if response is not NEEDS_PRODUCER_ID:
            return response
        new_id = next(self._producer_ids)
        return self.run(lambda shard, now_ms: decide(shard, now_ms, new_id))

    def init(self, producer: Producer = NO_PRODUCER, *, timeout_ms: int = TIMEOUT_MS, name: str = TX) -> InitResult:
        request = InitRequest(
            transactional_id=name, timeout_ms=timeout_ms, producer_id=producer[0], producer_epoch=producer[1]
        )
        response = self._run_with_id(lambda shard, now_ms, new_id: shard.init(request, now_ms, new_producer_id=new_id))
        assert isinstance(response, InitResult)
        return response

    def begin(self) -> Producer:
        """Start a new instance; no transaction is open or prepared."""
        code, *producer = self.init()
        assert code is ErrorCode.NONE
        return producer[0], producer[1]

    def add(self, producer: Producer, *partitions: TopicPartition) -> Any:
        request = _add_request(producer, partitions)
        return self.run(lambda shard, now_ms: shard.add_partitions(request, now_ms))

    def verify(self, producer: Producer, *partitions: TopicPartition) -> Any:
        return self.shard.verify_partitions(_add_request(producer, partitions))

    def end(self, producer: Producer, *, commit: bool, client_version: int = EPOCH_BUMP) -> EndResult:
        request = EndRequest(
            transactional_id=TX,
            producer_id=producer[0],
            producer_epoch=producer[1],
            commit=commit,
            client_version=client_version,
        )
        response = self._run_with_id(lambda shard, now_ms, new_id: shard.end(request, now_ms, new_producer_id=new_id))
        assert isinstance(response, EndResult)
        return response

    def deliver(self) -> list[SendMarkers]:
        """Write all markers, and complete their transactions."""
        delivered, self.markers = self.markers, []
        for each in delivered:
            self.complete(each)
        return delivered

    def complete(self, markers: SendMarkers) -> Any:
        return self.run(lambda shard, now_ms: shard.complete(markers, now_ms))

    def pass_time(self, duration_ms: int) -> None:
        """Advance both clocks and fire every timer that becomes due, in order."""
        end_ms = self._elapsed_ms + duration_ms
        while due := [(at_ms, position, key) for position, (key, at_ms) in enumerate(self._timers.items())]:
            at_ms, _, key = min(due, key=lambda item: item[:2])
            if at_ms > end_ms:
                break
            self._pass_until(at_ms)
            del self._timers[key]
            self._fire(key)
        self._pass_until(end_ms)

    def _pass_until(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms - self._elapsed_ms
        self._elapsed_ms = elapsed_ms

    def _fire(self, key: TimerKey) -> None:
        if self.run(lambda shard, now_ms: shard.on_timer(key, now_ms)) is ErrorCode.NOT_COORDINATOR:
            self._timers[key] = self._elapsed_ms + 1000

    def restart(self) -> None:
        """Replace the shard by one that is loaded from the log."""
        self._timers.clear()
        self.markers.clear()
        self.shard = self.replayed()
        self.run(lambda shard, now_ms: shard.on_loaded(now_ms))

    def replayed(self) -> TransactionShard:
        """Return a new shard into which the log was replayed."""
        shard = self.new_shard()
        for key, value in self.log:
            record = shard.decode(key, value)
            assert record is not None
            shard.replay(record)
        return shard


def _add_request(producer: Producer, partitions: tuple[TopicPartition, ...]) -> AddRequest:
    return AddRequest(
        transactional_id=TX, producer_id=producer[0], producer_epoch=producer[1], partitions=frozenset(partitions)
    )


def in_log(transaction: Transaction | None) -> Transaction | None:
    """Return a transaction as stored in the log."""
    return None if transaction is None else replace(transaction, last_producer_epoch=NO_PRODUCER_EPOCH)
