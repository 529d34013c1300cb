"""A group coordinator without a broker: results are applied as by the runtime, and members behave as clients.

Every record is encoded and decoded, and replayed into a second shard from scratch, so that each test checks that a
restart would yield the same group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, TopicId, TopicPartition
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import HeartbeatRequest as ClassicHeartbeatRequest
from rookery.coordinators.group.classic.results import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignment import NO_PARTITIONS, Assignment
from rookery.coordinators.group.consumer.environment import ConsumerSettings, ErrorResponse
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest, HeartbeatResponse
from rookery.coordinators.group.records import encode_record
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.shard import GroupShard
from rookery.coordinators.result import CoordinatorResult, Parked, TimerKey, Token
from rookery.metadata.image import PartitionImage, TopicImage
from rookery.protocol.consumer_protocol import read_assignment

# The key and value of a record.
Entry: TypeAlias = tuple[bytes, bytes | None]

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
    """A shard with its groups, and the log to which they are written."""

    def __init__(self, settings: ConsumerSettings | None = None, **topics: int) -> None:
        self.settings = settings or ConsumerSettings()
        self.topics = {name: topic(name, size) for name, size in topics.items()}
        self._numbers = count(1)
        self.shard = self._new_shard()
        self.log: list[Entry] = []
        self._compacted_to = 0
        self.timers: dict[TimerKey, int] = {}
        self.responses: dict[Token, Any] = {}
        self.now_ms = 1_000_000

    def new_token(self) -> Token:
        return next(self._numbers)

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            GroupSettings(),
            new_id=lambda: str(next(self._numbers)),
            consumer_settings=self.settings,
            topics=lambda: self.topics,
        )

    @property
    def group(self) -> ConsumerGroup:
        found = self.shard.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        return found

    @property
    def classic_group(self) -> ClassicGroup:
        found = self.shard.groups[GROUP]
        assert isinstance(found, ClassicGroup)
        return found

    def set_topics(self, **topics: int | None) -> None:
        """Create, grow or (None) delete topics; the image's mapping is a new one, as in a broker."""
        changed = dict(self.topics)
        for name, partition_count in topics.items():
            changed.pop(name, None)
            if partition_count is not None:
                changed[name] = topic(name, partition_count)
        self.topics = changed

    def apply_result(self, result: CoordinatorResult[Any]) -> Any:
        for record in result.records:
            self.log.append(encode_record(record))
            self.shard.replay(record)
        for change in result.volatile_changes:
            self.shard.install(change)
        for timer in result.timers:
            self.timers.pop(timer.key, None)
            if timer.delay_ms is not None:
                self.timers[timer.key] = timer.delay_ms
        self.responses.update(result.completions)
        self.check_replay()
        return result.response

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse | ErrorResponse:
        response = self.apply_result(self.shard.consumer_heartbeat(request, self.now_ms))
        assert isinstance(response, HeartbeatResponse | ErrorResponse)
        return response

    def expire(self, timer: TimerKey) -> None:
        del self.timers[timer]
        self.apply_result(self.shard.on_timer(timer, self.now_ms))

    def check_replay(self) -> None:
        """Check that a coordinator that loads the log has the same groups (only the generation of classic ones).

        The log may be compacted to any point, with or without its tombstones: the records that are left may refer to
        others that come later, or not at all (KAFKA-20254).
        """
        expected = snapshot(self.shard)
        assert snapshot(self.replayed()) == expected
        end, keeps_tombstones = self._compacted_to * len(self.log) // 3, self._compacted_to % 2 == 0
        self._compacted_to = (self._compacted_to + 1) % 4
        compacted = compact(self.log[:end], keeps_tombstones=keeps_tombstones)
        assert snapshot(self.replayed([*compacted, *self.log[end:]])) == expected

    def replayed(self, log: Sequence[Entry] | None = None) -> GroupShard:
        shard = self._new_shard()
        for key, value in self.log if log is None else log:
            record = shard.decode(key, value)
            assert record is not None
            shard.replay(record)
        return shard

    def restart(self) -> None:
        self.shard = self.replayed()
        self.timers = {}
        self.apply_result(self.shard.on_loaded(self.now_ms))


def compact(log: Sequence[Entry], *, keeps_tombstones: bool) -> list[Entry]:
    """Return the last record of each key, in the order of the log."""
    last = {key: position for position, (key, _) in enumerate(log)}
    return [
        (key, value)
        for position, (key, value) in enumerate(log)
        if last[key] == position and (keeps_tombstones or value is not None)
    ]


def snapshot(shard: GroupShard) -> dict[str, Any]:
    """Return the logged state of all consumer groups, and the offsets of all groups."""
    groups: dict[str, Any] = {
        group_id: {name: value for name, value in vars(group).items() if name != "volatile"}
        for group_id, group in shard.groups.items()
        if isinstance(group, ConsumerGroup)
    }
    offsets = {
        group_id: {partition: logged.value for partition, logged in shard.offsets.of(group_id).items()}
        for group_id in shard.offsets.groups()
    }
    # A group that has offsets exists.
    assert offsets.keys() <= shard.groups.keys()
    return groups | {f"offsets of {group_id}": found for group_id, found in offsets.items()}


