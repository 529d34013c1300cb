"""What a consumer and its group membership know of each other, and the values that pass between them.

A consumer implements `AssignmentHost` (what is subscribed, assigned and read). A `Membership` decides, with the group's
coordinator, what is assigned, and tells the host. `ClassicMembership` and `ConsumerMembership` join a group;
`ManualMembership` serves consumers that chose their partitions themselves and still commit for a group. All methods of
a host but `call_listener` are plain functions: they change what is known, and do no IO.
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
    """What is committed: the offset of the next record to read, and a text of the user's."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group. `generation_id` is the member's epoch in groups of the new protocol."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


CommitCallback: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], ApiError | None], object]


class RebalanceListener:
    """Told inside `poll`, `unsubscribe` and `close`. Override what you need; each may be a coroutine function.

    A partition that is revoked may still be committed; one that is lost belongs to somebody else already.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These are new; partitions that were kept are not among them. Called with none, too."""
        return None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These are given away when this returns."""
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These were given to others without asking us."""
        return self.on_partitions_revoked(partitions)


class AssignmentHost(Protocol):
    def subscribed_topics(self) -> frozenset[TopicName]:
        """Patterns already resolved from metadata."""
        ...

    def assigned(self) -> frozenset[TopicPartition]: ...

    def replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Kept partitions keep their positions; new ones begin at what was committed, or where the reset says."""
        ...

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        """They are about to be revoked: polls return nothing of them any more. They stay assigned."""
        ...

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of the assigned partitions, the positions behind what polls returned."""
        ...

    def watch_group_topics(self, topics: frozenset[TopicName]) -> None:
        """We lead the group: its members subscribe to these topics, so keep their metadata fresh, too."""
        ...

    async def call_listener(self, event: ListenerEvent, partitions: Collection[TopicPartition]) -> None:
        """What the listener raises passes through, after the membership has done its part."""
        ...


class Membership(Protocol):
    wake: asyncio.Event
    """Set when `poll` should be called again soon, if only to show that the application polls; `poll` clears it."""

    @property
    def group_metadata(self) -> ConsumerGroupMetadata: ...

    async def poll(self) -> None:
        """Take the next steps that only a poll may take: give up, join, take over, commit when due. Returns soon.

        Raises ApiError where the group cannot be joined, and what listeners raise.
        """
        ...

    def note_poll(self) -> None:
        """The application polls: max.poll.interval.ms begins anew."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """The subscription changed, or the user wants a rebalance."""
        ...

    async def close(self, *, timeout_s: float) -> None:
        """Commit if that is automatic, tell the listener, leave the group. Nothing is assigned afterwards."""
        ...


class GroupMetrics(Protocol):
    """What is measured of a membership: a part of `metrics.consumer.ConsumerMetrics`. Times are in seconds."""

    def join(self, seconds: float, /) -> None: ...

    def sync(self, seconds: float, /) -> None: ...

    def rebalance(self, seconds: float, /) -> None: ...

    def failed_rebalance(self) -> None: ...

    def heartbeat(self, seconds: float, /) -> None: ...

    def commit(self, seconds: float, /) -> None: ...

    def assigned(self, partitions: int, /) -> None: ...
