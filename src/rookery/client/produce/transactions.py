"""The transactions of a producer: in which state it is, what to ask next, and what an error means.

Theory of operation. A producer with a `transactional.id` takes it over with InitProducerId, which fences the instance
that had it before. Then it writes one transaction after the other. A transaction exists at its coordinator from the
first partition that is added to it until EndTxn commits or aborts it. There are two protocols; a transaction is carried
through in the one it began with:

    classic   the client adds partitions and groups to its transaction before it writes there. One epoch serves many
              transactions. After a failed batch, or a request whose answer was lost, something may still come late
              and would join the next transaction: the epoch is then raised between the two (KIP-360)
    v2        the leaders add partitions, and every end raises the epoch (KIP-890). In use if the cluster's feature
              `transaction.version` is at 2 or more

The states, and the ways between them (a way to FATAL_ERROR leads from everywhere):

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

Calls that wait for the coordinator (init, prepare, commit, abort) are operations. An operation that ran out of time has
not failed: it stays pending, calling it again goes on with the same requests, and no other call is allowed before it is
done; only a commit may still be aborted, as long as the coordinator was not asked for it, and so may a preparation.
`next_request` says what is missing. A repeated EndTxn is harmless: the coordinator knows by the epoch what it ended.

A prepared transaction has all its records and takes no more; who has its identity may end it (`Admin.end_transaction`),
and this producer may be closed without touching it.

What an error means depends on the request that got it (`judge`); the classes are those of Kafka's own client, as
KIP-1050 sums them up: retriable; abortable (the transaction is lost, the producer is not); fenced, or otherwise fatal
(the producer is lost). The first error of a transaction is the one that later calls tell.

Pure. `transaction_calls` carries out the requests; `producer` and `sender` see that shell only.
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


_FATAL: Final = {State.FATAL_ERROR: "fenced, or an error that no abort mends"}

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.UNINITIALIZED: {State.INITIALIZING: "init_transactions", **_FATAL},
    State.INITIALIZING: {
        State.READY: "an identity is given",
        State.UNINITIALIZED: "not authorized",
        State.ABORTABLE_ERROR: "an error that an abort mends",
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
        State.PREPARED: "everything that was sent is written",
        State.ABORTING: "abort_transaction",
        State.ABORTABLE_ERROR: "a failed batch, partition or group",
        **_FATAL,
    },
    State.PREPARED: {State.COMMITTING: "commit_transaction", State.ABORTING: "abort_transaction", **_FATAL},
    State.COMMITTING: {
        State.READY: "committed",
        State.INITIALIZING: "committed, and the epoch must be raised",
        State.ABORTING: "abort_transaction, before the coordinator was asked to commit",
        State.ABORTABLE_ERROR: "the commit is refused",
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

# What a user would have to call in a state to get on.
_MISSING_CALLS: Final[Mapping[State, str]] = {
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
    """The calls that can run out of time, by their names."""

    INIT = "init_transactions"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


class Request(Enum):
    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END_COMMIT = "EndTxn (commit)"
    END_ABORT = "EndTxn (abort)"
    PRODUCE = "Produce"


class Verdict(Enum):
    """What to do about an error code.

    RECOVERABLE: abortable, if the epoch is raised afterwards. REFUSED: nothing has happened, and it may be tried again.
    """

    RETRY = auto()
    ABORTABLE = auto()
    RECOVERABLE = auto()
    COMMIT_FAILED = auto()
    REFUSED = auto()
    FENCED = auto()
    FATAL = auto()


_FENCED: Final = {ErrorCode.PRODUCER_FENCED: Verdict.FENCED, ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FENCED}
_COORDINATOR: Final = {
    **_FENCED,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.RECOVERABLE,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
}
# Neither rests on what else the request holds, nor goes away in the next transaction.
_LASTING: Final = dict.fromkeys(
    (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    Verdict.FATAL,
)
_GROUP_HAS_MOVED_ON: Final = dict.fromkeys(
    (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Verdict.COMMIT_FAILED,
)

# By request: the codes that it tells apart, and what all others mean. Retriable ones are not listed.
_VERDICTS: Final[Mapping[Request, tuple[Mapping[ErrorCode, Verdict], Verdict]]] = {
    Request.INIT: (
        {
            **_FENCED,
            ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.REFUSED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.REFUSED,
        },
        Verdict.FATAL,
    ),
    Request.ADD_PARTITIONS: (
        {**_COORDINATOR, **_LASTING, ErrorCode.INVALID_TXN_STATE: Verdict.FATAL},
        Verdict.ABORTABLE,
    ),
    Request.ADD_OFFSETS: ({**_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE}, Verdict.FATAL),
    Request.COMMIT_OFFSETS: (
        {
            **_FENCED,
            **_GROUP_HAS_MOVED_ON,
            ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE,
            ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORTABLE,
        },
        Verdict.FATAL,
    ),
    Request.END_COMMIT: (_COORDINATOR, Verdict.FATAL),
    # An abort that must be aborted would go round in circles.
    Request.END_ABORT: ({**_COORDINATOR, ErrorCode.TRANSACTION_ABORTABLE: Verdict.FATAL}, Verdict.FATAL),
    # A leader says INVALID_PRODUCER_EPOCH also when the transaction timed out; the coordinator knows (KIP-588).
    Request.PRODUCE: (
        {
            **_LASTING,
            ErrorCode.PRODUCER_FENCED: Verdict.FENCED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.FATAL,
        },
        Verdict.RECOVERABLE,
    ),
}


def judge(request: Request, code: ErrorCode) -> Verdict:
    """Of Produce only what is final comes here: its retries are the sender's."""
    if request is not Request.PRODUCE and (code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE):
        return Verdict.RETRY
    codes, otherwise = _VERDICTS[request]
    return codes.get(code, otherwise)


