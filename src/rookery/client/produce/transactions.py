"""The state machine of a transactional producer: its state, the next request, and the effect of an error.

Theory of operation. A producer with a `transactional.id` takes it over with InitProducerId, which fences the instance
that used it before. Then it writes one transaction after the other. A transaction exists at its coordinator from the
first partition that is added to it until EndTxn commits or aborts it. There are two protocols; a transaction ends with
the one with which it began:

    classic   the client adds partitions and groups to its transaction before it writes to them. One epoch serves many
              transactions. After a failed batch, or a request whose response was lost, that batch or request may still
              arrive late and join the next transaction: so the epoch is raised before the next one (KIP-360)
    v2        the leaders add partitions, and every end raises the epoch (KIP-890). Used if the cluster's feature
              `transaction.version` is at least 2

The states and the transitions (FATAL_ERROR can be reached from every state):

    from \\ to    UNINITIALIZED INITIALIZING READY IN_TRANSACTION PREPARING PREPARED COMMITTING ABORTING ABORTABLE_ERROR
    UNINITIALIZED                   x
    INITIALIZING      x                      x                                                                x
    READY                                               x
    IN_TRANSACTION                                                  x                   x         x           x
    PREPARING                                                                 x                   x           x
    PREPARED                                                                            x         x
    COMMITTING                      x        x                                                    x           x
    ABORTING                        x        x
    ABORTABLE_ERROR                                                                                x
    FATAL_ERROR

Calls that wait for the coordinator (init, prepare, commit, abort) are operations. An operation that timed out has not
failed: it stays pending, the same call continues it with the same requests, and no other call is allowed before it is
done. Only a preparation, and a commit whose EndTxn was not sent yet, may still become an abort. `next_request` returns
the next request of the operation. A repeated EndTxn is harmless: the coordinator recognizes it by the epoch.

A prepared transaction has all its records and accepts no more. Any process with its identity may end it
(`Admin.end_transaction`), and closing this producer leaves it open.

`transaction_errors` defines what an error code means. Later calls raise the first error of a transaction.

Pure. `transaction_calls` sends the requests; `producer` and `sender` use only that module.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicPartition
from rookery.client.errors import (
    ClientStateError,
    CommitFailedError,
    FatalProducerError,
    ProducerFencedError,
    TransactionAbortableError,
)
from rookery.client.produce.sequences import NO_IDENTITY, ProducerIdentity
from rookery.client.produce.transaction_errors import ErrorKind, Request, classify_error, reason_of


class State(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARING = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_FATAL: Final = {State.FATAL_ERROR: "fenced, or an error from which an abort does not recover"}

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.UNINITIALIZED: {State.INITIALIZING: "init_transactions", **_FATAL},
    State.INITIALIZING: {
        State.READY: "InitProducerId returned an identity",
        State.UNINITIALIZED: "not authorized",
        State.ABORTABLE_ERROR: "an error from which an abort recovers",
        **_FATAL,
    },
    State.READY: {State.IN_TRANSACTION: "begin_transaction", **_FATAL},
    State.IN_TRANSACTION: {
        State.PREPARING: "prepare_transaction",
        State.COMMITTING: "commit_transaction",
        State.ABORTING: "abort_transaction",
        State.ABORTABLE_ERROR: "a failed batch, partition or group",
        **_FATAL,
    },
    State.PREPARING: {
        State.PREPARED: "every record sent is written",
        State.ABORTING: "abort_transaction",
        State.ABORTABLE_ERROR: "a failed batch, partition or group",
        **_FATAL,
    },
    State.PREPARED: {State.COMMITTING: "commit_transaction", State.ABORTING: "abort_transaction", **_FATAL},
    State.COMMITTING: {
        State.READY: "committed",
        State.INITIALIZING: "committed, and the epoch must be raised",
        State.ABORTING: "abort_transaction, before EndTxn was sent",
        State.ABORTABLE_ERROR: "the commit is rejected",
        **_FATAL,
    },
    State.ABORTING: {
        State.READY: "aborted",
        State.INITIALIZING: "aborted, and the epoch must be raised",
        **_FATAL,
    },
    State.ABORTABLE_ERROR: {State.ABORTING: "abort_transaction", **_FATAL},
    State.FATAL_ERROR: {},
}

# The call that each state requires, for error messages.
_REQUIRED_CALLS: Final[Mapping[State, str]] = {
    State.UNINITIALIZED: "call init_transactions() first",
    State.INITIALIZING: "init_transactions() is not done: await it, or call it again",
    State.READY: "call begin_transaction() first",
    State.IN_TRANSACTION: "a transaction is open: call commit_transaction() or abort_transaction() first",
    State.PREPARING: "prepare_transaction() is not done: await it, or call it again",
    State.PREPARED: "the transaction is prepared: end it, here or with Admin.end_transaction()",
    State.COMMITTING: "commit_transaction() is not done: await it, or call it again",
    State.ABORTING: "abort_transaction() is not done: await it, or call it again",
}


class Operation(Enum):
    """The calls that can time out and be continued; the values are the names of the methods."""

    INIT = "init_transactions"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


class OffsetLike(Protocol):
    """The attributes of `OffsetAndMetadata`."""

    @property
    def offset(self) -> Offset: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def metadata(self) -> str: ...


class GroupLike(Protocol):
    """The attributes of `ConsumerGroupMetadata`."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class GroupOffsets(NamedTuple):
    """A group's offsets that are committed with the transaction."""

    group: GroupLike
    offsets: Mapping[TopicPartition, OffsetLike]


