"""A group coordinator without a broker: decisions are carried out as the runtime does, members behave as clients do.

Every record goes through its bytes and is also replayed into a second state from scratch, so that each test checks that
a restart would bring the same group.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, TopicId
from rookery.coordinators.decision import Decision, TimerKey
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignment import NO_PARTITIONS, Assignment
from rookery.coordinators.group.consumer.environment import ConsumerSettings, Environment, Refusal
from rookery.coordinators.group.consumer.group import ConsumerGroup, NotesDraft
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest, HeartbeatResponse
from rookery.coordinators.group.consumer.service import Groups, apply_record, consumer_heartbeat, expire_member
from rookery.coordinators.group.records import GroupRecord, decode_record, encode_record
from rookery.metadata.image import PartitionImage, TopicImage

GROUP = "group"
LEADER: NodeId = 1


def topic_id(name: str) -> TopicId:
    return UUID(bytes=name.encode().ljust(16, b"\0")[:16])


def topic(name: str, partitions: int) -> TopicImage:
    images = {
        index: PartitionImage(index=index, replicas=(1,), isr=(1,), leader=LEADER, leader_epoch=0, partition_epoch=0)
        for index in range(partitions)
    }
    return TopicImage(name, topic_id(name), images)


def partitions(**topics: Iterable[int]) -> Assignment:
    return {topic_id(name): frozenset(indexes) for name, indexes in topics.items() if indexes}


class Coordinator:
    """The consumer groups of a shard, and the log that they are written to."""

    def __init__(self, settings: ConsumerSettings | None = None, **topics: int) -> None:
        self.settings = settings or ConsumerSettings()
        self.topics = {name: topic(name, count) for name, count in topics.items()}
        self.groups: Groups = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.now_ms = 1_000_000

    @property
    def environment(self) -> Environment:
        return Environment(self.topics, self.settings, self.now_ms)

    @property
    def group(self) -> ConsumerGroup:
        found = self.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        return found

    def set_topics(self, **topics: int | None) -> None:
        """Create, grow or (None) delete topics; the image's mapping is a new one, as in a broker."""
        changed = dict(self.topics)
        for name, count in topics.items():
            changed.pop(name, None)
            if count is not None:
                changed[name] = topic(name, count)
        self.topics = changed

    def carry_out(self, decision: Decision[Any]) -> Any:
        for record in decision.records:
            self.log.append(encode_record(record))
            apply_record(self.groups, record)
        for draft in decision.drafts:
            if isinstance(draft, NotesDraft):
                found = self.groups.get(draft.group_id)
                if isinstance(found, ConsumerGroup):
                    found.notes = draft.notes
        for timer in decision.timers:
            self.timers.pop(timer.key, None)
            if timer.delay_ms is not None:
                self.timers[timer.key] = timer.delay_ms
        self.check_replay()
        return decision.response

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse | Refusal:
        response = self.carry_out(consumer_heartbeat(self.groups, request, self.environment))
        assert isinstance(response, HeartbeatResponse | Refusal)
        return response

    def expire(self, timer: TimerKey) -> None:
        del self.timers[timer]
        self.carry_out(expire_member(self.groups, timer, self.environment))

    def check_replay(self) -> None:
        """A coordinator that reads the log has the same groups."""
        assert snapshot(self.replayed()) == snapshot(self.groups)

    def replayed(self) -> Groups:
        groups: Groups = {}
        for key, value in self.log:
            record = decode_record(key, value)
            assert isinstance(record, GroupRecord)
            apply_record(groups, record)
        return groups

    def restart(self) -> None:
        self.groups = self.replayed()


def snapshot(groups: Groups) -> dict[str, Any]:
    return {group_id: _snapshot(group) for group_id, group in groups.items()}


def _snapshot(group: Any) -> Any:
    if not isinstance(group, ConsumerGroup):
        return group
    return {name: value for name, value in vars(group).items() if name != "notes"}


@dataclass
class Client:
    """A consumer that follows the protocol: it takes what it is given and gives up what it is not given any more."""

    coordinator: Coordinator
    member_id: str
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    error: Refusal | None = None

    def join(self) -> HeartbeatResponse | Refusal:
        self.epoch, self.owned = 0, NO_PARTITIONS
        return self.send(
            rebalance_timeout_ms=300_000,
            topic_names=self.topics,
            topic_regex=self.regex,
            server_assignor=self.assignor,
            owned=NO_PARTITIONS,
        )

    def beat(self) -> HeartbeatResponse | Refusal:
        """A heartbeat that tells what the member owns, as clients do after they took a new assignment."""
        return self.send(owned=self.owned)

    def beat_silently(self) -> HeartbeatResponse | Refusal:
        return self.send()

    def subscribe(self, *topics: str) -> HeartbeatResponse | Refusal:
        self.topics = frozenset(topics)
        return self.send(topic_names=self.topics, owned=self.owned)

    def leave(self, epoch: int = -1) -> HeartbeatResponse | Refusal:
        self.epoch, self.owned = epoch, NO_PARTITIONS
        return self.send()

    def send(self, **fields: Any) -> HeartbeatResponse | Refusal:
        response = self.coordinator.heartbeat(
            HeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
                client_id="client",
                client_host="/127.0.0.1",
                **fields,
            )
        )
        if isinstance(response, Refusal):
            self.error = response
            return response
        self.error = None
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = response.assignment
        return response


def assert_no_overlap(clients: Iterable[Client]) -> None:
    seen: set[assignment.Partition] = set()
    for client in clients:
        owned = set(assignment.partitions_of(client.owned))
        assert not owned & seen, f"{client.member_id} shares {owned & seen}"
        seen |= owned


def refused(response: HeartbeatResponse | Refusal) -> ErrorCode:
    assert isinstance(response, Refusal), response
    return response.code


def accepted(response: HeartbeatResponse | Refusal) -> HeartbeatResponse:
    assert isinstance(response, HeartbeatResponse), response
    return response
