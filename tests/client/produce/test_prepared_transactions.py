"""Transactions that are left open for another process to end: the producer's states, without a broker."""

import pytest

from rookery.client.errors import ClientStateError, TransactionAbortableError
from rookery.client.produce.transaction_errors import Request
from rookery.client.produce.transactions import State
from tests.client.produce.test_transactions import FIRST, OFFSETS, begun, failed_batch


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_left_open_and_can_be_ended(is_v2: bool, commit: bool) -> None:
    machine = begun(is_v2=is_v2)
    machine.begin_prepare()
    assert machine.is_open, "until it is prepared, closing aborts it"
    assert machine.next_request() is None
    assert (machine.state, machine.identity, machine.is_open) == (State.PREPARED, FIRST, False)
    with pytest.raises(ClientStateError, match="the transaction is prepared: end it"):
        machine.check_may_send()
    machine.begin_end(commit=commit)
    assert machine.next_request() is (Request.END_COMMIT if commit else Request.END_ABORT)


def test_pending_offsets_are_committed_before_a_transaction_is_prepared() -> None:
    machine = begun(is_v2=True)
    machine.begin_offsets(OFFSETS)
    machine.begin_prepare()
    assert machine.next_request() is Request.COMMIT_OFFSETS
    machine.offsets_committed(OFFSETS)
    assert machine.next_request() is None
    assert machine.state is State.PREPARED


def test_a_preparation_that_fails_or_is_aborted() -> None:
    machine = begun(is_v2=True)
    machine.begin_prepare()
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.END_ABORT
    machine = begun(is_v2=True)
    machine.begin_prepare()
    failed_batch(machine)
    with pytest.raises(TransactionAbortableError):
        machine.begin_prepare()
    with pytest.raises(ClientStateError, match="nothing was sent"):
        begun(started=False).begin_prepare()
