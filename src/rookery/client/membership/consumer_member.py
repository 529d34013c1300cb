"""A member of a consumer group of the new kind (KIP-848), without network or time.

Theory of operation. The coordinator decides who reads what; a member tells it by heartbeats what it owns, and learns
from the answers what it should own.

- It joins with epoch 0 and leaves with epoch -1, or with -2 if it has an instance id and will be back. The answers
  carry its epoch, which fences everything it commits.
- An answer with an assignment sets `target`. Whoever runs the member then stops reading `revoked`, commits what was
  read of it, begins to read what is new, and calls `acknowledge`; the next heartbeat tells the coordinator, which only
  now gives the revoked partitions to others.
- After `fence` (the coordinator gave us up) nothing is owned any more, and nothing read since may be committed; the
  next heartbeat joins again.
- A heartbeat carries only what changed since the last that was answered. After one that was not answered it carries
  everything: the answer that was lost may have had an assignment, and only then does the coordinator repeat it.

`consumer_shell` runs this.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import PartitionIndex, TopicId, TopicName
from rookery.client.membership.interfaces import ConsumerGroupMetadata
from rookery.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
_UNCHANGED_MS = -1

# The coordinator does not know us, or no longer in this epoch: everything begins again with a new join.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Owned(NamedTuple):
    """A partition as the coordinator names it."""

    topic_id: TopicId
    partition: PartitionIndex


class _Told(NamedTuple):
    """What the coordinator knows of us."""

    owned: frozenset[Owned]
    topics: frozenset[TopicName]


class ConsumerMember:
    def __init__(
        self,
        group_id: str,
        *,
        member_id: str,
        rebalance_timeout_ms: int,
        instance_id: str | None = None,
        rack_id: str | None = None,
        server_assignor: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.epoch = JOINING_EPOCH
        self.topics: frozenset[TopicName] = frozenset()
        self.owned: frozenset[Owned] = frozenset()
        self.target: frozenset[Owned] = frozenset()
        # How often the coordinator has given us up. What was learnt before the last time is not true any more.
        self.fence_count = 0
        self.heartbeat_interval_ms = 0
        # A heartbeat was sent, answered or not: there is somebody to say goodbye to.
        self.may_be_known = False
        # The coordinator has said what we should read, be it nothing.
        self.is_assigned = False
        self._group_id = group_id
        self._instance_id = instance_id
        self._rack_id = rack_id
        self._server_assignor = server_assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        # None where the coordinator has to be told everything.
        self._told: _Told | None = None
        self._telling = _Told(frozenset(), frozenset())
        self._is_answered = True

    @property
    def identity(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._group_id, self.epoch, self.member_id, self._instance_id)

    @property
    def has_joined(self) -> bool:
        return self.epoch > JOINING_EPOCH

    @property
    def revoked(self) -> frozenset[Owned]:
        return self.owned - self.target

    @property
    def is_settled(self) -> bool:
        """It has joined, owns what it should, and the coordinator knows."""
        return self.has_joined and self.owned == self.target and not self.has_news

    @property
    def has_news(self) -> bool:
        """The next heartbeat should not wait for its time."""
        return self._told != _Told(self.owned, self.topics)

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The next ConsumerGroupHeartbeat. If the last one was not answered, nobody knows what became of it."""
        if not self._is_answered:
            self.failed()
        self._is_answered = False
        self.may_be_known = True
        told = self._told
        self._telling = _Told(self.owned, self.topics)
        return self._message(
            self.epoch,
            rebalance_timeout_ms=_UNCHANGED_MS if told is not None else self._rebalance_timeout_ms,
            topics=None if told is not None and told.topics == self.topics else self.topics,
            owned=None if told is not None and told.owned == self.owned else self.owned,
            first=told is None,
        )

    def answered(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """The answer, which carries no error, to the last heartbeat."""
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        self._told = self._telling
        self._is_answered = True
        if response.assignment is not None:
            self.is_assigned = True
            self.target = frozenset(
                Owned(topic.topic_id, index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )

    def failed(self) -> None:
        """The last heartbeat was not answered, so nobody knows what became of it."""
        self._told = None

    def acknowledge(self, owned: Iterable[Owned]) -> None:
        """These are the partitions that are read from now on."""
        self.owned = frozenset(owned)

    def fence(self) -> None:
        self.fence_count += 1
        self.epoch = JOINING_EPOCH
        self.owned = self.target = frozenset()
        self.may_be_known = self.is_assigned = False
        self._told = None

    def leave(self) -> ConsumerGroupHeartbeatRequest:
        """Goodbye; it is as if fenced afterwards."""
        epoch = LEAVING_EPOCH if self._instance_id is None else STATIC_LEAVING_EPOCH
        self.fence()
        return self._message(epoch, rebalance_timeout_ms=_UNCHANGED_MS, topics=None, owned=None, first=False)

    def _message(
        self,
        epoch: int,
        *,
        rebalance_timeout_ms: int,
        topics: frozenset[TopicName] | None,
        owned: frozenset[Owned] | None,
        first: bool,
    ) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            rack_id=self._rack_id if first else None,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=None if topics is None else sorted(topics),
            subscribed_topic_regex=None,
            server_assignor=self._server_assignor if first else None,
            topic_partitions=None if owned is None else list(_by_topic(owned)),
        )


def _by_topic(owned: Iterable[Owned]) -> Iterator[ConsumerGroupHeartbeatRequestTopicPartitions]:
    for topic_id, partitions in groupby(sorted(owned), key=lambda partition: partition.topic_id):
        yield ConsumerGroupHeartbeatRequestTopicPartitions(
            topic_id=topic_id, partitions=[partition.partition for partition in partitions]
        )
