"""The state of a member of a consumer group of KIP-848. Pure: no network, no time.

Theory of operation. The coordinator computes the assignment; a member reports the partitions that it owns in
heartbeats, and their responses carry the partitions that it should own.

- It joins with epoch 0 and leaves with epoch -1, or with -2 if it has an instance id and will come back. The responses
  carry its epoch, which fences its commits.
- A response with an assignment sets `target`. The caller then stops reading `revoked`, commits their positions, begins
  to read the new partitions, and calls `acknowledge`; the next heartbeat reports that to the coordinator, which only
  then assigns the revoked partitions to others.
- After `fence` (the coordinator has removed the member) nothing is owned, and nothing that was read since the last
  commit may be committed; the next heartbeat joins again.
- A heartbeat carries only changes since the last one with a response. After one without a response it carries
  everything: the lost response may have held an assignment, and only then does the coordinator repeat it.

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

# The coordinator does not know this member, or not with this epoch: it has to join again.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class TopicIdPartition(NamedTuple):
    """A partition as this protocol identifies it."""

    topic_id: TopicId
    partition: PartitionIndex


class _Report(NamedTuple):
    """The part of the member's state that heartbeats report."""

    owned: frozenset[TopicIdPartition]
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
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.target: frozenset[TopicIdPartition] = frozenset()
        # How often the coordinator has removed this member. Assignments from before the last time are void.
        self.fence_count = 0
        self.heartbeat_interval_ms = 0
        # A heartbeat was sent, with or without a response: the coordinator may have this member.
        self.must_leave = False
        # The coordinator has sent an assignment, possibly an empty one.
        self.is_assigned = False
        self._group_id = group_id
        self._instance_id = instance_id
        self._rack_id = rack_id
        self._server_assignor = server_assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        # The last report with a response; None if the next heartbeat must carry everything.
        self._last_report: _Report | None = None
        self._sent_report = _Report(frozenset(), frozenset())
        self._has_response = True

    @property
    def identity(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._group_id, self.epoch, self.member_id, self._instance_id)

    @property
    def has_joined(self) -> bool:
        return self.epoch > JOINING_EPOCH

    @property
    def revoked(self) -> frozenset[TopicIdPartition]:
        return self.owned - self.target

    @property
    def is_reconciled(self) -> bool:
        """Whether the member has joined, owns its target, and the coordinator has confirmed that."""
        return self.has_joined and self.owned == self.target and not self.has_changes

    @property
    def has_changes(self) -> bool:
        """Whether there is something to report, so that the next heartbeat should be sent immediately."""
        return self._last_report != _Report(self.owned, self.topics)

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Build the next ConsumerGroupHeartbeat. If the last one had no response, it carries everything."""
        if not self._has_response:
            self.on_no_response()
        self._has_response = False
        self.must_leave = True
        last = self._last_report
        self._sent_report = _Report(self.owned, self.topics)
        return self._message(
            self.epoch,
            rebalance_timeout_ms=_UNCHANGED_MS if last is not None else self._rebalance_timeout_ms,
            topics=None if last is not None and last.topics == self.topics else self.topics,
            owned=None if last is not None and last.owned == self.owned else self.owned,
            first=last is None,
        )

    def on_response(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Process the response to the last heartbeat, which must carry no error."""
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        # Not the current state: `acknowledge` may have changed it since the request was built.
        self._last_report = self._sent_report
        self._has_response = True
        if response.assignment is not None:
            self.is_assigned = True
            self.target = frozenset(
                TopicIdPartition(topic.topic_id, index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )

    def on_no_response(self) -> None:
        """The last heartbeat had no response: the coordinator may or may not have processed it."""
        self._last_report = None

    def acknowledge(self, owned: Iterable[TopicIdPartition]) -> None:
        """Set the partitions that are read from now on; the next heartbeat reports them."""
        self.owned = frozenset(owned)

    def fence(self) -> None:
        """Reset the state: the coordinator has removed this member. It owns nothing, and the next heartbeat joins."""
        self.fence_count += 1
        self.epoch = JOINING_EPOCH
        self.owned = self.target = frozenset()
        self.must_leave = self.is_assigned = False
        self._last_report = None

    def leave(self) -> ConsumerGroupHeartbeatRequest:
        """Build the last heartbeat, which leaves the group. The state is that of a fenced member afterwards."""
        epoch = LEAVING_EPOCH if self._instance_id is None else STATIC_LEAVING_EPOCH
        self.fence()
        return self._message(epoch, rebalance_timeout_ms=_UNCHANGED_MS, topics=None, owned=None, first=False)

    def _message(
        self,
        epoch: int,
        *,
        rebalance_timeout_ms: int,
        topics: frozenset[TopicName] | None,
        owned: frozenset[TopicIdPartition] | None,
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


def _by_topic(owned: Iterable[TopicIdPartition]) -> Iterator[ConsumerGroupHeartbeatRequestTopicPartitions]:
    for topic_id, partitions in groupby(sorted(owned), key=lambda partition: partition.topic_id):
        yield ConsumerGroupHeartbeatRequestTopicPartitions(
            topic_id=topic_id, partitions=[partition.partition for partition in partitions]
        )
