"""EndTxn: every state, both protocols, every epoch; retries; exhausted epochs."""

from dataclasses import replace

import pytest

from rookery.base.errors import ErrorCode
from rookery.coordinators.txn.results import EndRequest, EndResult
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_BUMP, EPOCH_MAX, LAST_EPOCH, Transaction
from tests.coordinators.txn.stage import START_MS, TX, A, B, Stage

NONE = ErrorCode.NONE
WAIT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING

PRODUCER_ID = 7
EPOCH = 5
Codes = tuple[ErrorCode, ErrorCode]


def stored(state: State, *, epoch: int = EPOCH, client_version: int = CLASSIC) -> Transaction:
    has_partitions = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return Transaction(
        transactional_id=TX,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        partitions=frozenset({A, B}) if has_partitions else frozenset(),
        start_ms=-1 if state is State.EMPTY else START_MS,
        update_ms=START_MS,
        client_version=client_version,
    )


def codes(transaction: Transaction, *, epoch: int, client_version: int) -> Codes:
    """Return the error codes of a commit and of an abort."""

    def code(*, commit: bool) -> ErrorCode:
        stage = Stage(transaction)
        return stage.end((PRODUCER_ID, epoch), commit=commit, client_version=client_version).error_code

    return code(commit=True), code(commit=False)


@pytest.mark.parametrize("stored_version", [CLASSIC, EPOCH_BUMP])
@pytest.mark.parametrize(
    ("state", "matching"),
    [
        (State.EMPTY, (INVALID, INVALID)),
        (State.ONGOING, (NONE, NONE)),
        (State.PREPARE_COMMIT, (WAIT, INVALID)),
        (State.PREPARE_ABORT, (INVALID, WAIT)),
        (State.COMPLETE_COMMIT, (NONE, INVALID)),
        (State.COMPLETE_ABORT, (INVALID, NONE)),
        (State.DEAD, (UNKNOWN, UNKNOWN)),
    ],
)
def test_the_classic_protocol(state: State, matching: Codes, stored_version: int) -> None:
    transaction = stored(state, client_version=stored_version)
    assert codes(transaction, epoch=EPOCH, client_version=CLASSIC) == matching
    others = (UNKNOWN, UNKNOWN) if state is State.DEAD else (FENCED, FENCED)
    assert codes(transaction, epoch=EPOCH - 1, client_version=CLASSIC) == others
    assert codes(transaction, epoch=EPOCH + 1, client_version=CLASSIC) == others


@pytest.mark.parametrize(
    ("state", "matching", "retried"),
    [
        (State.EMPTY, (INVALID, NONE), (FENCED, FENCED)),
        (State.ONGOING, (NONE, NONE), (FENCED, FENCED)),
        (State.PREPARE_COMMIT, (WAIT, WAIT), (WAIT, INVALID)),
        (State.PREPARE_ABORT, (WAIT, WAIT), (INVALID, WAIT)),
        (State.COMPLETE_COMMIT, (INVALID, NONE), (NONE, INVALID)),
        (State.COMPLETE_ABORT, (INVALID, NONE), (INVALID, NONE)),
        (State.DEAD, (UNKNOWN, UNKNOWN), (UNKNOWN, UNKNOWN)),
    ],
)
def test_the_newer_protocol(state: State, matching: Codes, retried: Codes) -> None:
    others = (UNKNOWN, UNKNOWN) if state is State.DEAD else (FENCED, FENCED)
    bumped = stored(state, client_version=EPOCH_BUMP)
    assert codes(bumped, epoch=EPOCH, client_version=EPOCH_BUMP) == matching
    assert codes(bumped, epoch=EPOCH - 1, client_version=EPOCH_BUMP) == retried
    assert codes(bumped, epoch=EPOCH - 2, client_version=EPOCH_BUMP) == others
    assert codes(bumped, epoch=EPOCH + 1, client_version=EPOCH_BUMP) == others
    # A transaction that was ended by the classic protocol has no retries with the epoch before.
    classic = stored(state, client_version=CLASSIC)
    assert codes(classic, epoch=EPOCH, client_version=EPOCH_BUMP) == matching
    assert codes(classic, epoch=EPOCH - 1, client_version=EPOCH_BUMP) == others


