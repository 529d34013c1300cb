"""`sticky` and `cooperative-sticky`: assign as evenly as possible and, among even assignments, move few partitions.

If all members subscribe to the same topics, each gets the same number of partitions, plus or minus one: members keep
what they own up to that number, and the rest is assigned in turn. Otherwise a partition can only go to some of the
members: free partitions go to the subscriber with the fewest, and then partitions move along chains of members, the
shortest first, from a member to one that has at least two less. When there is no such chain, no other assignment is
more even.

The members report what they own. If two claim a partition, the one of the newer generation owns it; if both are of the
same generation, neither does. An eager `sticky` member owns nothing when it joins, and reports its previous partitions
in its user data. Racks are ignored, unlike in Java's assignors.
"""

import struct
from collections import defaultdict, deque
from collections.abc import Collection, Mapping

from rookery.base.errors import ProtocolError
from rookery.base.types import TopicName, TopicPartition, indexes_by_topic
from rookery.client.membership.assignors.base import (
    NO_GENERATION,
    Assignment,
    MemberId,
    MemberSubscription,
    PartitionRacks,
    RebalanceProtocol,
    partitions_of,
)
from rookery.protocol import wire
from rookery.protocol.consumer_protocol import read_partitions, write_partitions

_GENERATION = struct.Struct(">i")


class StickyAssignor:
    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._last: tuple[tuple[TopicPartition, ...], int] | None = None

    def user_data(self, topics: frozenset[TopicName]) -> bytes | None:
        return None if self._last is None else write_user_data(*self._last)

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        self._last = tuple(partitions), generation

    def assign(self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]) -> Assignment:
        claims = {member: read_user_data(subscription.user_data) for member, subscription in members.items()}
        owned, _ = resolve_claims(topics, claims)
        return balance(topics, members, owned)


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: frozenset[TopicName]) -> bytes | None:
        return _GENERATION.pack(self._generation)

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        self._generation = generation

    def assign(self, topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription]) -> Assignment:
        """Leave out partitions that another member must revoke first: the next rebalance assigns them."""
        claims = {member: (subscription.owned, _generation(subscription)) for member, subscription in members.items()}
        owned, disputed = resolve_claims(topics, claims)
        assignment = balance(topics, members, owned)
        claimed_by: dict[TopicPartition, set[MemberId]] = defaultdict(set)
        for member, subscription in members.items():
            for partition in subscription.owned:
                claimed_by[partition].add(member)

        def is_free(partition: TopicPartition, member: MemberId) -> bool:
            claimants = claimed_by.get(partition, set())
            return partition not in disputed and (not claimants or member in claimants)

        return {member: [tp for tp in given if is_free(tp, member)] for member, given in assignment.items()}


def _generation(subscription: MemberSubscription) -> int:
    """Return the generation; members of older subscription versions send it in their user data."""
    if (
        subscription.generation != NO_GENERATION
        or subscription.user_data is None
        or len(subscription.user_data) < _GENERATION.size
    ):
        return subscription.generation
    (generation,) = _GENERATION.unpack_from(subscription.user_data)
    return int(generation)


def write_user_data(partitions: Collection[TopicPartition], generation: int) -> bytes:
    out = bytearray()
    write_partitions(out, indexes_by_topic(partitions).items())
    return bytes(out + _GENERATION.pack(generation))


