"""The interfaces between a consumer and its group membership, and the values that they exchange.

A consumer implements `AssignmentHost` (subscription, assignment, positions). A `Membership` negotiates the assignment
with the group's coordinator and applies it to the host. `ClassicMembership` and `ConsumerMembership` join a group;
`ManualMembership` serves consumers that assign their own partitions and still commit offsets for a group. All methods
of a host except `call_listener` are plain functions that change its state and do no IO.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from rookery.base.errors import ApiError
from rookery.base.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicName, TopicPartition

NO_GENERATION = -1
NO_MEMBER_ID = ""

ListenerEvent: TypeAlias = Literal["assigned", "revoked", "lost"]


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and an optional text of the user."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """The identity of a consumer in its group. In groups of KIP-848, `generation_id` is the member's epoch."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


CommitCallback: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], ApiError | None], object]


class RebalanceListener:
    """Called by `poll`, `unsubscribe` and `close`. Override the methods you need; each may be a coroutine function.

    Offsets of revoked partitions may still be committed; lost partitions may belong to another member already.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called with the newly assigned partitions, without those that were kept; possibly with none."""
        return None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called before `partitions` are released: they stay assigned until this returns."""
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called after the group has removed this member, so that `partitions` may belong to others already."""
        return self.on_partitions_revoked(partitions)


class AssignmentHost(Protocol):
    def subscribed_topics(self) -> frozenset[TopicName]:
        """Return the subscribed topics; for a pattern, the existing topics that match it."""
        ...

    def assigned(self) -> frozenset[TopicPartition]: ...

    def replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Assign exactly `partitions`. Kept ones keep their positions; new ones begin at the committed offset, or
        where auto.offset.reset says."""
        ...

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of `partitions` from polls: they are about to be revoked. They stay assigned."""
        ...

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of the assigned partitions after the records that polls have returned."""
        ...

    def watch_group_topics(self, topics: frozenset[TopicName]) -> None:
        """Keep the metadata of `topics` fresh, too: this member leads the group, and others subscribe to them."""
        ...

    async def call_listener(self, event: ListenerEvent, partitions: Collection[TopicPartition]) -> None:
        """Call the user's listener. Its exceptions propagate, after the membership has changed the assignment."""
        ...


class Membership(Protocol):
    wake: asyncio.Event
    """Set when `poll` should be called again soon, also to restart max.poll.interval.ms; `poll` clears it."""

    @property
    def group_metadata(self) -> ConsumerGroupMetadata: ...

    async def poll(self) -> None:
        """Do what may happen only in a poll: revoke and assign partitions, start a join, commit when due.

        Returns soon. Raises ApiError if the group cannot be joined, and exceptions of the listener.
        """
        ...

    def note_poll(self) -> None:
        """Restart max.poll.interval.ms: the application polls."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Join again at the next poll, for example after a change of the subscription."""
        ...

    async def close(self, *, timeout_s: float) -> None:
        """Commit if enable.auto.commit is true, call the listener, leave the group. Nothing is assigned afterwards."""
        ...


class GroupMetrics(Protocol):
    """The methods of `metrics.consumer.ConsumerMetrics` that memberships call. Times are in seconds."""

    def join(self, seconds: float, /) -> None: ...

    def sync(self, seconds: float, /) -> None: ...

    def rebalance(self, seconds: float, /) -> None: ...

    def failed_rebalance(self) -> None: ...

    def heartbeat(self, seconds: float, /) -> None: ...

    def commit(self, seconds: float, /) -> None: ...

    def assigned(self, partitions: int, /) -> None: ...
