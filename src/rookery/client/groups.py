"""Administration of consumer groups: list, describe, offsets, lag, delete, with typed results.

Requests go to each group's coordinator. A group is of the classic kind (its members agree among themselves) or of the
new kind (KIP-848, the coordinator assigns); both are described alike. `cli` calls this.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, TopicPartition
from rookery.base.values import value_class
from rookery.client.admin import LATEST, Admin, Outcome, by_topic
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.consumer_protocol import read_assignment
from rookery.protocol.message import Message

CLASSIC = "classic"
CONSUMER = "consumer"
GROUP_TYPES = (CLASSIC, CONSUMER, "share", "streams")
GROUP_STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
_DEAD = "Dead"

# Offsets are kept by topic name here; from version 10 on these APIs speak of topic ids only.
OFFSETS_VERSION_MAX = 9
_NO_MEMBER_EPOCH = -1
_UNKNOWN_TO_NEW_PROTOCOL = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@value_class
class GroupListing:
    """`state` and `group_type` are empty where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@value_class(kw_only=True)
class GroupMember:
    """`epoch` and `target` are told by groups of the new kind only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@value_class(kw_only=True)
class GroupDescription:
    """`epoch` and `assignment_epoch` are told by groups of the new kind only."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: NodeId
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


@value_class
class CommittedOffset:
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""


@value_class
class PartitionLag:
    """`committed` is None where nothing was committed, `end` where the partition is gone or has no leader."""

    partition: TopicPartition
    committed: Offset | None
    end: Offset | None

    @property
    def lag(self) -> int | None:
        """What is still to be read; a commit beyond the end of the log counts as none."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


class GroupAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._coordinators = Coordinators(cluster)

    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, by name; every state and type if none is named."""
        request = Message(states_filter=list(states), types_filter=list(types))
        metadata = await self._cluster.retry(partial(self._cluster.refresh, topics=()))
        found: list[GroupListing] = []
        for node in sorted(metadata.brokers):
            found += await self._cluster.retry(partial(self._list_of, node, request))
        # Brokers older than a filter ignore it.
        wanted_states, wanted_types = {s.lower() for s in states}, {t.lower() for t in types}
        kept = (
            group
            for group in found
            if (not wanted_states or group.state.lower() in wanted_states)
            and (not wanted_types or group.group_type.lower() in wanted_types)
        )
        return sorted(kept, key=lambda group: group.group_id)

    async def _list_of(self, node: NodeId, request: Message) -> list[GroupListing]:
        response = await self._cluster.call(ApiKey.LIST_GROUPS, request, node=node)
        _check(response.error_code, f"groups of broker {node}")
        return [
            GroupListing(row.group_id, row.protocol_type, row.get("group_state", ""), row.get("group_type", ""))
            for row in response.groups
        ]

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Raises ApiError, with GROUP_ID_NOT_FOUND where there is no such group."""
        described = await self._describe_consumer(group_id)
        return described if described is not None else await self._describe_classic(group_id)

    async def _describe_consumer(self, group_id: str) -> GroupDescription | None:
        """None if the broker does not know the group as one of the new kind."""
        request = Message(group_ids=[group_id], include_authorized_operations=False)
        try:
            row = await self._describe(group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, request)
        except ApiError as error:
            if error.code in _UNKNOWN_TO_NEW_PROTOCOL:
                return None
            raise
        return GroupDescription(
            group_id=group_id,
            group_type=CONSUMER,
            state=row.group_state,
            protocol_type="consumer",
            assignor=row.assignor_name,
            coordinator=await self._coordinators.find(group_id),
            members=tuple(_consumer_member(member) for member in row.members),
            epoch=row.group_epoch,
            assignment_epoch=row.assignment_epoch,
        )

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        request = Message(groups=[group_id], include_authorized_operations=False)
        row = await self._describe(group_id, ApiKey.DESCRIBE_GROUPS, request)
        if row.group_state == _DEAD:
            # What brokers answered before version 6 for a group that does not exist.
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        return GroupDescription(
            group_id=group_id,
            group_type=CLASSIC,
            state=row.group_state,
            protocol_type=row.protocol_type,
            assignor=row.protocol_data,
            coordinator=await self._coordinators.find(group_id),
            members=tuple(_classic_member(member) for member in row.members),
        )

    async def _describe(self, group_id: str, api_key: ApiKey, request: Message) -> Message:
        response = await self._coordinators.call(group_id, api_key, lambda: request, codes=_codes_of("groups"))
        row: Message = response.groups[0]
        _check(row.error_code, f"group {group_id}")
        return row

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All that the group committed; empty for a group that does not exist."""
        asked = Message(group_id=group_id, member_id=None, member_epoch=_NO_MEMBER_EPOCH, topics=None)
        request = Message(group_id=group_id, topics=None, groups=[asked], require_stable=False)
        response = await self._coordinators.call(
            group_id,
            ApiKey.OFFSET_FETCH,
            lambda: request,
            codes=fetched_codes,
            version_max=OFFSETS_VERSION_MAX,
        )
        return read_committed_offsets(response, group_id)

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, ErrorCode]:
        """Set a group's offsets from outside, which only works while it has no members."""
        request = commit_request(group_id, offsets)
        response = await self._coordinators.call(
            group_id, ApiKey.OFFSET_COMMIT, lambda: request, codes=partition_codes, version_max=OFFSETS_VERSION_MAX
        )
        return _partition_errors(response)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget what was committed for partitions of topics that no member subscribes to."""
        topics = by_topic(partitions, lambda tp: Message(partition_index=tp.partition))
        request = Message(group_id=group_id, topics=topics)
        response = await self._coordinators.call(
            group_id, ApiKey.OFFSET_DELETE, lambda: request, codes=lambda answer: [answer.error_code]
        )
        _check(response.error_code, f"group {group_id}")
        return _partition_errors(response)

    async def delete_groups(self, group_ids: Iterable[str]) -> list[Outcome]:
        return [await self._delete_group(group_id) for group_id in dict.fromkeys(group_ids)]

    async def _delete_group(self, group_id: str) -> Outcome:
        request = Message(groups_names=[group_id])
        try:
            response = await self._coordinators.call(
                group_id, ApiKey.DELETE_GROUPS, lambda: request, codes=_codes_of("results")
            )
        except ApiError as error:
            return Outcome(group_id, error.code, error.message)
        return Outcome(group_id, ErrorCode(response.results[0].error_code), None)

    async def lags(self, group_id: str, assigned: Iterable[TopicPartition] = ()) -> list[PartitionLag]:
        """Committed and end offsets of all partitions that the group committed or was assigned."""
        committed = await self.committed_offsets(group_id)
        partitions = sorted({*committed, *assigned})
        ends = await self.end_offsets(partitions)
        return [PartitionLag(tp, committed[tp].offset if tp in committed else None, ends.get(tp)) for tp in partitions]

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Without the partitions that do not exist or have no leader."""
        topics = await self._admin.describe_topics({tp.topic for tp in partitions}) if partitions else []
        led = {TopicPartition(t.name, p.index) for t in topics for p in t.partitions if p.leader >= 0}
        found = await self._admin.list_offsets({tp: LATEST for tp in partitions if tp in led})
        return {tp: result.offset for tp, result in found.items() if result.error == ErrorCode.NONE}


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member_id: str = "",
    member_epoch: int = _NO_MEMBER_EPOCH,
) -> Message:
    """An OffsetCommit, of a member or (without one) of an administrator."""

    def row(tp: TopicPartition) -> Message:
        return Message(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        )

    return Message(
        group_id=group_id,
        generation_id_or_member_epoch=member_epoch,
        member_id=member_id,
        group_instance_id=None,
        retention_time_ms=-1,
        topics=by_topic(offsets, row),
    )