class TransactionMachine:
    """The state of one producer. Invariant: `error` is set in the two error states, and only there."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: ApiError | None = None
        self.identity: ProducerIdentity = NO_IDENTITY
        self.is_v2 = False
        self._next_is_v2 = False
        # The number of the last transaction: a record that waited can check whether its transaction is still open.
        self.number = 0
        self._pending: Operation | None = None
        self._needs_new_epoch = False
        self._reset()

    def _reset(self) -> None:
        """Clear the state of the transaction that has ended."""
        # `_has_started`: the transaction exists at the coordinator. `_may_have_started`: a request was sent that starts
        # it, and its response was lost or has not arrived.
        self._has_started = False
        self._may_have_started = False
        self._has_lost_request = False
        self._commit_was_sent = False
        self._new: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._unfinished_offsets: list[GroupOffsets] = []

    @property
    def is_open(self) -> bool:
        """Whether `close` must abort a transaction. A prepared one is left for another process to end."""
        return self.state in (
            State.IN_TRANSACTION,
            State.PREPARING,
            State.COMMITTING,
            State.ABORTING,
            State.ABORTABLE_ERROR,
        )

    @property
    def is_failing(self) -> bool:
        """Whether the transaction has failed or is being aborted, so that its batches are not retried."""
        return self.error is not None or self.state is State.ABORTING

    # Calls of users

    def begin_init(self) -> None:
        if self._resumes(Operation.INIT):
            return
        if self.state is not State.UNINITIALIZED:
            raise ClientStateError(f"init_transactions() is called once: {self._required_call()}")
        self._start(Operation.INIT, State.INITIALIZING)

    def begin(self) -> None:
        self._check("begin_transaction", State.READY)
        self._move(State.IN_TRANSACTION)
        self.number += 1

    def check_may_send(self) -> None:
        if self.state is not State.IN_TRANSACTION:
            self._check("send", State.IN_TRANSACTION)

    def check_may_still_send(self, number: int) -> None:
        """Check a record that was sent in transaction `number` and had to wait."""
        self.check_may_send()
        if number != self.number:
            raise ClientStateError("send() is not possible: its transaction ended while the record waited")

    def begin_offsets(self, offsets: GroupOffsets) -> None:
        """Make `offsets` part of the transaction: a commit sends them even if the call for them timed out.

        Otherwise the records would be committed without the offsets, and their input would be processed twice.
        """
        self._check("send_offsets_to_transaction", State.IN_TRANSACTION)
        self._unfinished_offsets.append(offsets)
        # In v2 the group's coordinator adds the group, so that no request of this producer marks the start.
        self._has_started = self._has_started or self.is_v2

    def begin_prepare(self) -> None:
        if not self._resumes(Operation.PREPARE):
            self._check(Operation.PREPARE.value, State.IN_TRANSACTION)
            if not (self._has_started or self._new or self._unfinished_offsets):
                raise ClientStateError("prepare_transaction() is not possible: nothing was sent in the transaction")
            self._start(Operation.PREPARE, State.PREPARING)

    def begin_end(self, *, commit: bool) -> None:
        operation = Operation.COMMIT if commit else Operation.ABORT
        if commit or not self._can_still_abort():
            if self._resumes(operation):
                return
            if self.state is not State.PREPARED and (commit or self.state is not State.ABORTABLE_ERROR):
                self._check(operation.value, State.IN_TRANSACTION)
        self._start(operation, State.COMMITTING if commit else State.ABORTING)
        if not commit:
            self._new.clear()
            self._unfinished_offsets.clear()

    def _can_still_abort(self) -> bool:
        """Whether the pending operation may still become an abort.

        Not after EndTxn was sent: the coordinator may have committed, and an abort would report the opposite.
        """
        return self.state is State.PREPARING or (self.state is State.COMMITTING and not self._commit_was_sent)

    # Requests

    def next_request(self) -> Request | None:
        """Return the next request of the pending operation; None if it is done."""
        if self.state is State.INITIALIZING:
            return Request.INIT
        if self.state in (State.PREPARING, State.COMMITTING) and self._unfinished_offsets:
            return Request.COMMIT_OFFSETS
        if self.state is State.PREPARING:
            self._move(State.PREPARED)
        if self.state is State.COMMITTING and self._has_started:
            return Request.END_COMMIT
        # A transaction whose start is unknown must be ended, too: an open one would hold back the last stable offset of
        # its partitions until it times out.
        if self.state is State.ABORTING and (self._has_started or self._may_have_started):
            return Request.END_ABORT
        if self.state in (State.COMMITTING, State.ABORTING):
            self._complete()
            return self.next_request()
        return None

    def sending(self, request: Request) -> None:
        """Note that `request` is sent now. From EndTxn on, the coordinator may have committed."""
        if request is Request.END_COMMIT:
            self._commit_was_sent = True

    def accept(self, partition: TopicPartition) -> None:
        """Note that a record for `partition` was accepted."""
        if self.is_v2:
            # The leader adds the partition when it gets the batch, possibly before the response arrives. Without this,
            # a commit would skip EndTxn and be reported as done, while the record stays uncommitted.
            self._has_started = True
        elif partition not in self._added:
            self._new.add(partition)

    def is_added(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether batches for all of `partitions` may be sent."""
        return self.is_v2 or self._added.issuperset(partitions)

    def partitions_to_add(self, partitions: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        """Return all partitions to add in one request: `partitions`, and those whose batches will be sent later."""
        if self.state not in (State.IN_TRANSACTION, State.PREPARING, State.COMMITTING):
            raise self._blocking_error() or TransactionAbortableError(
                f"{self._prefix()}: the transaction is being aborted"
            )
        self._new |= set(partitions) - self._added
        self._may_have_started = True
        return sorted(self._new)

    def partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        self._added.update(partitions)
        self._new -= self._added
        self._has_started = True

    def offsets_to_commit(self) -> GroupOffsets:
        return self._unfinished_offsets[0]

    def needs_group(self, group_id: str) -> bool:
        """Whether the group must be added to the transaction first."""
        if self.is_v2 or group_id in self._groups:
            return False
        self._may_have_started = True
        return True

    def group_added(self, group_id: str) -> None:
        self._groups.add(group_id)
        self._has_started = True

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        self._unfinished_offsets.remove(offsets)

    # Results

    def set_next_protocol(self, *, is_v2: bool) -> None:
        """Set the protocol of the next transaction. An open one ends with the protocol with which it began."""
        self._next_is_v2 = is_v2

    def initialized(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.is_v2 = self._next_is_v2
        self._needs_new_epoch = False
        self._move(State.READY)

    def ended(self, identity: ProducerIdentity | None = None) -> None:
        """Note that EndTxn succeeded; in v2 its response has the identity for the next transaction."""
        if identity is not None:
            self.identity = identity
        self._complete()

    def response_lost(self, request: Request) -> None:
        """Note that the response to a request was lost: the request may take effect late, after its repetition.

        In the classic protocol it could then join the next transaction, for example add a partition that no EndTxn
        would end. A new epoch fences it.
        """
        self._has_lost_request = True
        if request is not Request.INIT and not self.is_v2:
            self._needs_new_epoch = True

    def request_failed(self, request: Request, error: ApiError) -> ApiError | None:
        """Handle an error that is not retried. Return the error to raise; None if the operation continues."""
        kind = classify_error(request, error.code)
        # Every request that could have started the transaction was rejected.
        if not self._has_started and not self._has_lost_request:
            self._may_have_started = False
        if request is Request.END_ABORT and self._is_nothing_to_abort(error.code):
            self._complete()
            return None
        if kind is ErrorKind.UNAUTHORIZED and self._pending is Operation.INIT:
            self._move(State.UNINITIALIZED)
            return error
        if kind is ErrorKind.FENCED:
            return self._fatal(ProducerFencedError(self._describe(request, error), error.code))
        if kind in (ErrorKind.FATAL, ErrorKind.UNAUTHORIZED):
            return self._fatal(FatalProducerError(error.code, self._describe(request, error)))
        raised: ApiError = TransactionAbortableError(self._describe(request, error), error.code)
        if kind is ErrorKind.COMMIT_FAILED:
            raised = CommitFailedError(error.code, self._describe(request, error))
        self._abortable(raised, needs_new_epoch=kind is ErrorKind.RECOVERABLE or request is Request.INIT)
        return raised

    def send_failed(self, error: ApiError, number: int) -> None:
        """Fail transaction `number` because one of its records was not accepted: it must not be committed without it.

        Nothing happens if another transaction has begun, or the commit was sent.
        """
        if number != self.number or self._commit_was_sent:
            return
        if classify_error(Request.PRODUCE, error.code) in (ErrorKind.FENCED, ErrorKind.FATAL):
            self._fatal(FatalProducerError(error.code, f"{self._prefix()}: {reason_of(error)}"))
        else:
            self._abortable(error, needs_new_epoch=False)

    def batch_failed(self, partition: TopicPartition, error: ApiError) -> ApiError:
        """Handle a batch that is not retried. Return the error for its records: `error`, or the fatal error."""
        kind = classify_error(Request.PRODUCE, error.code)
        message = f"{self._prefix()}, partition {partition}: {reason_of(error)}"
        if self.state is State.FATAL_ERROR and isinstance(error, ProducerFencedError | FatalProducerError):
            # Its partition could not be added, and `request_failed` has handled the error.
            return error
        if kind is ErrorKind.FENCED:
            return self._fatal(ProducerFencedError(message, error.code))
        if kind is ErrorKind.FATAL:
            return self._fatal(FatalProducerError(error.code, message))
        # A late attempt of the batch may still be written. In the next transaction of the same epoch, it would take the
        # sequence numbers of another batch, and would be committed.
        self._abortable(error, needs_new_epoch=True)
        return error

    # Helpers

    def _is_nothing_to_abort(self, code: ErrorCode) -> bool:
        """Whether an abort is done because the coordinator has no such transaction, and may never have had it."""
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._needs_new_epoch = True
            return True
        return code is ErrorCode.INVALID_TXN_STATE and not self._has_started

    def _resumes(self, operation: Operation) -> bool:
        """Whether the call continues the pending operation. Raises ClientStateError if another one is pending."""
        if self._pending is None:
            self._check_no_fatal_error()
            return False
        if self._pending is not operation:
            raise self._pending_error(operation.value, self._pending)
        return True

    def _check(self, call: str, wanted: State) -> None:
        if self._pending is not None:
            raise self._pending_error(call, self._pending)
        error = self._blocking_error()
        if error is not None:
            raise error from self.error
        if self.state is not wanted:
            raise ClientStateError(f"{call}() is not possible: {self._required_call()}")

    def _check_no_fatal_error(self) -> None:
        if self.state is State.FATAL_ERROR:
            error = self._blocking_error()
            assert error is not None
            raise error from self.error

    def _blocking_error(self) -> ApiError | None:
        """Return a new error for each call: re-raising one exception would accumulate tracebacks."""
        error = self.error
        if error is None:
            return None
        if self.state is State.ABORTABLE_ERROR:
            reason = f"call abort_transaction(): {reason_of(error)}"
            return TransactionAbortableError(reason, error.code)
        if isinstance(error, ProducerFencedError):
            return ProducerFencedError(error.message, error.code)
        return FatalProducerError(error.code, error.message)

    def _pending_error(self, call: str, pending: Operation) -> ClientStateError:
        return ClientStateError(f"{call}() is not possible: {pending.value}() is not done, call it again first")

    def _required_call(self) -> str:
        return _REQUIRED_CALLS[self.state]

    def _prefix(self) -> str:
        return f"transactional.id {self.transactional_id}"

    def _describe(self, request: Request, error: ApiError) -> str:
        return f"{self._prefix()}, {request.value}: {reason_of(error)}"

    def _start(self, operation: Operation, state: State) -> None:
        self._move(state)
        self._pending = operation

    def _complete(self) -> None:
        """End the transaction; continue with InitProducerId if the next one needs a new epoch."""
        upgraded = self._next_is_v2 and not self.is_v2
        self._reset()
        if self._needs_new_epoch or upgraded:
            pending = self._pending
            self._move(State.INITIALIZING)
            self._pending = pending
        else:
            self.is_v2 = self._next_is_v2
            self._move(State.READY)

    def _abortable(self, error: ApiError, *, needs_new_epoch: bool) -> None:
        # In the other states there is an error already, the abort is under way, or the transaction has ended.
        if State.ABORTABLE_ERROR in TRANSITIONS[self.state]:
            self._move(State.ABORTABLE_ERROR, error)
        if needs_new_epoch and not self.is_v2:
            self._needs_new_epoch = True

    def _fatal(self, error: ApiError) -> ApiError:
        if self.state is not State.FATAL_ERROR:
            self._move(State.FATAL_ERROR, error)
        return error

    def _move(self, state: State, error: ApiError | None = None) -> None:
        assert state in TRANSITIONS[self.state], f"no way from {self.state.name} to {state.name}"
        self.state = state
        self.error = error
        self._pending = None
