"""InitProducerId: new instances, instances that resume, retries, and exhausted producer ids."""

from dataclasses import replace

import pytest

from rookery.base.errors import ErrorCode
from rookery.coordinators.txn.results import NEEDS_PRODUCER_ID, InitRequest, InitResult
from rookery.coordinators.txn.states import IDLE, State
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_BUMP, EPOCH_MAX, LAST_EPOCH
from tests.coordinators.txn.stage import FIRST_PRODUCER_ID, NO_PRODUCER, TIMEOUT_MS, TX, A, B, Stage
from tests.coordinators.txn.test_end_txn import EPOCH, FENCED, NONE, PRODUCER_ID, UNKNOWN, WAIT, stored

ME = (PRODUCER_ID, EPOCH)


def test_a_new_transactional_id() -> None:
    stage = Stage()
    assert stage.init() == (NONE, FIRST_PRODUCER_ID, 0)
    assert stage.state() is State.EMPTY
    assert stage.transaction.timeout_ms == TIMEOUT_MS
    assert stage.init(name="other") == (NONE, FIRST_PRODUCER_ID + 1, 0)


def test_a_new_id_for_an_instance_whose_transactional_id_has_expired() -> None:
    assert Stage().init(ME) == (NONE, FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_new_instance_gets_the_next_epoch(state: State) -> None:
    stage = Stage(stored(state, client_version=EPOCH_BUMP))
    assert stage.init(timeout_ms=5) == (NONE, PRODUCER_ID, EPOCH + 1)
    transaction = stage.transaction
    assert (transaction.state, transaction.timeout_ms, transaction.start_ms) == (State.EMPTY, 5, -1)
    assert transaction.client_version == CLASSIC
    # The instances before it are fenced.
    assert stage.init(ME) == InitResult(FENCED)
    assert stage.add(ME, A) is FENCED
    assert stage.init() == (NONE, PRODUCER_ID, EPOCH + 2)


@pytest.mark.parametrize("state", sorted(IDLE))
def test_an_instance_resumes(state: State) -> None:
    stage = Stage(stored(state))
    assert stage.init((PRODUCER_ID, EPOCH + 1)) == InitResult(FENCED)
    assert stage.init((PRODUCER_ID, EPOCH - 1)) == InitResult(FENCED)
    assert stage.init((PRODUCER_ID + 1, EPOCH)) == InitResult(FENCED)
    given = (NONE, PRODUCER_ID, EPOCH + 1)
    assert stage.init(ME) == given
    assert stage.init(ME, timeout_ms=5) == given, "the response was lost"
    assert stage.transaction.timeout_ms == 5
    assert stage.init((PRODUCER_ID, EPOCH + 1)) == (NONE, PRODUCER_ID, EPOCH + 2)
    assert stage.init(ME) == InitResult(FENCED)


def test_a_retry_is_fenced_after_a_restart() -> None:
    """As in Kafka, the previous epoch is not in the log."""
    stage = Stage(stored(State.EMPTY))
    stage.init(ME)
    stage.restart()
    assert stage.init(ME) == InitResult(FENCED)
    assert stage.init((PRODUCER_ID, EPOCH + 1)) == (NONE, PRODUCER_ID, EPOCH + 2)


def test_a_retry_is_fenced_when_the_transaction_has_begun() -> None:
    stage = Stage(stored(State.EMPTY))
    stage.init(ME)
    stage.add((PRODUCER_ID, EPOCH + 1), A)
    assert stage.init(ME) == InitResult(FENCED)
    assert stage.state() is State.ONGOING
    stage.end((PRODUCER_ID, EPOCH + 1), commit=True, client_version=CLASSIC)
    stage.deliver()
    assert stage.init(ME) == InitResult(FENCED)


def test_an_instance_that_missed_the_response_of_its_end_resumes() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.end(ME, commit=True)
    assert stage.init(ME) == InitResult(WAIT)
    stage.deliver()
    assert stage.init(ME) == (NONE, PRODUCER_ID, EPOCH + 1)


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_a_prepared_transaction_must_be_complete_first(state: State) -> None:
    stage = Stage(stored(state))
    assert stage.init() == InitResult(WAIT)
    assert stage.init(ME) == InitResult(WAIT)
    assert stage.init((PRODUCER_ID, EPOCH - 1)) == InitResult(FENCED)
    assert stage.transaction == stored(state)
    stage.deliver()
    assert stage.init() == (NONE, PRODUCER_ID, EPOCH + 1)


@pytest.mark.parametrize(("transaction_version", "client_version"), [(0, CLASSIC), (1, CLASSIC), (2, EPOCH_BUMP)])
def test_a_new_instance_aborts_the_open_transaction(transaction_version: int, client_version: int) -> None:
    stage = Stage(stored(State.ONGOING), transaction_version=transaction_version)
    assert stage.init() == InitResult(WAIT)
    assert stage.add(ME, A) is FENCED
    assert stage.init(ME) == InitResult(FENCED)
    (marker,) = stage.deliver()
    assert (marker.producer_id, marker.producer_epoch, marker.committed) == (PRODUCER_ID, EPOCH + 1, False)
    assert marker.partitions == {A, B}
    assert marker.client_version == client_version
    assert stage.state() is State.COMPLETE_ABORT
    assert stage.init() == (NONE, PRODUCER_ID, EPOCH + 2)


def test_only_the_present_instance_aborts_its_transaction() -> None:
    stage = Stage(stored(State.ONGOING))
    for stranger in ((PRODUCER_ID, EPOCH - 1), (PRODUCER_ID, EPOCH + 1), (PRODUCER_ID + 1, EPOCH)):
        assert stage.init(stranger) == InitResult(FENCED)
    assert stage.transaction == stored(State.ONGOING)
    assert stage.init(ME) == InitResult(WAIT)
    stage.deliver()
    assert stage.init(ME) == (NONE, PRODUCER_ID, EPOCH + 1), "no other instance has the fencing epoch"


def test_a_fenced_instance_may_retry_its_abort() -> None:
    """It continues with the fencing epoch, until the new instance gets the next one."""
    stage = Stage(stored(State.ONGOING))
    stage.init()
    stage.deliver()
    assert stage.end(ME, commit=True).error_code is ErrorCode.INVALID_TXN_STATE
    assert stage.end(ME, commit=False) == (NONE, PRODUCER_ID, EPOCH + 1)
    assert stage.init() == (NONE, PRODUCER_ID, EPOCH + 2)
    assert stage.add((PRODUCER_ID, EPOCH + 1), A) is FENCED


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_new_instance_gets_another_id_if_the_epochs_are_exhausted(state: State) -> None:
    stage = Stage(stored(state, epoch=LAST_EPOCH))
    assert stage.init() == (NONE, FIRST_PRODUCER_ID, 0)
    assert stage.transaction.previous_producer_id == PRODUCER_ID
    assert stage.init((PRODUCER_ID, LAST_EPOCH)) == InitResult(FENCED)
    assert stage.add((PRODUCER_ID, LAST_EPOCH), A) is UNKNOWN


def test_an_instance_resumes_with_another_id() -> None:
    stage = Stage(stored(State.EMPTY, epoch=LAST_EPOCH))
    assert stage.init((PRODUCER_ID, LAST_EPOCH - 1)) == InitResult(FENCED)
    given = (NONE, FIRST_PRODUCER_ID, 0)
    assert stage.init((PRODUCER_ID, LAST_EPOCH)) == given
    assert stage.init((PRODUCER_ID, LAST_EPOCH)) == given, "the response was lost"
    assert stage.init((FIRST_PRODUCER_ID, LAST_EPOCH)) == InitResult(FENCED)
    assert stage.init((FIRST_PRODUCER_ID, 0)) == (NONE, FIRST_PRODUCER_ID, 1)
    assert stage.init((PRODUCER_ID, LAST_EPOCH)) == InitResult(FENCED)


def test_the_last_epoch_is_assigned() -> None:
    stage = Stage(stored(State.EMPTY, epoch=LAST_EPOCH - 1))
    for _ in range(2):
        assert stage.init((PRODUCER_ID, LAST_EPOCH - 1)) == (NONE, PRODUCER_ID, LAST_EPOCH)


def test_an_instance_resumes_after_the_end_used_the_last_epoch() -> None:
    stage = Stage(stored(State.ONGOING, epoch=LAST_EPOCH))
    ended = stage.end((PRODUCER_ID, LAST_EPOCH), commit=True)
    new = (ended.producer_id, 0)
    assert stage.init(new) == InitResult(WAIT)
    stage.deliver()
    assert stage.init((PRODUCER_ID, LAST_EPOCH)) == (NONE, *new)
    assert stage.init(new) == (NONE, new[0], 1)


@pytest.mark.parametrize("me", [NO_PRODUCER, (PRODUCER_ID, LAST_EPOCH)])
def test_the_epoch_after_the_last_only_fences(me: tuple[int, int]) -> None:
    stage = Stage(stored(State.ONGOING, epoch=LAST_EPOCH))
    assert stage.init(me) == InitResult(WAIT)
    (marker,) = stage.deliver()
    assert marker.producer_epoch == EPOCH_MAX
    assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=False).error_code is FENCED
    for _ in range(2 if me != NO_PRODUCER else 1):
        assert stage.init(me) == (NONE, FIRST_PRODUCER_ID, 0)


def test_no_unneeded_id_is_requested() -> None:
    """A new producer id comes from the controller, and is requested only if it is needed."""
    request = InitRequest(transactional_id=TX, timeout_ms=1)
    exhausted = stored(State.EMPTY, epoch=LAST_EPOCH)
    for stage, needs in (
        (Stage(), True),
        (Stage(exhausted), True),
        (Stage(stored(State.EMPTY)), False),
        (Stage(replace(exhausted, state=State.PREPARE_ABORT)), False),
    ):
        result = stage.shard.init(request, stage.now_ms, new_producer_id=None)
        assert (result.response is NEEDS_PRODUCER_ID) == needs
        assert not (needs and result.records)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_time_outs_have_limits(timeout_ms: int) -> None:
    assert Stage().init(timeout_ms=timeout_ms) == InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def test_malformed_requests() -> None:
    invalid = InitResult(ErrorCode.INVALID_REQUEST)
    assert Stage().init(name="") == invalid
    assert Stage(stored(State.EMPTY)).init((PRODUCER_ID, -1)) == invalid
    assert Stage(stored(State.EMPTY)).init((-1, EPOCH)) == invalid