def read_committed_offsets(response: Message, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """The offsets in an OffsetFetch answer for one group. Raises ApiError."""
    group = _fetched_group(response)
    _check(group.get("error_code", 0), f"group {group_id}")
    found = {}
    for topic in group.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            _check(row.error_code, f"group {group_id}, partition {tp}")
            if row.committed_offset >= 0:
                leader_epoch = row.get("committed_leader_epoch", NO_LEADER_EPOCH)
                found[tp] = CommittedOffset(row.committed_offset, leader_epoch, row.metadata or "")
    return found


def fetched_codes(response: Message) -> list[int]:
    """The error codes in an OffsetFetch answer for one group."""
    group = _fetched_group(response)
    return [group.get("error_code", 0), *(row.error_code for topic in group.topics for row in topic.partitions)]


def partition_codes(response: Message) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


def _fetched_group(response: Message) -> Message:
    """Several groups at once came with version 8; before, the response itself was the group's."""
    return response.groups[0] if response.get("groups") else response


def _partition_errors(response: Message) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, row.partition_index): ErrorCode(row.error_code)
        for topic in response.topics
        for row in topic.partitions
    }


def _codes_of(field: str) -> Callable[[Message], list[int]]:
    return lambda response: [row.error_code for row in response.get(field)]


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), what)


def _consumer_member(row: Message) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        assignment=_assigned(row.assignment),
        target=_assigned(row.target_assignment),
        epoch=row.member_epoch,
    )


def _assigned(assignment: Message) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _classic_member(row: Message) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.get("group_instance_id"),
        client_id=row.client_id,
        client_host=row.client_host,
        assignment=tuple(sorted(read_assignment(row.member_assignment) or ())),
    )