@pytest.mark.parametrize("client_version", [CLASSIC, EPOCH_BUMP])
@pytest.mark.parametrize("state", State)
def test_another_producer_id_is_unknown(state: State, client_version: int) -> None:
    stage = Stage(stored(state, client_version=client_version))
    for epoch in (0, EPOCH - 1, EPOCH, LAST_EPOCH):
        for commit in (True, False):
            result = stage.end((PRODUCER_ID + 1, epoch), commit=commit, client_version=client_version)
            assert result == EndResult(UNKNOWN)
    assert stage.transaction == stored(state, client_version=client_version)


@pytest.mark.parametrize("client_version", [CLASSIC, EPOCH_BUMP])
def test_an_unknown_or_empty_transactional_id(client_version: int) -> None:
    stage = Stage()
    assert stage.end((PRODUCER_ID, 0), commit=True, client_version=client_version) == EndResult(UNKNOWN)
    nameless = EndRequest(
        transactional_id="", producer_id=7, producer_epoch=0, commit=True, client_version=client_version
    )
    result = stage.shard.end(nameless, START_MS, new_producer_id=None)
    assert result.response == EndResult(ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("commit", [True, False])
def test_the_classic_protocol_keeps_the_epoch(commit: bool) -> None:
    stage = Stage(stored(State.ONGOING))
    assert stage.end((PRODUCER_ID, EPOCH), commit=commit, client_version=CLASSIC) == (NONE, PRODUCER_ID, EPOCH)
    (marker,) = stage.deliver()
    assert (marker.producer_id, marker.producer_epoch, marker.committed) == (PRODUCER_ID, EPOCH, commit)
    assert marker.partitions == {A, B}
    assert marker.client_version == CLASSIC
    assert stage.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert not stage.transaction.partitions
    assert stage.transaction.start_ms == START_MS


@pytest.mark.parametrize("commit", [True, False])
def test_the_newer_protocol_bumps_the_epoch(commit: bool) -> None:
    stage = Stage(stored(State.ONGOING))
    given = (NONE, PRODUCER_ID, EPOCH + 1)
    assert stage.end((PRODUCER_ID, EPOCH), commit=commit) == given
    assert stage.end((PRODUCER_ID, EPOCH), commit=commit) == EndResult(WAIT)
    (marker,) = stage.deliver()
    assert (marker.producer_epoch, marker.committed, marker.client_version) == (EPOCH + 1, commit, EPOCH_BUMP)
    for _ in range(2):
        assert stage.end((PRODUCER_ID, EPOCH), commit=commit) == given
        assert stage.end((PRODUCER_ID, EPOCH), commit=not commit) == EndResult(INVALID)
        stage.restart()
    assert not stage.markers


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_abort_without_partitions(state: State) -> None:
    """It is complete immediately, and bumps the epoch as every end does."""
    stage = Stage(stored(state))
    for _ in range(2):
        assert stage.end((PRODUCER_ID, EPOCH), commit=False) == (NONE, PRODUCER_ID, EPOCH + 1)
        assert stage.state() is State.COMPLETE_ABORT
        assert stage.transaction.start_ms == START_MS
        stage.restart()
    assert not stage.markers
    assert stage.end((PRODUCER_ID, EPOCH + 1), commit=False) == (NONE, PRODUCER_ID, EPOCH + 2)


def test_the_last_epoch_is_followed_by_another_id() -> None:
    stage = Stage(stored(State.ONGOING, epoch=LAST_EPOCH))
    result = stage.end((PRODUCER_ID, LAST_EPOCH), commit=True)
    new_id = result.producer_id
    assert result == (NONE, new_id, 0)
    assert new_id != PRODUCER_ID
    # The next transaction must wait until the id has changed, also if it already uses the new id.
    assert stage.add((new_id, 0), A) is WAIT
    assert stage.verify((new_id, 0), A) is WAIT
    assert stage.end((new_id, 0), commit=False) == EndResult(WAIT)
    assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=True) == EndResult(WAIT)
    stage.restart()
    (marker,) = stage.deliver()
    assert (marker.producer_id, marker.producer_epoch) == (PRODUCER_ID, EPOCH_MAX)
    assert stage.transaction.previous_producer_id == PRODUCER_ID
    for _ in range(2):
        assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=True) == result
        assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=False) == EndResult(INVALID)
        assert stage.end((PRODUCER_ID, EPOCH_MAX), commit=True) == EndResult(UNKNOWN)
        stage.restart()
    assert stage.add((new_id, 0), A) is NONE
    assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=True) == EndResult(UNKNOWN)


