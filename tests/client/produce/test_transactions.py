"""The states of a transactional producer, without a broker."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

import rookery.client.produce.transactions as module
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.errors import (
    ClientStateError,
    CommitFailedError,
    DeliveryTimeoutError,
    FatalProducerError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity
from rookery.client.produce.transaction_errors import Request
from rookery.client.produce.transactions import TRANSITIONS, GroupOffsets, State, TransactionMachine

Call = Callable[[TransactionMachine], object]
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
FIRST, SECOND = ProducerIdentity(7, 0), ProducerIdentity(7, 1)


class Group(NamedTuple):
    group_id: str = "g"
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


OFFSETS = GroupOffsets(Group(), {})


def ready(*, is_v2: bool = False) -> TransactionMachine:
    machine = TransactionMachine("mine")
    machine.begin_init()
    machine.set_next_protocol(is_v2=is_v2)
    assert machine.next_request() is Request.INIT
    machine.initialized(FIRST)
    return machine


def begun(*, is_v2: bool = False, started: bool = True) -> TransactionMachine:
    machine = ready(is_v2=is_v2)
    machine.begin()
    if started:
        machine.accept(T0)
        if not is_v2:
            machine.partitions_added(machine.partitions_to_add([T0]))
    return machine


def failed_batch(machine: TransactionMachine, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
    machine.batch_failed(T0, ApiError(code))


# The table of transitions


def test_the_table_in_the_docstring_matches_the_transitions() -> None:
    assert module.__doc__ is not None
    lines = module.__doc__.splitlines()
    (start,) = [index for index, line in enumerate(lines) if line.strip().startswith("from \\ to")]
    columns = {lines[start].index(f" {state.name}") + 1: state for state in State if f" {state.name}" in lines[start]}
    for line in lines[start + 1 : start + 1 + len(State)]:
        before = State[line.split()[0]]
        crosses = [index for index, character in enumerate(line) if character == "x"]
        after = {columns[max(column for column in columns if column <= cross)] for cross in crosses}
        assert after == TRANSITIONS[before].keys() - {State.FATAL_ERROR}, before


def test_fatal_error_can_be_reached_from_every_other_state() -> None:
    assert {before for before, ways in TRANSITIONS.items() if State.FATAL_ERROR in ways} == {*State} - {
        State.FATAL_ERROR
    }


# Transactions without errors


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_in_the_classic_protocol(commit: bool) -> None:
    machine = ready()
    machine.begin()
    machine.accept(T0)
    machine.accept(T1)
    assert not machine.is_added([T0])
    assert machine.partitions_to_add([T0]) == [T0, T1], "all waiting partitions are added together"
    machine.partitions_added([T0, T1])
    machine.accept(T1)
    assert machine.is_added([T0, T1])
    machine.begin_end(commit=commit)
    assert machine.next_request() is (Request.END_COMMIT if commit else Request.END_ABORT)
    machine.ended()
    assert machine.next_request() is None
    assert (machine.state, machine.identity, machine.is_open) == (State.READY, FIRST, False)
    machine.begin()
    assert not machine.is_added([T0]), "each transaction adds its own partitions"


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_in_v2_ends_with_a_new_epoch(commit: bool) -> None:
    machine = begun(is_v2=True)
    assert machine.is_added([T0, T1])
    machine.begin_end(commit=commit)
    assert machine.next_request() is (Request.END_COMMIT if commit else Request.END_ABORT)
    machine.ended(SECOND)
    assert machine.next_request() is None
    assert (machine.state, machine.identity) == (State.READY, SECOND)


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_without_records_sends_no_request(is_v2: bool, commit: bool) -> None:
    machine = begun(is_v2=is_v2, started=False)
    machine.begin_end(commit=commit)
    assert machine.next_request() is None
    assert machine.state is State.READY


def test_a_transaction_with_only_offsets() -> None:
    machine = begun(started=False)
    machine.begin_offsets(OFFSETS)
    assert machine.needs_group("g")
    machine.group_added("g")
    assert not machine.needs_group("g"), "once is enough"
    machine.offsets_committed(OFFSETS)
    machine.begin_end(commit=True)
    assert machine.next_request() is Request.END_COMMIT


def test_a_commit_sends_unfinished_offsets_first() -> None:
    machine = begun(is_v2=True, started=False)
    assert not machine.needs_group("g")
    machine.begin_offsets(OFFSETS)
    machine.begin_end(commit=True)
    assert machine.next_request() is Request.COMMIT_OFFSETS
    assert machine.offsets_to_commit() is OFFSETS
    machine.offsets_committed(OFFSETS)
    assert machine.next_request() is Request.END_COMMIT


def test_an_abort_does_not_send_offsets() -> None:
    machine = begun(is_v2=True, started=False)
    machine.begin_offsets(OFFSETS)
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.END_ABORT


# Pending operations


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_continued_only_by_the_same_call(commit: bool) -> None:
    machine = begun()
    machine.begin_end(commit=commit)
    machine.sending(Request.END_COMMIT if commit else Request.END_ABORT)
    name = "commit_transaction" if commit else "abort_transaction"
    calls: tuple[Callable[[], None], ...] = (
        lambda: machine.begin_end(commit=not commit),
        machine.begin,
        machine.check_may_send,
        machine.begin_init,
        lambda: machine.begin_offsets(OFFSETS),
    )
    for call in calls:
        with pytest.raises(ClientStateError, match=rf"{name}\(\) is not done, call it again first"):
            call()
    machine.begin_end(commit=commit)
    machine.ended()
    assert machine.state is State.READY


def test_a_commit_that_was_not_sent_can_be_aborted() -> None:
    machine = begun()
    machine.begin_offsets(OFFSETS)
    machine.begin_end(commit=True)
    assert machine.next_request() is Request.COMMIT_OFFSETS
    machine.sending(Request.COMMIT_OFFSETS)
    machine.begin_end(commit=False)
    assert machine.is_failing
    assert machine.next_request() is Request.END_ABORT
    with pytest.raises(ClientStateError, match=r"abort_transaction\(\) is not done"):
        machine.begin_end(commit=True)
    machine.ended()
    assert machine.state is State.READY


def test_a_record_that_waited_belongs_to_the_transaction_in_which_it_was_sent() -> None:
    machine = begun()
    number = machine.number
    machine.check_may_still_send(number)
    machine.begin_end(commit=True)
    with pytest.raises(ClientStateError, match="commit_transaction"):
        machine.check_may_still_send(number)
    machine.sending(Request.END_COMMIT)
    # Ignored: the commit was sent without it.
    machine.send_failed(RecordTooLargeError("too large"), number)
    machine.ended()
    machine.begin()
    with pytest.raises(ClientStateError, match="its transaction ended while the record waited"):
        machine.check_may_still_send(number)
    machine.send_failed(RecordTooLargeError("too large"), number)
    machine.check_may_still_send(machine.number)


def test_raising_the_epoch_is_part_of_the_end() -> None:
    machine = begun()
    failed_batch(machine)
    machine.begin_end(commit=False)
    machine.ended()
    assert machine.next_request() is Request.INIT
    with pytest.raises(ClientStateError, match=r"abort_transaction\(\) is not done"):
        machine.begin()
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.INIT
    machine.initialized(SECOND)
    assert (machine.next_request(), machine.identity) == (None, SECOND)
    machine.begin()


# Misuse


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        (lambda machine: machine.begin(), "init_transactions"),
        (lambda machine: machine.check_may_send(), "init_transactions"),
        (lambda machine: machine.begin_offsets(OFFSETS), "init_transactions"),
        (lambda machine: machine.begin_end(commit=True), "init_transactions"),
        (lambda machine: machine.begin_end(commit=False), "init_transactions"),
    ],
)
def test_calls_before_init_name_it(call: Call, missing: str) -> None:
    with pytest.raises(ClientStateError, match=rf"call {missing}\(\) first"):
        call(TransactionMachine("mine"))


@pytest.mark.parametrize(
    "call",
    [
        lambda machine: machine.check_may_send(),
        lambda machine: machine.begin_offsets(OFFSETS),
        lambda machine: machine.begin_end(commit=True),
        lambda machine: machine.begin_end(commit=False),
    ],
)
def test_calls_before_begin_name_it(call: Call) -> None:
    with pytest.raises(ClientStateError, match=r"call begin_transaction\(\) first"):
        call(ready())


def test_begin_and_init_twice() -> None:
    machine = begun()
    with pytest.raises(ClientStateError, match="a transaction is open"):
        machine.begin()
    with pytest.raises(ClientStateError, match="called once"):
        machine.begin_init()
    machine.check_may_send()


# Errors


@pytest.mark.parametrize("is_v2", [False, True])
def test_after_a_failed_batch_only_an_abort_is_allowed(is_v2: bool) -> None:
    machine = begun(is_v2=is_v2)
    late = DeliveryTimeoutError("too late")
    assert machine.batch_failed(T0, late) is late, "its future raises its own error"
    machine.batch_failed(T1, ApiError(ErrorCode.INVALID_RECORD))
    for call in (
        machine.check_may_send,
        machine.begin,
        lambda: machine.begin_end(commit=True),
        lambda: machine.begin_offsets(OFFSETS),
    ):
        with pytest.raises(TransactionAbortableError, match="too late") as caught:
            call()
        assert (caught.value.code, caught.value.__cause__) == (ErrorCode.REQUEST_TIMED_OUT, late), "the first error"
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.END_ABORT
    machine.ended(SECOND if is_v2 else None)
    assert machine.next_request() is (None if is_v2 else Request.INIT), "in v2 the end has raised the epoch"


def test_partitions_are_not_added_to_a_failed_transaction() -> None:
    machine = begun()
    failed_batch(machine)
    assert machine.is_added([T0]), "batches of added partitions may be sent"
    with pytest.raises(TransactionAbortableError):
        machine.partitions_to_add([T1])


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.UNSUPPORTED_VERSION])
def test_every_call_fails_after_a_fatal_error(code: ErrorCode) -> None:
    machine = begun()
    kind = ProducerFencedError if code is ErrorCode.PRODUCER_FENCED else FatalProducerError
    assert isinstance(machine.batch_failed(T0, ApiError(code)), kind)
    machine.batch_failed(T1, ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    for call in (
        machine.begin_init,
        machine.begin,
        machine.check_may_send,
        lambda: machine.begin_end(commit=True),
        lambda: machine.begin_end(commit=False),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.code is code
    assert not machine.is_open


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
)
def test_init_may_be_called_again_once_it_is_allowed(code: ErrorCode) -> None:
    machine = TransactionMachine("mine")
    machine.begin_init()
    rejected = ApiError(code)
    assert machine.request_failed(Request.INIT, rejected) is rejected
    machine.begin_init()
    machine.initialized(FIRST)
    assert machine.state is State.READY


def test_an_unauthorized_init_between_two_transactions_is_fatal() -> None:
    machine = begun()
    failed_batch(machine)
    machine.begin_end(commit=False)
    machine.ended()
    error = machine.request_failed(Request.INIT, ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert isinstance(error, FatalProducerError)
    assert machine.state is State.FATAL_ERROR


def test_an_abort_after_a_failed_init_retries_it() -> None:
    machine = TransactionMachine("mine")
    machine.begin_init()
    assert isinstance(
        machine.request_failed(Request.INIT, ApiError(ErrorCode.TRANSACTION_ABORTABLE)), TransactionAbortableError
    )
    machine.begin_end(commit=False)
    assert (machine.next_request(), machine.identity) == (Request.INIT, NO_IDENTITY)
    machine.initialized(FIRST)
    machine.begin()


def test_a_commit_that_is_rejected_can_be_aborted() -> None:
    machine = begun()
    machine.begin_end(commit=True)
    error = machine.request_failed(Request.END_COMMIT, ApiError(ErrorCode.TRANSACTION_ABORTABLE))
    assert isinstance(error, TransactionAbortableError)
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.END_ABORT


def test_a_group_with_a_newer_generation() -> None:
    machine = begun()
    machine.begin_offsets(OFFSETS)
    error = machine.request_failed(Request.COMMIT_OFFSETS, ApiError(ErrorCode.ILLEGAL_GENERATION))
    assert isinstance(error, CommitFailedError)
    with pytest.raises(TransactionAbortableError) as caught:
        machine.begin_end(commit=True)
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.END_ABORT


# Lost responses


def test_a_lost_response_raises_the_epoch_in_the_classic_protocol() -> None:
    machine = begun()
    machine.begin_end(commit=True)
    machine.response_lost(Request.END_COMMIT)
    machine.ended()
    assert machine.next_request() is Request.INIT
    machine.initialized(SECOND)
    assert machine.next_request() is None


def test_a_lost_response_does_not_matter_in_v2() -> None:
    machine = begun(is_v2=True)
    machine.begin_end(commit=True)
    machine.response_lost(Request.END_COMMIT)
    machine.ended(SECOND)
    assert machine.next_request() is None


def test_rejected_partitions_leave_nothing_to_abort() -> None:
    machine = begun(started=False)
    machine.partitions_to_add([T0])
    machine.request_failed(Request.ADD_PARTITIONS, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    machine.begin_end(commit=False)
    assert machine.next_request() is None


@pytest.mark.parametrize("was_begun", [True, False])
def test_partitions_that_may_have_been_added_are_aborted(was_begun: bool) -> None:
    machine = begun(started=False)
    machine.partitions_to_add([T0])
    machine.response_lost(Request.ADD_PARTITIONS)
    machine.request_failed(Request.ADD_PARTITIONS, ApiError(ErrorCode.REQUEST_TIMED_OUT))
    machine.begin_end(commit=False)
    assert machine.next_request() is Request.END_ABORT
    if was_begun:
        machine.ended()
    else:
        assert machine.request_failed(Request.END_ABORT, ApiError(ErrorCode.INVALID_TXN_STATE)) is None
    assert machine.next_request() is Request.INIT


def test_a_coordinator_without_state_has_nothing_to_abort() -> None:
    machine = begun()
    machine.begin_end(commit=False)
    assert machine.request_failed(Request.END_ABORT, ApiError(ErrorCode.UNKNOWN_PRODUCER_ID)) is None
    assert machine.next_request() is Request.INIT


# A change of transaction.version


def test_an_upgrade_takes_effect_after_the_transaction_and_raises_the_epoch() -> None:
    machine = begun()
    machine.set_next_protocol(is_v2=True)
    assert not machine.is_v2
    machine.begin_end(commit=True)
    machine.ended()
    assert machine.next_request() is Request.INIT
    machine.initialized(SECOND)
    assert machine.is_v2


def test_a_downgrade_takes_effect_after_the_transaction() -> None:
    machine = begun(is_v2=True)
    machine.set_next_protocol(is_v2=False)
    assert machine.is_v2
    machine.begin_end(commit=True)
    machine.ended(SECOND)
    assert (machine.next_request(), machine.is_v2) == (None, False)


# Records that are not accepted


def test_a_record_that_was_not_accepted_prevents_the_commit() -> None:
    machine = begun()
    machine.send_failed(RecordTooLargeError("too large"), machine.number)
    with pytest.raises(TransactionAbortableError, match="too large"):
        machine.begin_end(commit=True)
    machine.begin_end(commit=False)
    machine.ended()
    assert machine.next_request() is None, "no request was sent that could take effect late"


def test_a_record_that_is_not_accepted_may_be_fatal() -> None:
    machine = begun()
    machine.send_failed(ApiError(ErrorCode.UNSUPPORTED_VERSION), machine.number)
    with pytest.raises(FatalProducerError):
        machine.begin_end(commit=False)


def test_a_batch_that_fails_while_the_commit_waits_for_it() -> None:
    machine = begun()
    machine.begin_end(commit=True)
    assert machine.partitions_to_add([T1]) == [T1], "batches are still being sent"
    failed_batch(machine)
    with pytest.raises(TransactionAbortableError):
        machine.begin_end(commit=True)
    machine.begin_end(commit=False)
    with pytest.raises(TransactionAbortableError, match="aborted"):
        machine.partitions_to_add([T2])
