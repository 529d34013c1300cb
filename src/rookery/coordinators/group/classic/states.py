"""The states of a classic group, and the transitions between them.

A group begins and ends EMPTY. A member that joins makes the group prepare a rebalance: all members must join (again)
within the rebalance time-out, or are removed. When they have, a generation begins: its leader receives the metadata of
all members and sends their assignments with its SyncGroup; then the group is stable. Any change of the members or of
their metadata starts over. DEAD is reported for a group that no longer exists.

`TRANSITIONS` is checked whenever a group changes its state, and `diagram` draws it for the documentation.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rookery.coordinators.diagram import state_diagram


class State(Enum):
    """The values are the names in the responses of ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.EMPTY: {
        State.PREPARING_REBALANCE: "the first member joins",
        State.DEAD: "deleted, or its last offset expired",
    },
    State.PREPARING_REBALANCE: {
        State.COMPLETING_REBALANCE: "all members have joined, or the rebalance time-out removed the others",
        State.EMPTY: "no member is left",
    },
    State.COMPLETING_REBALANCE: {
        State.STABLE: "the leader's assignment is written",
        State.PREPARING_REBALANCE: "a member joins, leaves, changes, or does not sync in time",
    },
    State.STABLE: {
        State.PREPARING_REBALANCE: "a member joins, leaves or changes",
    },
    State.DEAD: {},
}


def can_move(before: State, after: State) -> bool:
    return after in TRANSITIONS[before]


def diagram() -> str:
    """Return `TRANSITIONS` as a Mermaid state diagram."""
    transitions = (
        (before.value, after.value, cause) for before, found in TRANSITIONS.items() for after, cause in found.items()
    )
    return state_diagram(transitions, first=State.EMPTY.value, last=State.DEAD.value)
