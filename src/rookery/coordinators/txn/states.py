"""The states of a transactional id, and the ways between them.

A transactional id is a name that a producer keeps over its restarts. Its first InitProducerId makes it EMPTY, with a
producer id and an epoch. The first partition that is added begins a transaction, which is then ONGOING. EndTxn decides
how it ends: PREPARE_COMMIT or PREPARE_ABORT is written with all partitions, and from there nothing can change the
outcome. When every partition has its marker, COMPLETE_COMMIT or COMPLETE_ABORT is written, and the next transaction may
begin.

Who may do this is told by the producer's epoch. Each InitProducerId raises it, and so fences the instances before; an
ONGOING transaction is aborted by that, or by its time-out, with the raised epoch. In the newer protocol (KIP-890) the
end of every transaction raises it too, so that nothing that was sent late can end up in the next transaction; and
a transaction may be aborted that the coordinator has never heard of, which goes through PREPARE_ABORT without
partitions.

A transactional id that nobody uses expires: it is removed by a tombstone. DEAD is what Kafka calls it on its way there.
It is not written here; from a log that has it, it is kept until it expires, so that its old producers stay fenced.

    from \\ to         EMPTY  ONGOING  PREPARE_COMMIT  PREPARE_ABORT  COMPLETE_COMMIT  COMPLETE_ABORT  DEAD
    (none)              x
    EMPTY               x       x                           x                                          x
    ONGOING                     x           x               x
    PREPARE_COMMIT                                                          x
    PREPARE_ABORT                                                                            x
    COMPLETE_COMMIT     x       x                           x                                          x
    COMPLETE_ABORT      x       x                           x                                          x
    DEAD                x

`TRANSITIONS` is that table with the causes. It is checked whenever a record is replayed that was written just now (the
records of a compacted log have gaps), and `diagram` draws it for the documentation.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from rookery.coordinators.diagram import state_diagram


class State(IntEnum):
    """The values are what the log says, the labels what DescribeTransactions and ListTransactions say."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        return self.name.title().replace("_", "")


STATES_BY_LABEL: Final[Mapping[str, State]] = {state.label: state for state in State}

# How it ends is certain, but not all partitions know.
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
# A transaction came to its end, and no other has begun.
COMPLETED: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
# There is no transaction: these may expire.
IDLE: Final = COMPLETED | {State.EMPTY, State.DEAD}

_FROM_IDLE: Final[Mapping[State, str]] = {
    State.EMPTY: "InitProducerId",
    State.ONGOING: "the first partition is added",
    State.PREPARE_ABORT: "an abort before the coordinator has heard of a partition",
    State.DEAD: "expired",
}

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.EMPTY: _FROM_IDLE,
    State.ONGOING: {
        State.ONGOING: "more partitions",
        State.PREPARE_COMMIT: "EndTxn commits",
        State.PREPARE_ABORT: "EndTxn aborts, InitProducerId fences, or the time is over",
    },
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT: "all markers are written"},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT: "all markers are written"},
    State.COMPLETE_COMMIT: _FROM_IDLE,
    State.COMPLETE_ABORT: _FROM_IDLE,
    State.DEAD: {State.EMPTY: "InitProducerId"},
}


def can_move(before: State | None, after: State) -> bool:
    """`before` of None: the transactional id is new."""
    return after is State.EMPTY if before is None else after in TRANSITIONS[before]


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    ways = (
        (before.label, after.label, cause) for before, found in TRANSITIONS.items() for after, cause in found.items()
    )
    return state_diagram(ways, first=State.EMPTY.label, last=State.DEAD.label)