def read_user_data(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """Parse user data: version 1 added the generation to version 0. Malformed data counts as no partitions."""
    if not data:
        return (), NO_GENERATION
    try:
        partitions, position = read_partitions(data, 0)
    except (ProtocolError, *wire.MALFORMED):
        return (), NO_GENERATION
    if len(data) < position + _GENERATION.size:
        return tuple(partitions), NO_GENERATION
    (generation,) = _GENERATION.unpack_from(data, position)
    return tuple(partitions), generation


Claims = Mapping[MemberId, tuple[Collection[TopicPartition], int]]
OwnedPartitions = dict[MemberId, list[TopicPartition]]


def resolve_claims(topics: PartitionRacks, claims: Claims) -> tuple[OwnedPartitions, set[TopicPartition]]:
    """Return the owned partitions that exist, by member, and those that several claim in the same generation."""
    newest: dict[TopicPartition, tuple[int, MemberId]] = {}
    disputed: set[TopicPartition] = set()
    for member, (partitions, generation) in claims.items():
        for tp in partitions:
            if tp.topic not in topics or tp.partition >= len(topics[tp.topic]):
                continue
            other = newest.get(tp)
            if other is None or generation > other[0]:
                newest[tp] = generation, member
                disputed.discard(tp)
            elif generation == other[0] and member != other[1]:
                disputed.add(tp)
    owned: OwnedPartitions = {member: [] for member in claims}
    for tp, (_, member) in newest.items():
        if tp not in disputed:
            owned[member].append(tp)
    return owned, disputed


def balance(
    topics: PartitionRacks, members: Mapping[MemberId, MemberSubscription], owned: OwnedPartitions
) -> Assignment:
    existing = frozenset(topics)
    subscriptions = {member: subscription.topics & existing for member, subscription in members.items()}
    kept = {
        member: sorted((tp for tp in owned[member] if tp.topic in subscriptions[member]), key=_by_index)
        for member in members
    }
    if len(set(subscriptions.values())) <= 1:
        return _share_equally(topics, kept, subscribed=frozenset[TopicName]().union(*subscriptions.values()))
    return _Balancer(topics, subscriptions, kept).balanced()


def _by_index(tp: TopicPartition) -> tuple[int, TopicName]:
    """Sort by index first, so that the partitions that a member loses are spread over its topics."""
    return tp.partition, tp.topic


def _share_equally(topics: PartitionRacks, owned: OwnedPartitions, *, subscribed: frozenset[TopicName]) -> Assignment:
    everything = [tp for topic in sorted(subscribed) for tp in partitions_of(topic, topics)]
    if not owned:
        return {}
    least, longer_count = divmod(len(everything), len(owned))
    # A member that owns more than the minimum may keep one partition more than the others.
    longer = [member for member in owned if len(owned[member]) > least][:longer_count]
    assignment = {member: partitions[: least + (member in longer)] for member, partitions in owned.items()}
    given = {tp for partitions in assignment.values() for tp in partitions}
    free = deque(tp for tp in everything if tp not in given)
    short = deque(sorted(member for member in owned if len(assignment[member]) < least))
    full = deque(sorted(member for member in owned if len(assignment[member]) == least))
    while short:
        member = short.popleft()
        assignment[member].append(free.popleft())
        (short if len(assignment[member]) < least else full).append(member)
    # One each to members with the minimum: there are at least as many of them as partitions left.
    while free:
        assignment[full.popleft()].append(free.popleft())
    return assignment


class _Balancer:
    """Balances partitions among members with different subscriptions. No step makes the assignment less even."""

    def __init__(
        self, topics: PartitionRacks, subscriptions: Mapping[MemberId, frozenset[TopicName]], owned: OwnedPartitions
    ) -> None:
        self._topics = topics
        self._subscribers = {
            topic: sorted(member for member in subscriptions if topic in subscriptions[member]) for topic in topics
        }
        self._by_topic: dict[MemberId, dict[TopicName, list[TopicPartition]]] = {
            member: defaultdict(list) for member in subscriptions
        }
        self._size = dict.fromkeys(subscriptions, 0)
        self._owned = {tp: member for member, partitions in owned.items() for tp in partitions}
        for tp, member in self._owned.items():
            self._give(tp, member)

    def balanced(self) -> Assignment:
        for topic in sorted(self._topics, key=lambda topic: (len(self._subscribers[topic]), topic)):
            for tp in partitions_of(topic, self._topics):
                if tp not in self._owned and self._subscribers[topic]:
                    self._give(tp, min(self._subscribers[topic], key=lambda member: (self._size[member], member)))
        while (chain := self._chain()) is not None:
            for source, topic, target in chain:
                self._move(self._partition_to_move(source, topic, target), source, target)
        self._return_to_owners()
        return {member: [tp for tps in topics.values() for tp in tps] for member, topics in self._by_topic.items()}

    def _return_to_owners(self) -> None:
        """Move partitions back to their owners if that is as even: the owner has one less, or one to swap."""
        holder = {tp: member for member, topics in self._by_topic.items() for tps in topics.values() for tp in tps}
        for tp, owner in sorted(self._owned.items()):
            holding = holder[tp]
            if holding == owner:
                continue
            swapped = self._swappable(owner, holding) if self._size[holding] <= self._size[owner] else None
            if swapped is None and self._size[holding] != self._size[owner] + 1:
                continue
            self._move(tp, holding, owner)
            holder[tp] = owner
            if swapped is not None:
                self._move(swapped, owner, holding)
                holder[swapped] = holding

    def _swappable(self, member: MemberId, other: MemberId) -> TopicPartition | None:
        """Return a partition that `member` has, did not own before, and `other` subscribes to."""
        may_go = (
            tp
            for topic, partitions in self._by_topic[member].items()
            if other in self._subscribers[topic]
            for tp in partitions
            if self._owned.get(tp) != member
        )
        return next(may_go, None)

    def _move(self, tp: TopicPartition, source: MemberId, target: MemberId) -> None:
        self._by_topic[source][tp.topic].remove(tp)
        self._size[source] -= 1
        self._give(tp, target)

    def _give(self, tp: TopicPartition, member: MemberId) -> None:
        self._by_topic[member][tp.topic].append(tp)
        self._size[member] += 1

    def _partition_to_move(self, source: MemberId, topic: TopicName, target: MemberId) -> TopicPartition:
        """Choose the partition to move: one that returns to its owner, else one that was moved before, else any."""
        return min(
            self._by_topic[source][topic],
            key=lambda tp: (self._owned.get(tp) != target, self._owned.get(tp) == source, tp),
        )

    def _chain(self) -> list[tuple[MemberId, TopicName, MemberId]] | None:
        """Return moves (from, topic, to) that take one partition from a member to one that has at least two less.

        A chain that moves only partitions which have already left their owners is preferred.
        """
        largest_first = sorted(self._size, key=lambda member: (-self._size[member], member))
        for may_move_owned in (False, True):
            for start in largest_first:
                found = self._chain_from(start, may_move_owned=may_move_owned)
                if found is not None:
                    return found
        return None

    def _chain_from(
        self, start: MemberId, *, may_move_owned: bool
    ) -> list[tuple[MemberId, TopicName, MemberId]] | None:
        reached_from: dict[MemberId, tuple[MemberId, TopicName] | None] = {start: None}
        seen_topics: set[TopicName] = set()
        layer = [start]
        while layer:
            following = []
            for member in layer:
                for topic, partitions in self._by_topic[member].items():
                    may_move = (
                        partitions if may_move_owned else [tp for tp in partitions if self._owned.get(tp) != member]
                    )
                    if may_move and topic not in seen_topics:
                        seen_topics.add(topic)
                        for other in self._subscribers[topic]:
                            if other not in reached_from:
                                reached_from[other] = member, topic
                                following.append(other)
            least = min(following, key=lambda member: (self._size[member], member), default=start)
            if self._size[least] <= self._size[start] - 2:
                return _path_to(least, reached_from)
            layer = following
        return None


def _path_to(
    end: MemberId, reached_from: Mapping[MemberId, tuple[MemberId, TopicName] | None]
) -> list[tuple[MemberId, TopicName, MemberId]]:
    way = []
    while (step := reached_from[end]) is not None:
        way.append((*step, end))
        end = step[0]
    return way[::-1]
