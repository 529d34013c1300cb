"""The interface of assignors: the algorithms by which a classic group's leader assigns partitions to the members.

Assignors are pure. They have the names of Kafka's, because members of other clients may be in the same group. A custom
assignor is any object that implements `Assignor`; it is passed to the consumer, and named in
partition.assignment.strategy.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from rookery.base.types import TopicName, TopicPartition

MemberId: TypeAlias = str
NO_GENERATION = -1

# The racks with a replica of each partition, by topic, in the order of indexes; empty sets where racks are unknown.
PartitionRacks: TypeAlias = Mapping[TopicName, Sequence[frozenset[str]]]
Assignment: TypeAlias = dict[MemberId, list[TopicPartition]]


class RebalanceProtocol(IntEnum):
    """EAGER: members revoke everything before they join. COOPERATIVE: only what moves to others (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


class MemberSubscription(NamedTuple):
    """The subscription that a member sends when it joins. `owned` was assigned to it in `generation`."""

    topics: frozenset[TopicName]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]: ...

    def user_data(self, topics: frozenset[TopicName]) -> bytes | None:
        """Return additional data for the leader's assignor, sent with this member's subscription."""
        ...

    def assign(
        self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]
    ) -> Mapping[MemberId, Collection[TopicPartition]]:
        """Return the partitions of each member. Called in the leader.

        The result must have an entry for every member; topics that do not exist are not in `topics`.
        """
        ...

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Called in every member with its new assignment."""
        ...


class StatelessAssignor:
    """A base for assignors without state, of the eager protocol."""

    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[TopicName]) -> bytes | None:
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        return


def sorted_members(members: Mapping[MemberId, MemberSubscription]) -> list[MemberId]:
    """Return static members first, by instance id, which survives a restart; then the others by member id."""
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member: MemberId, instance_id: str | None) -> tuple[bool, str]:
    return instance_id is None, member if instance_id is None else instance_id


def partitions_of(topic: TopicName, topics: PartitionRacks) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(len(topics[topic]))]