def test_an_abort_without_partitions_at_the_last_epoch() -> None:
    stage = Stage(stored(State.EMPTY, epoch=LAST_EPOCH))
    result = stage.end((PRODUCER_ID, LAST_EPOCH), commit=False)
    assert result == (NONE, stage.transaction.producer_id, 0)
    assert stage.end((PRODUCER_ID, LAST_EPOCH), commit=False) == result


def test_the_classic_protocol_can_stay_at_the_last_epoch() -> None:
    stage = Stage(stored(State.ONGOING, epoch=LAST_EPOCH))
    for _ in range(2):
        ended = stage.end((PRODUCER_ID, LAST_EPOCH), commit=True, client_version=CLASSIC)
        assert ended == (NONE, PRODUCER_ID, LAST_EPOCH)
        stage.deliver()
        assert stage.add((PRODUCER_ID, LAST_EPOCH), A) is NONE


def test_a_transaction_at_the_largest_epoch_can_still_end() -> None:
    """Kafka once assigned the largest epoch. Markers cannot have a larger one, so that they are classic ones."""
    stage = Stage(stored(State.ONGOING, epoch=EPOCH_MAX))
    result = stage.end((PRODUCER_ID, EPOCH_MAX), commit=True)
    (marker,) = stage.deliver()
    assert (marker.producer_epoch, marker.client_version) == (EPOCH_MAX, CLASSIC)
    assert result == (NONE, stage.transaction.producer_id, 0)


def test_a_late_completion_does_not_complete_the_next_transaction() -> None:
    """In the classic protocol both have the same producer id and epoch."""
    producer = (PRODUCER_ID, EPOCH)
    stage = Stage(stored(State.ONGOING))
    stage.end(producer, commit=True, client_version=CLASSIC)
    (first,) = stage.deliver()
    stage.add(producer, B)
    stage.end(producer, commit=True, client_version=CLASSIC)
    assert stage.complete(first) is NONE
    assert stage.state() is State.PREPARE_COMMIT


def test_only_its_own_markers_complete_a_transaction() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.end((PRODUCER_ID, EPOCH), commit=True)
    (marker,) = stage.markers
    before = stage.transaction
    assert stage.complete(replace(marker, transactional_id="other")) is NONE
    assert stage.transaction == before
    assert stage.complete(marker) is NONE
    done = stage.transaction
    assert done.state is State.COMPLETE_COMMIT
    assert stage.complete(marker) is NONE
    assert stage.transaction == done


def test_nothing_changes_if_the_log_fails() -> None:
    stage = Stage(stored(State.ONGOING))
    stage.log_works = False
    request = EndRequest(transactional_id=TX, producer_id=7, producer_epoch=EPOCH, commit=True, client_version=2)
    assert stage.run(lambda shard, now_ms: shard.end(request, now_ms, new_producer_id=None)) is not NONE
    assert stage.transaction == stored(State.ONGOING)
    assert not stage.markers
