"""The states of a transactional id, and the transitions between them.

A transactional id is a name that a producer keeps over its restarts. Its first InitProducerId makes it EMPTY, with a
producer id and an epoch. The first partition that is added begins a transaction, which is then ONGOING. EndTxn decides
how it ends: PREPARE_COMMIT or PREPARE_ABORT is written with all partitions, and from then on the outcome is fixed. When
every partition has its marker, COMPLETE_COMMIT or COMPLETE_ABORT is written, and the next transaction may begin.

The producer's epoch says which instance may do this. Each InitProducerId bumps it, and so fences the instances before;
an ONGOING transaction is aborted by that, or by its time-out, with the bumped epoch. In the newer protocol (KIP-890)
the end of every transaction bumps it too, so that records that arrive late cannot become part of the next transaction.
A client may also abort a transaction of which the coordinator has no partition; that goes through PREPARE_ABORT without
partitions.

An unused transactional id expires and is removed by a tombstone. Kafka writes the state DEAD before that; this
coordinator does not. An id that is DEAD in the log is kept until it expires, so that its old producers stay fenced.

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
    """The values are those of the log, the labels those of DescribeTransactions and ListTransactions."""

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

# The outcome is fixed, but some partitions may lack their markers.
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
# A transaction has ended, and no other has begun.
COMPLETED: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
# No transaction is open: these may expire.
IDLE: Final = COMPLETED | {State.EMPTY, State.DEAD}

_FROM_IDLE: Final[Mapping[State, str]] = {
    State.EMPTY: "InitProducerId",
    State.ONGOING: "the first partition is added",
    State.PREPARE_ABORT: "an abort before a partition was added",
    State.DEAD: "expired",
}

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.EMPTY: _FROM_IDLE,
    State.ONGOING: {
        State.ONGOING: "more partitions",
        State.PREPARE_COMMIT: "EndTxn commits",
        State.PREPARE_ABORT: "EndTxn aborts, InitProducerId fences, or the transaction times out",
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
    """Return `TRANSITIONS` as a Mermaid state diagram."""
    transitions = (
        (before.label, after.label, cause) for before, found in TRANSITIONS.items() for after, cause in found.items()
    )
    return state_diagram(transitions, first=State.EMPTY.label, last=State.DEAD.label)
