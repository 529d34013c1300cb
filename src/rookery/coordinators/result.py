"""The result of a coordinator's decision: a response, records to write, and effects for the runtime to carry out.

A shard performs no I/O. A decision reads the shard's state and returns a `CoordinatorResult`; `runtime` appends the
records, replays them into the state, and only then applies the rest. If the append fails, nothing of it is applied.

A request that must wait (a JoinGroup waits for the other members) is represented by a token: the caller passes the
token to the decision, which stores it in the shard's state and returns the response PARKED. A later decision, caused by
another request or by a timer, completes the token.

Timers carry delays, not dates, so that setting the wall clock expires no session.
"""

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from rookery.base.errors import ErrorCode
from rookery.base.types import ProducerEpoch, ProducerId
from rookery.base.values import value_class

ResponseT = TypeVar("ResponseT", covariant=True)

Token: TypeAlias = int
TimerKey: TypeAlias = Hashable


class Parked(Enum):
    """The response of a decision whose request waits."""

    PARKED = "parked"


PARKED = Parked.PARKED


class Completion(NamedTuple):
    """The response to a parked request."""

    token: Token
    response: Any


class Timer(NamedTuple):
    """Fire `key` after `delay_ms`, replacing its earlier due time; None cancels it."""

    key: TimerKey
    delay_ms: int | None


class Producer(NamedTuple):
    """The producer whose transaction the records belong to.

    `guard` was taken before the transaction was verified, or is None if it was not verified (see `Coordinator.guard`).
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    guard: object | None = None


@value_class(kw_only=True)
class CoordinatorResult(Generic[ResponseT]):
    """What a decision returns.

    `volatile_changes` are changes of state that the log does not carry; the shard's `install` applies them.

    `divisible`: each record is a change by itself, so that records that do not fit into one batch are written in
    several. If one batch fails, those before it stay written.

    `producer`: the records are part of its transaction and pending until it ends.

    `effects` must happen outside the shard once the records are committed, and not before. They are not logged: after
    loading, the shard must return them again.
    """

    response: ResponseT | Parked | ErrorCode
    records: Sequence[Any] = ()
    completions: Sequence[Completion] = ()
    timers: Sequence[Timer] = ()
    volatile_changes: Sequence[Any] = ()
    divisible: bool = False
    producer: Producer | None = None
    effects: Sequence[Any] = ()
