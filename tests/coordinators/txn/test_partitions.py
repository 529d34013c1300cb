import pytest

from rookery.base.errors import ErrorCode
from rookery.coordinators.txn.results import AddRequest
from rookery.coordinators.txn.states import COMPLETED, State
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_BUMP
from tests.coordinators.txn.stage import START_MS, A, B, C, Stage
from tests.coordinators.txn.test_end_txn import EPOCH, FENCED, NONE, PRODUCER_ID, UNKNOWN, WAIT, stored

ME = (PRODUCER_ID, EPOCH)
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (State.EMPTY, NONE),
        (State.ONGOING, NONE),
        (State.PREPARE_COMMIT, WAIT),
        (State.PREPARE_ABORT, WAIT),
        (State.COMPLETE_COMMIT, NONE),
        (State.COMPLETE_ABORT, NONE),
        (State.DEAD, UNKNOWN),
    ],
)
def test_adding_by_state_and_epoch(state: State, code: ErrorCode) -> None:
    others = UNKNOWN if state is State.DEAD else FENCED
    for client_version in (CLASSIC, EPOCH_BUMP):
        stage = Stage(stored(state, client_version=client_version))
        before = stage.transaction
        assert stage.add((PRODUCER_ID, EPOCH - 1), C) is others
        assert stage.add((PRODUCER_ID, EPOCH + 1), C) is others
        assert stage.add((PRODUCER_ID + 1, EPOCH), C) is UNKNOWN
        assert stage.transaction == before
        assert stage.add(ME, C) is code
        assert (stage.transaction == before) == (code is not NONE)


@pytest.mark.parametrize("state", [State.EMPTY, *sorted(COMPLETED)])
def test_the_first_partition_begins_a_transaction(state: State) -> None:
    stage = Stage(stored(state, client_version=EPOCH_BUMP))
    stage.now_ms += 10
    assert stage.add(ME, A) is NONE
    assert stage.state() is State.ONGOING
    assert stage.transaction.start_ms == START_MS + 10
    stage.now_ms += 10
    assert stage.add(ME, A, C) is NONE
    assert stage.transaction.start_ms == START_MS + 10
    assert stage.transaction.update_ms == START_MS + 20
    assert stage.transaction.partitions == {A, C}


def test_a_present_partition_is_not_written_again() -> None:
    stage = Stage(stored(State.ONGOING))
    written = len(stage.log)
    assert stage.add(ME, A) is NONE
    assert stage.add(ME) is NONE
    assert len(stage.log) == written


def test_an_empty_request_begins_no_transaction() -> None:
    stage = Stage(stored(State.EMPTY))
    assert stage.add(ME) is NONE
    assert stage.state() is State.EMPTY


def test_all_partitions_get_markers_after_a_restart_too() -> None:
    stage = Stage(stored(State.EMPTY))
    stage.add(ME, A)
    stage.restart()
    stage.add(ME, C)
    stage.end(ME, commit=True)
    stage.restart()
    (marker,) = stage.deliver()
    assert marker.partitions == {A, C}


def test_verifying() -> None:
    stage = Stage(stored(State.ONGOING))
    assert stage.verify(ME, C, B, A) == ((A, NONE), (B, NONE), (C, ABORTABLE))
    assert stage.verify((PRODUCER_ID, EPOCH - 1), A) is FENCED
    assert stage.verify((PRODUCER_ID, EPOCH + 1), A) is FENCED
    assert stage.verify((PRODUCER_ID + 1, EPOCH), A) is UNKNOWN
    stage.end(ME, commit=True)
    assert stage.verify((PRODUCER_ID, EPOCH + 1), A) is WAIT
    stage.deliver()
    assert stage.verify((PRODUCER_ID, EPOCH + 1), A) == ((A, ABORTABLE),)


def test_unknown_and_empty_transactional_ids() -> None:
    stage = Stage()
    assert stage.add(ME, A) is UNKNOWN
    assert stage.verify(ME, A) is UNKNOWN
    nameless = AddRequest(transactional_id="", producer_id=7, producer_epoch=0, partitions=frozenset({A}))
    assert stage.shard.add_partitions(nameless, START_MS).response is ErrorCode.INVALID_REQUEST
    assert stage.shard.verify_partitions(nameless) is ErrorCode.INVALID_REQUEST