# What users can make of the codes for which coordinators give no text.
_REASONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.PRODUCER_FENCED: "a newer producer has this transactional.id, or the transaction timed out",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has this transactional.id, or the transaction timed out",
    ErrorCode.INVALID_TXN_STATE: "the coordinator has no such transaction; it may have timed out",
}


def _reason(error: ApiError) -> str:
    return error.message or _REASONS.get(error.code, error.code.name)


class OffsetLike(Protocol):
    """`OffsetAndMetadata`."""

    @property
    def offset(self) -> Offset: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def metadata(self) -> str: ...


class GroupLike(Protocol):
    """`ConsumerGroupMetadata`."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class GroupOffsets(NamedTuple):
    """Offsets that are to be committed with the transaction."""

    group: GroupLike
    offsets: Mapping[TopicPartition, OffsetLike]


class TransactionMachine:
    """One producer's. Invariant: `error` is there in the two error states, and in no other."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: ApiError | None = None
        self.identity: ProducerIdentity = NO_IDENTITY
        self.is_v2 = False
        self._next_is_v2 = False
        # Of the transaction that was begun last: who waited meanwhile can tell whether it is still the same.
        self.number = 0
        self._pending: Operation | None = None
        self._needs_new_epoch = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget the transaction that has ended."""
        # The coordinator has it; or it has it unless a request was lost or refused.
        self._has_started = False
        self._may_have_started = False
        self._has_lost_request = False
        self._commit_is_out = False
        self._new: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._unfinished_offsets: list[GroupOffsets] = []

    @property
    def is_open(self) -> bool:
        """Whether there is something to abort. What is prepared is for others to end."""
        return self.state in (
            State.IN_TRANSACTION,
            State.PREPARING,
            State.COMMITTING,
            State.ABORTING,
            State.ABORTABLE_ERROR,
        )

    @property
    def is_over(self) -> bool:
        """Whether its batches are not wanted any more: it has failed, or is being aborted."""
        return self.error is not None or self.state is State.ABORTING

    # What users call

    def begin_init(self) -> None:
        if self._goes_on(Operation.INIT):
            return
        if self.state is not State.UNINITIALIZED:
            raise ClientStateError(f"init_transactions() is called once: {self._missing()}")
        self._start(Operation.INIT, State.INITIALIZING)

    def begin(self) -> None:
        self._check("begin_transaction", State.READY)
        self._move(State.IN_TRANSACTION)
        self.number += 1

    def check_may_send(self) -> None:
        if self.state is not State.IN_TRANSACTION:
            self._check("send", State.IN_TRANSACTION)

    def check_may_still_send(self, number: int) -> None:
        """For a record that was given to the transaction of this number, and had to wait."""
        self.check_may_send()
        if number != self.number:
            raise ClientStateError("send() is not possible: its transaction ended while the record waited")

    def begin_offsets(self, offsets: GroupOffsets) -> None:
        """They are part of the transaction from now: a commit waits for them, even if the call ran out of time."""
        self._check("send_offsets_to_transaction", State.IN_TRANSACTION)
        self._unfinished_offsets.append(offsets)
        self._has_started = self._has_started or self.is_v2

    def begin_prepare(self) -> None:
        if not self._goes_on(Operation.PREPARE):
            self._check(Operation.PREPARE.value, State.IN_TRANSACTION)
            if not (self._has_started or self._new or self._unfinished_offsets):
                raise ClientStateError("prepare_transaction() is not possible: nothing was sent in the transaction")
            self._start(Operation.PREPARE, State.PREPARING)

    def begin_end(self, *, commit: bool) -> None:
        operation = Operation.COMMIT if commit else Operation.ABORT
        if commit or not self._may_turn_back():
            if self._goes_on(operation):
                return
            if self.state is not State.PREPARED and (commit or self.state is not State.ABORTABLE_ERROR):
                self._check(operation.value, State.IN_TRANSACTION)
        self._start(operation, State.COMMITTING if commit else State.ABORTING)
        if not commit:
            self._new.clear()
            self._unfinished_offsets.clear()

    def _may_turn_back(self) -> bool:
        """Whether an operation that is under way may still become an abort."""
        return self.state is State.PREPARING or (self.state is State.COMMITTING and not self._commit_is_out)

    # What is to be asked

    def next_request(self) -> Request | None:
        """What brings the pending operation nearer to its end; None: it is done."""
        if self.state is State.INITIALIZING:
            return Request.INIT
        if self.state in (State.PREPARING, State.COMMITTING) and self._unfinished_offsets:
            return Request.COMMIT_OFFSETS
        if self.state is State.PREPARING:
            self._move(State.PREPARED)
        if self.state is State.COMMITTING and self._has_started:
            return Request.END_COMMIT
        if self.state is State.ABORTING and (self._has_started or self._may_have_started):
            return Request.END_ABORT
        if self.state in (State.COMMITTING, State.ABORTING):
            self._complete()
            return self.next_request()
        return None

    def sending(self, request: Request) -> None:
        """It goes out now. A coordinator that was asked to commit may have done so."""
        if request is Request.END_COMMIT:
            self._commit_is_out = True

    def accept(self, partition: TopicPartition) -> None:
        """A record for it was accepted. In v2 its leader may have told the coordinator before we hear of anything."""
        if self.is_v2:
            self._has_started = True
        elif partition not in self._added:
            self._new.add(partition)

    def is_added(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether batches for all of them may be sent."""
        return self.is_v2 or self._added.issuperset(partitions)

    def partitions_to_add(self, partitions: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        """All that wait, in one request: those that are needed now, and those that will be soon."""
        if self.state not in (State.IN_TRANSACTION, State.PREPARING, State.COMMITTING):
            raise self._blocking_error() or TransactionAbortableError(
                f"{self._name()}: the transaction is being aborted"
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
        """Whether the group is to be added to the transaction first."""
        if self.is_v2 or group_id in self._groups:
            return False
        self._may_have_started = True
        return True

    def group_added(self, group_id: str) -> None:
        self._groups.add(group_id)
        self._has_started = True

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        self._unfinished_offsets.remove(offsets)

    # What has happened

    def saw_protocol(self, *, is_v2: bool) -> None:
        """What the cluster speaks now. A transaction that is open is ended in the protocol it began with."""
        self._next_is_v2 = is_v2

    def initialized(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.is_v2 = self._next_is_v2
        self._needs_new_epoch = False
        self._move(State.READY)

    def ended(self, identity: ProducerIdentity | None = None) -> None:
        """EndTxn was carried out; in v2 its answer gives the identity for the next transaction."""
        if identity is not None:
            self.identity = identity
        self._complete()

    def lost(self, request: Request) -> None:
        """A request had no answer: it may be carried out late, after its repetition."""
        self._has_lost_request = True
        if request is not Request.INIT and not self.is_v2:
            self._needs_new_epoch = True

    def failed(self, request: Request, error: ApiError) -> ApiError | None:
        """A final answer, or no answer in time where nobody asks again. What to raise; None: go on."""
        verdict = judge(request, error.code)
        if not self._has_started and not self._has_lost_request:
            self._may_have_started = False
        if request is Request.END_ABORT and self._is_nothing_to_abort(error.code):
            self._complete()
            return None
        if verdict is Verdict.REFUSED and self._pending is Operation.INIT:
            self._move(State.UNINITIALIZED)
            return error
        if verdict is Verdict.FENCED:
            return self._fatal(ProducerFencedError(self._told(request, error), error.code))
        if verdict in (Verdict.FATAL, Verdict.REFUSED):
            return self._fatal(FatalProducerError(error.code, self._told(request, error)))
        told: ApiError = TransactionAbortableError(self._told(request, error), error.code)
        if verdict is Verdict.COMMIT_FAILED:
            told = CommitFailedError(error.code, self._told(request, error))
        self._abortable(told, needs_new_epoch=verdict is Verdict.RECOVERABLE or request is Request.INIT)
        return told

    def send_failed(self, error: ApiError, number: int) -> None:
        """A record of that transaction was not even accepted: without it, it is not what the user wanted."""
        if number != self.number or self._commit_is_out:
            return
        if judge(Request.PRODUCE, error.code) in (Verdict.FENCED, Verdict.FATAL):
            self._fatal(FatalProducerError(error.code, f"{self._name()}: {_reason(error)}"))
        else:
            self._abortable(error, needs_new_epoch=False)

    def batch_failed(self, partition: TopicPartition, error: ApiError) -> ApiError:
        """For good. What its records' futures get: the error itself, unless the producer is lost with it."""
        verdict = judge(Request.PRODUCE, error.code)
        told = f"{self._name()}, partition {partition}: {_reason(error)}"
        if self.state is State.FATAL_ERROR and isinstance(error, ProducerFencedError | FatalProducerError):
            # Its partition could not be added, which told all there is to tell.
            return error
        if verdict is Verdict.FENCED:
            return self._fatal(ProducerFencedError(told, error.code))
        if verdict is Verdict.FATAL:
            return self._fatal(FatalProducerError(error.code, told))
        # Its sequence numbers are not to be used for another batch.
        self._abortable(error, needs_new_epoch=True)
        return error

    # Inside

    def _is_nothing_to_abort(self, code: ErrorCode) -> bool:
        """The coordinator has no such transaction, and need not have: whether it was begun is not known."""
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._needs_new_epoch = True
            return True
        return code is ErrorCode.INVALID_TXN_STATE and not self._has_started

    def _goes_on(self, operation: Operation) -> bool:
        """Whether the call goes on with the operation that is pending; refuses it if another one is."""
        if self._pending is None:
            self._check_no_fatal_error()
            return False
        if self._pending is not operation:
            raise self._unfinished(operation.value, self._pending)
        return True

    def _check(self, call: str, wanted: State) -> None:
        if self._pending is not None:
            raise self._unfinished(call, self._pending)
        error = self._blocking_error()
        if error is not None:
            raise error from self.error
        if self.state is not wanted:
            raise ClientStateError(f"{call}() is not possible: {self._missing()}")

    def _check_no_fatal_error(self) -> None:
        if self.state is State.FATAL_ERROR:
            error = self._blocking_error()
            assert error is not None
            raise error from self.error

    def _blocking_error(self) -> ApiError | None:
        """A new one for each call, so that tracebacks do not pile up on the first."""
        error = self.error
        if error is None:
            return None
        if self.state is State.ABORTABLE_ERROR:
            reason = f"call abort_transaction(): {_reason(error)}"
            return TransactionAbortableError(reason, error.code)
        kind = ProducerFencedError(error.message, error.code)
        return kind if isinstance(error, ProducerFencedError) else FatalProducerError(error.code, error.message)

    def _unfinished(self, call: str, pending: Operation) -> ClientStateError:
        return ClientStateError(f"{call}() is not possible: {pending.value}() is not done, call it again first")

    def _missing(self) -> str:
        return _MISSING_CALLS[self.state]

    def _name(self) -> str:
        return f"transactional.id {self.transactional_id}"

    def _told(self, request: Request, error: ApiError) -> str:
        return f"{self._name()}, {request.value}: {_reason(error)}"

    def _start(self, operation: Operation, state: State) -> None:
        self._move(state)
        self._pending = operation

    def _complete(self) -> None:
        upgraded = self._next_is_v2 and not self.is_v2
        self._begin_anew()
        if self._needs_new_epoch or upgraded:
            pending = self._pending
            self._move(State.INITIALIZING)
            self._pending = pending
        else:
            self.is_v2 = self._next_is_v2
            self._move(State.READY)

    def _abortable(self, error: ApiError, *, needs_new_epoch: bool) -> None:
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