@dataclass
class Client:
    """A consumer that follows the protocol: it consumes its assignment and revokes all other partitions."""

    coordinator: Coordinator
    member_id: str
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    error: ErrorResponse | None = None

    def join(self) -> HeartbeatResponse | ErrorResponse:
        self.epoch, self.owned = 0, NO_PARTITIONS
        return self.send(
            rebalance_timeout_ms=300_000,
            topic_names=self.topics,
            topic_regex=self.regex,
            server_assignor=self.assignor,
            owned=NO_PARTITIONS,
        )

    def beat(self) -> HeartbeatResponse | ErrorResponse:
        """Send a heartbeat that reports the owned partitions, as clients do after a new assignment."""
        return self.send(owned=self.owned)

    def beat_silently(self) -> HeartbeatResponse | ErrorResponse:
        return self.send()

    def subscribe(self, *topics: str) -> HeartbeatResponse | ErrorResponse:
        self.topics = frozenset(topics)
        return self.send(topic_names=self.topics, owned=self.owned)

    def leave(self, epoch: int = -1) -> HeartbeatResponse | ErrorResponse:
        self.epoch, self.owned = epoch, NO_PARTITIONS
        return self.send()

    def send(self, **fields: Any) -> HeartbeatResponse | ErrorResponse:
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
        if isinstance(response, ErrorResponse):
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


def rejected(response: HeartbeatResponse | ErrorResponse) -> ErrorCode:
    assert isinstance(response, ErrorResponse), response
    return response.code


def accepted(response: HeartbeatResponse | ErrorResponse) -> HeartbeatResponse:
    assert isinstance(response, HeartbeatResponse), response
    return response


def subscription(version: int, topics: Iterable[str], owned: Iterable[tuple[str, int]] = ()) -> bytes:
    """Encode a ConsumerProtocolSubscription as clients do."""
    out = bytearray(version.to_bytes(2, "big"))
    _write_list(out, [_text(name) for name in sorted(topics)])
    out += b"\xff\xff\xff\xff"
    if version >= 1:
        by_topic: dict[str, list[int]] = {}
        for name, index in owned:
            by_topic.setdefault(name, []).append(index)
        _write_list(out, [_text(name) + _numbers(indexes) for name, indexes in by_topic.items()])
    if version >= 2:
        out += b"\xff\xff\xff\xff"
    if version >= 3:
        out += b"\xff\xff"
    return bytes(out)


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def _numbers(values: list[int]) -> bytes:
    return len(values).to_bytes(4, "big") + b"".join(value.to_bytes(4, "big") for value in values)


def _write_list(out: bytearray, items: list[bytes]) -> None:
    out += len(items).to_bytes(4, "big") + b"".join(items)


@dataclass
class ClassicClient:
    """A consumer of the classic protocol that rebalances cooperatively, or eagerly (it revokes all before it joins)."""

    coordinator: Coordinator
    topics: frozenset[str]
    member_id: str = ""
    instance_id: str | None = None
    cooperative: bool = True
    protocol: str = "cooperative-sticky"
    session_timeout_ms: int = 10_000
    generation: int = -1
    owned: list[TopicPartition] = field(default_factory=list)
    token: Token = 0
    # Whether it has sent SyncGroup in the generation that it joined last.
    is_synced: bool = True

    def join(self) -> JoinResult | Parked:
        """Join with the assigned id; the response of a parked request is in the coordinator's `responses` later."""
        if not self.cooperative:
            self.owned = []
        result = self._join()
        if isinstance(result, JoinResult) and result.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            result = self._join()
        if isinstance(result, JoinResult):
            self.joined(result)
        return result

    def _join(self) -> JoinResult | Parked:
        self.token = self.coordinator.new_token()
        version, owned = (3, self.owned) if self.cooperative else (0, [])
        request = JoinRequest(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id="classic",
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=((self.protocol, subscription(version, self.topics, owned)),),
        )
        shard = self.coordinator.shard
        result = self.coordinator.apply_result(shard.join(request, self.token, self.coordinator.now_ms))
        assert isinstance(result, JoinResult | Parked)
        return result

    def joined(self, result: JoinResult) -> None:
        if result.error_code is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation
            self.is_synced = False

    def sync(self, assignments: tuple[tuple[str, bytes], ...] = ()) -> ErrorCode | Parked:
        self.token = self.coordinator.new_token()
        request = SyncRequest(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments,
        )
        shard = self.coordinator.shard
        result = self.coordinator.apply_result(shard.sync(request, self.token, self.coordinator.now_ms))
        if isinstance(result, Parked):
            return result
        assert isinstance(result, SyncResult)
        if result.error_code is ErrorCode.NONE:
            owned = read_assignment(result.assignment)
            assert owned is not None
            self.owned = owned
            self.is_synced = True
        return result.error_code

    def beat(self) -> ErrorCode:
        request = ClassicHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, instance_id=self.instance_id, generation=self.generation
        )
        code = self.coordinator.apply_result(self.coordinator.shard.heartbeat(request, self.coordinator.now_ms))
        assert isinstance(code, ErrorCode)
        return code

    def leave(self) -> ErrorCode:
        leaving = [LeavingMember(self.member_id, self.instance_id)]
        result = self.coordinator.apply_result(self.coordinator.shard.leave(GROUP, leaving, self.coordinator.now_ms))
        assert isinstance(result, LeaveResult)
        return result.members[0].error_code

    def follow(self) -> None:
        """Send heartbeats, and rejoin until they no longer ask for it."""
        for _ in range(20):
            code = self.beat()
            if code is ErrorCode.NONE:
                return
            assert code is ErrorCode.REBALANCE_IN_PROGRESS, code
            if not self.step():
                return
        raise AssertionError("the member is asked to rejoin for ever")

    def step(self) -> bool:
        """Join and sync once; return False if a request is parked."""
        result = self.join()
        if not isinstance(result, JoinResult):
            return False
        assert result.error_code is ErrorCode.NONE, result
        return not isinstance(self.sync(), Parked)
