"""The voters of a quorum, which count for a majority, and their endpoints. Pure.

A voter is identified by its node id and the id of its log directory (`ReplicaKey`). A node whose disk was lost returns
with another directory id: it has lost its votes and its log, and must not count as the voter that had them.

The set in force is the newest one in the log, whether it is committed or not: with the committed one, a leader and a
candidate could each have a majority of different sets. `VoterHistory` keeps the sets by offset, so that truncating the
log also removes the sets in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from rookery.base.types import NodeId, Offset
from rookery.base.values import value_class
from rookery.metadata.features import KRAFT_VERSIONS

NO_DIRECTORY: Final = UUID(int=0)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log. The zero directory id stands for any directory (static voters)."""

    node_id: NodeId
    directory_id: UUID = NO_DIRECTORY

    def matches(self, other: "ReplicaKey") -> bool:
        """Return whether both may be the same replica: an unknown directory matches all."""
        known = NO_DIRECTORY not in (self.directory_id, other.directory_id)
        return self.node_id == other.node_id and (not known or self.directory_id == other.directory_id)


class Endpoint(NamedTuple):
    host: str
    port: int


@value_class
class Voter:
    key: ReplicaKey
    # By the name of the listener.
    endpoints: Mapping[str, Endpoint]
    # The lowest and the highest level of `kraft.version` that it supports.
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


class VoterSet:
    """The voters by node id, which is unique.

    `removed` has the voters that were removed and whose node ids were not added again. They do not join by themselves.
    """

    def __init__(self, voters: Iterable[Voter] = (), removed: Iterable[ReplicaKey] = ()) -> None:
        self._voters = {voter.key.node_id: voter for voter in voters}
        self.removed = frozenset(removed)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.key.matches(key)

    def get(self, node_id: NodeId) -> Voter | None:
        return self._voters.get(node_id)

    @property
    def keys(self) -> list[ReplicaKey]:
        return [voter.key for voter in self]

    @property
    def majority(self) -> int:
        """The number of voters in a majority."""
        return len(self._voters) // 2 + 1

    def others(self, me: ReplicaKey) -> list[Voter]:
        return [voter for voter in self if voter.key.node_id != me.node_id]

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return key in self and len(self) == 1

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Return a set with `voter`, in the place of the voter with the same node id."""
        node_id = voter.key.node_id
        others = (other for other in self if other.key.node_id != node_id)
        return VoterSet([*others, voter], (key for key in self.removed if key.node_id != node_id))

    def without(self, node_id: NodeId) -> "VoterSet":
        removed = (key for key in self.keys if key.node_id == node_id)
        return VoterSet((voter for voter in self if voter.key.node_id != node_id), self.removed.union(removed))


class VoterHistory:
    """The sets of voters by the offset of the record that made them; the oldest comes from settings or a snapshot.

    `is_dynamic`: the oldest set is not that of the configuration (kraft.version 1). `is_recorded`: a leader need not
    write the oldest set into the log, because the log, or a snapshot that replaces a part of it, has it.
    """

    def __init__(self, initial: VoterSet, *, is_dynamic: bool = False, is_recorded: bool = True) -> None:
        self._sets: list[tuple[Offset, VoterSet]] = [(-1, initial)]
        self._was_dynamic = is_dynamic
        self._is_recorded = is_recorded

    @property
    def is_dynamic(self) -> bool:
        """Whether the voters are in the log, not in the configuration.

        The first record in the log makes them so. If it is truncated, those of the configuration are back.
        """
        return self._was_dynamic or len(self._sets) > 1

    @property
    def current(self) -> VoterSet:
        return self._sets[-1][1]

    @property
    def previous(self) -> VoterSet:
        """The set before the current one; the current one if there is no other."""
        return self._sets[-2 if len(self._sets) > 1 else -1][1]

    @property
    def changed_at(self) -> Offset:
        """The offset of the record of the current set; -1 if it was there from the start."""
        return self._sets[-1][0]

    @property
    def must_be_recorded(self) -> bool:
        return self.is_dynamic and not self._is_recorded and len(self._sets) == 1

    def recorded_before(self, offset: Offset) -> VoterSet | None:
        """Return the newest set in the log before `offset`; None if it was that of the configuration there."""
        at, voters = next(entry for entry in reversed(self._sets) if entry[0] < offset)
        return voters if at >= 0 or self._was_dynamic else None

    def append(self, offset: Offset, voters: VoterSet) -> None:
        assert offset > self.changed_at, "sets of voters are appended in the order of the log"
        self._sets.append((offset, voters))

    def truncate(self, end_offset: Offset) -> None:
        """Remove the sets from `end_offset` on."""
        while len(self._sets) > 1 and self._sets[-1][0] >= end_offset:
            self._sets.pop()

    def reset(self, voters: VoterSet | None) -> None:
        """Begin again from a snapshot; without `voters` in it, with the oldest set."""
        self._was_dynamic = self._was_dynamic or voters is not None
        self._sets = [(-1, self._sets[0][1] if voters is None else voters)]
        self._is_recorded = True
