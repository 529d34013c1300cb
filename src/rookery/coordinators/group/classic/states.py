"""The states of a classic group, and the ways between them.

A group begins and ends EMPTY. A member that joins makes it prepare a rebalance: all members must join (again) within
the rebalance time-out, or are expelled. When they have, a generation begins: its leader gets everyone's metadata and
sends everyone's assignment with its SyncGroup; then the group is stable. Any change of members or of their metadata
starts over. DEAD is what a group is called that is not there any more.

`TRANSITIONS` is checked whenever a group changes its state, and `diagram` draws it for the documentation.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rookery.coordinators.diagram import state_diagram


class State(Enum):
    """The values are what ListGroups and DescribeGroups say."""

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
        State.COMPLETING_REBALANCE: "all have joined, or the rebalance time-out expelled those who have not",
        State.EMPTY: "nobody is left",
    },
    State.COMPLETING_REBALANCE: {
        State.STABLE: "the leader's assignment is written",
        State.PREPARING_REBALANCE: "a member comes, goes, changes, or does not sync in time",
    },
    State.STABLE: {
        State.PREPARING_REBALANCE: "a member comes, goes or changes",
    },
    State.DEAD: {},
}


def can_move(before: State, after: State) -> bool:
    return after in TRANSITIONS[before]


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    ways = (
        (before.value, after.value, cause) for before, found in TRANSITIONS.items() for after, cause in found.items()
    )
    return state_diagram(ways, first=State.EMPTY.value, last=State.DEAD.value)
