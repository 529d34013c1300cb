"""What a coordinator's core answers with: records to write, and effects for the shell to carry out.

A core never does anything itself. It reads its state and returns a `Decision`; the runtime appends the records, replays
them into the state, and only then carries out the rest. If the append fails nothing of the decision happens.

Requests that must wait (a JoinGroup for the other members) are tokens: the caller gives one to the core, the core
answers PARKED and keeps the token in its state; a later decision, of whatever cause, completes it.

Times are delays, not dates, so that a wall clock that is set does not expire anybody.
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
    """The answer of a decision whose request waits."""

    PARKED = "parked"


PARKED = Parked.PARKED


class Completion(NamedTuple):
    """The answer to a request that was parked."""

    token: Token
    response: Any


class Timer(NamedTuple):
    """Fire `key` after `delay_ms`, instead of whenever it was due before; None: not any more."""

    key: TimerKey
    delay_ms: int | None


class Producer(NamedTuple):
    """Whose transaction records belong to; `guard` if that was verified before (see `Coordinator.guard`)."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    guard: object | None = None


@value_class(kw_only=True)
class Decision(Generic[ResponseT]):
    """`drafts` are changes of the state that the log does not carry: the shard's `install` knows what they are.

    Records of a `divisible` decision are changes on their own: what does not fit into one batch is written in several,
    and if one of them fails those before it have happened.

    Records of a `producer` are part of its transaction: they are pending until it ends. `effects` are what must happen
    outside once the records are committed, and not before; a shard that is loaded must ask for them again.
    """

    response: ResponseT | Parked | ErrorCode
    records: Sequence[Any] = ()
    completions: Sequence[Completion] = ()
    timers: Sequence[Timer] = ()
    drafts: Sequence[Any] = ()
    divisible: bool = False
    producer: Producer | None = None
    effects: Sequence[Any] = ()
