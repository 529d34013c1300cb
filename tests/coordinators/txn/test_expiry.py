"""Time-outs of transactions, expiry of transactional ids, and wall clocks that are set."""

from dataclasses import replace

import pytest

from rookery.base.errors import ErrorCode
from rookery.coordinators.txn.results import EndResult, InitResult
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.states import IDLE, State
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_BUMP, EPOCH_MAX, LAST_EPOCH
from tests.coordinators.txn.stage import START_MS, TIMEOUT_MS, TX, A, B, Stage
from tests.coordinators.txn.test_end_txn import EPOCH, FENCED, NONE, PRODUCER_ID, stored

ME = (PRODUCER_ID, EPOCH)
CHECK_MS = 10_000
HOUR_MS = 3600 * 1000
EXPIRATION_MS = 6 * HOUR_MS
EXPIRING = TransactionSettings(expiration_ms=EXPIRATION_MS)


@pytest.mark.parametrize(("transaction_version", "client_version"), [(0, CLASSIC), (2, EPOCH_BUMP)])
def test_a_transaction_that_times_out_is_aborted(transaction_version: int, client_version: int) -> None:
    stage = Stage(stored(State.ONGOING), transaction_version=transaction_version)
    stage.pass_time(TIMEOUT_MS)
    assert stage.state() is State.ONGOING
    stage.pass_time(CHECK_MS)
    assert stage.state() is State.PREPARE_ABORT
    stage.pass_time(10 * TIMEOUT_MS)
    (marker,) = stage.deliver()
    assert (marker.producer_epoch, marker.committed) == (EPOCH + 1, False)
    assert marker.partitions == {A, B}
    assert marker.client_version == client_version
    assert stage.transaction.producer_epoch == EPOCH + 1, "fenced once"
    assert stage.add(ME, A) is FENCED


def test_a_producer_whose_transaction_timed_out() -> None:
    """In the newer protocol it gets the abort's result and continues; in the classic one it must initialize again."""
    stage = Stage(stored(State.ONGOING))
    stage.pass_time(TIMEOUT_MS + CHECK_MS)
    stage.deliver()
    assert stage.end(ME, commit=True, client_version=CLASSIC) == EndResult(FENCED)
    assert stage.end(ME, commit=False, client_version=CLASSIC) == EndResult(FENCED)
    assert stage.end(ME, commit=True) == EndResult(ErrorCode.INVALID_TXN_STATE)
    assert stage.end(ME, commit=False) == (NONE, PRODUCER_ID, EPOCH + 1)
    assert stage.init(ME) == (NONE, PRODUCER_ID, EPOCH + 1)


def test_a_producer_that_was_too_slow_with_its_last_epoch() -> None:
    stage = Stage(stored(State.ONGOING, epoch=LAST_EPOCH))
    stage.pass_time(TIMEOUT_MS + CHECK_MS)
    (marker,) = stage.deliver()
    assert marker.producer_epoch == EPOCH_MAX
    assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=False) == EndResult(FENCED)
    result = stage.init()
    assert result == (NONE, stage.transaction.producer_id, 0)
    assert result.producer_id != PRODUCER_ID


def test_a_time_out_is_retried_if_the_log_fails() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.log_works = False
    stage.pass_time(2 * TIMEOUT_MS)
    assert stage.state() is State.ONGOING
    stage.log_works = True
    stage.pass_time(1000)
    assert stage.state() is State.PREPARE_ABORT
    assert len(stage.markers) == 1


def test_every_transaction_has_its_own_time_out() -> None:
    names = [f"tx{index}" for index in range(20)]
    stage = Stage(*(replace(stored(State.ONGOING), transactional_id=name, timeout_ms=1) for name in names[:10]))
    others = Stage(*(replace(stored(State.ONGOING), transactional_id=name) for name in names[10:]))
    for each in (stage, others):
        each.pass_time(CHECK_MS)
    assert {marker.transactional_id for marker in stage.markers} == set(names[:10])
    assert not others.markers


def test_a_clock_that_is_set_back_does_not_keep_a_transaction_open() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.now_ms -= 24 * HOUR_MS
    stage.pass_time(CHECK_MS)
    assert stage.transaction.start_ms == stage.now_ms
    assert stage.state() is State.ONGOING
    stage.restart()
    stage.pass_time(TIMEOUT_MS + CHECK_MS)
    assert stage.state() is State.PREPARE_ABORT


def test_a_transaction_that_ended_in_time_is_not_aborted() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.end(ME, commit=True)
    stage.pass_time(2 * TIMEOUT_MS)
    assert stage.state() is State.PREPARE_COMMIT
    stage.deliver()
    stage.pass_time(2 * TIMEOUT_MS)
    assert stage.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("state", State)
def test_unused_ids_expire(state: State) -> None:
    stage = Stage(replace(stored(state), timeout_ms=EXPIRATION_MS * 2), settings=EXPIRING)
    stage.pass_time(EXPIRATION_MS - HOUR_MS)
    assert TX in stage.shard.transactions
    stage.pass_time(HOUR_MS)
    assert (TX in stage.shard.transactions) == (state not in IDLE)
    assert stage.replayed().transactions == stage.shard.transactions
    if state in IDLE:
        assert stage.log[-1][1] is None
        assert stage.add(ME, A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_id_that_is_used_does_not_expire() -> None:
    stage = Stage(stored(State.EMPTY), settings=EXPIRING)
    stage.pass_time(EXPIRATION_MS - HOUR_MS)
    stage.init()
    stage.pass_time(EXPIRATION_MS - HOUR_MS)
    assert TX in stage.shard.transactions
    stage.pass_time(HOUR_MS)
    assert TX not in stage.shard.transactions


def test_a_clock_that_is_set_back_expires_nothing() -> None:
    stage = Stage(stored(State.EMPTY), settings=EXPIRING)
    stage.now_ms -= EXPIRATION_MS
    stage.pass_time(EXPIRATION_MS)
    assert TX in stage.shard.transactions
    assert stage.now_ms == START_MS


def test_a_dead_id_still_fences() -> None:
    stage = Stage(stored(State.DEAD))
    assert stage.init(ME) == (NONE, PRODUCER_ID, EPOCH + 1)
    stage = Stage(stored(State.DEAD))
    assert stage.init((PRODUCER_ID, EPOCH - 1)) == InitResult(FENCED)
