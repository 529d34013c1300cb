"""What an assignor is: the rule by which a group's leader shares the partitions among the members.

Assignors are pure. Their names are those of other clients, with whose members they share groups. A custom one is any
object that fits `Assignor`; it is given to the consumer, and named in partition.assignment.strategy.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from rookery.base.types import TopicName, TopicPartition

MemberId: TypeAlias = str
NO_GENERATION = -1

# By topic, for each partition in order, the racks that have a replica of it; sets are empty where racks are not known.
PartitionRacks: TypeAlias = Mapping[TopicName, Sequence[frozenset[str]]]
Assignment: TypeAlias = dict[MemberId, list[TopicPartition]]


class RebalanceProtocol(IntEnum):
    """EAGER: members give up everything before they join. COOPERATIVE: only what goes to others (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


class MemberSubscription(NamedTuple):
    """What a member says when it joins. `owned` was assigned to it in `generation`."""

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
        """What this member tells the leader's assignor, besides what every member tells."""
        ...

    def assign(
        self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]
    ) -> Mapping[MemberId, Collection[TopicPartition]]:
        """Called in the leader. Every member has an entry; topics that do not exist are not in `topics`."""
        ...

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Called in every member when its assignment came."""
        ...


class StatelessAssignor:
    """An assignor that remembers nothing; eager, as most are."""

    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[TopicName]) -> bytes | None:
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        return


def in_order(members: Mapping[MemberId, MemberSubscription]) -> list[MemberId]:
    """Static members first, by instance id, which survives a restart; then the others by member id."""
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member: MemberId, instance_id: str | None) -> tuple[bool, str]:
    return instance_id is None, member if instance_id is None else instance_id


def partitions_of(topic: TopicName, topics: PartitionRacks) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(len(topics[topic]))]
