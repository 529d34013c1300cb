"""A member of a consumer group of the new kind (KIP-848), without network or time.

Theory of operation. The coordinator decides who reads what; a member tells it by heartbeats what it owns, and learns
from the answers what it should own.

- It joins with epoch 0 and leaves with epoch -1. The answers carry its epoch, which fences everything it commits.
- An answer with an assignment sets `target`. Whoever runs the member then stops reading `revoked`, commits what was
  read of it, begins to read what is new, and calls `acknowledge`; the next heartbeat tells the coordinator, which only
  now gives the revoked partitions to others.
- After `fence` (the coordinator gave us up) nothing is owned any more, and nothing read since may be committed; the
  next heartbeat joins again.
- A heartbeat carries only what changed since the last that was answered. After a failure it carries everything.

`group_consumer` runs this.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import PartitionIndex, TopicId, TopicName
from rookery.protocol.message import Message

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
DEFAULT_REBALANCE_TIMEOUT_MS = 60_000
_UNCHANGED_MS = -1

# The coordinator does not know us, or no longer in this epoch: everything begins again with a new join.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Owned(NamedTuple):
    """A partition as the coordinator names it."""

    topic_id: TopicId
    partition: PartitionIndex


class Member:
    def __init__(
        self,
        group_id: str,
        topics: Iterable[TopicName],
        *,
        member_id: str,
        rebalance_timeout_ms: int = DEFAULT_REBALANCE_TIMEOUT_MS,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = JOINING_EPOCH
        self.owned: frozenset[Owned] = frozenset()
        self.target: frozenset[Owned] = frozenset()
        # How often the coordinator has given us up. What was learnt before the last time is not true any more.
        self.fence_count = 0
        self.heartbeat_interval_ms = 0
        self._topics = sorted(topics)
        self._rebalance_timeout_ms = rebalance_timeout_ms
        # What the coordinator knows that we own; None where it has to be told everything.
        self._told: frozenset[Owned] | None = None
        self._telling: frozenset[Owned] = frozenset()

    @property
    def has_joined(self) -> bool:
        return self.epoch > JOINING_EPOCH

    @property
    def revoked(self) -> frozenset[Owned]:
        return self.owned - self.target

    @property
    def is_settled(self) -> bool:
        """It has joined, owns what it should, and the coordinator knows."""
        return self.has_joined and self.owned == self.target and self._told == self.owned

    @property
    def has_news(self) -> bool:
        """The next heartbeat should not wait for its time."""
        return self._told != self.owned

    def heartbeat(self) -> Message:
        """The next ConsumerGroupHeartbeat. It must be answered or failed before the one after it."""
        everything = self._told is None
        self._telling = self.owned
        return Message(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if everything else _UNCHANGED_MS,
            subscribed_topic_names=self._topics if everything else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=list(_by_topic(self.owned)) if self.has_news else None,
        )

    def answered(self, response: Message) -> None:
        """The answer, which carries no error, to the last heartbeat."""
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        self._told = self._telling
        if response.assignment is not None:
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
        self._told = None

    def leave(self) -> Message:
        self.epoch = LEAVING_EPOCH
        self.owned = self.target = frozenset()
        return Message(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVING_EPOCH,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=_UNCHANGED_MS,
            subscribed_topic_names=None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None,
        )


def _by_topic(owned: Iterable[Owned]) -> Iterator[Message]:
    for topic_id, partitions in groupby(sorted(owned), key=lambda partition: partition.topic_id):
        yield Message(topic_id=topic_id, partitions=[partition.partition for partition in partitions])
