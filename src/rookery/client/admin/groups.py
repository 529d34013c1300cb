"""Lists, describes and deletes consumer groups, removes their members, and manages their offsets and lag.

Requests go to each group's coordinator. A group is a classic group (its leader assigns the partitions) or a consumer
group of KIP-848 (the coordinator does); both have the same description.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Self

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, Offset, TopicPartition, indexes_by_topic
from rookery.base.values import value_class
from rookery.client.admin.base import ResultRow, as_list, partition_rows
from rookery.client.admin.outcomes import Outcome, check
from rookery.client.admin.records import RecordAdmin
from rookery.client.membership.interfaces import ConsumerGroupMetadata, OffsetAndMetadata
from rookery.client.membership.offset_requests import (
    OFFSETS_VERSION_MAX,
    commit_codes,
    commit_request,
    commit_results,
    fetch_codes,
    fetch_errors,
    fetch_request,
    fetched_offsets,
)
from rookery.protocol.api import ApiKey
from rookery.protocol.consumer_protocol import read_assignment
from rookery.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribedGroup,
    DeleteGroupsRequest,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponseDescribedGroup,
    LeaveGroupRequest,
    ListGroupsRequest,
    Member,
    MemberIdentity,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

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
DEAD = "Dead"
UNKNOWN_TO_NEW_PROTOCOL = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_NO_COORDINATOR: NodeId = -1
_SEVERAL_MEMBERS_SINCE = 3
REMOVAL_REASON = "removed by an administrator"


@value_class
class GroupListing:
    """`state` and `group_type` are empty if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@value_class(kw_only=True)
class GroupMember:
    """`epoch` and `target` are None in classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@value_class(kw_only=True)
class GroupDescription:
    """`epoch` and `assignment_epoch` are None for classic groups."""

    group_id: str
    group_type: str = ""
    state: str = ""
    protocol_type: str = ""
    assignor: str = ""
    coordinator: NodeId = _NO_COORDINATOR
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    assignment_epoch: int | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this description, or raise its error as ApiError."""
        check(self.error, self.message or f"group {self.group_id}")
        return self


@value_class
class RemovedMember(Outcome):
    """`name` is the member's id, or its instance id if that was requested."""

    instance_id: str | None = None


@value_class
class PartitionLag:
    """`committed` is None if nothing is committed, `end` if the partition does not exist or has no leader."""

    partition: TopicPartition
    committed: Offset | None
    end: Offset | None

    @property
    def lag(self) -> int | None:
        """The number of offsets still to be read; 0 if the committed offset is after the end of the log."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


class GroupAdmin(RecordAdmin):
    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by id; of all states and types if none are named."""
        request = ListGroupsRequest(states_filter=as_list(states, "states"), types_filter=as_list(types, "types"))
        found = await self._call_brokers(lambda node: self._list_groups_of(node, request))
        # Brokers that are too old for a filter ignore it.
        wanted_states, wanted_types = {s.lower() for s in states}, {t.lower() for t in types}
        kept = (
            group
            for group in found
            if (not wanted_states or group.state.lower() in wanted_states)
            and (not wanted_types or group.group_type.lower() in wanted_types)
        )
        return sorted(kept, key=lambda group: group.group_id)

    async def _list_groups_of(self, node: NodeId, request: ListGroupsRequest) -> list[GroupListing]:
        response = await self._call(ApiKey.LIST_GROUPS, request, node=node)
        check(response.error_code, f"groups of broker {node}")
        return [
            GroupListing(row.group_id, row.protocol_type, row.get("group_state", ""), row.get("group_type", ""))
            for row in response.groups
        ]

    async def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Describe groups in the given order; a group that does not exist has the error GROUP_ID_NOT_FOUND."""
        return [await self._describe_group(each) for each in dict.fromkeys(as_list(group_ids, "group_ids"))]

    async def _describe_group(self, group_id: str) -> GroupDescription:
        try:
            described = await self._describe_consumer(group_id)
            return described if described is not None else await self._describe_classic(group_id)
        except ApiError as error:
            return GroupDescription(group_id=group_id, error=error.code, message=error.message)

    async def _describe_consumer(self, group_id: str) -> GroupDescription | None:
        """Return None if the group is not one of KIP-848, or the broker does not support those."""
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        try:
            response = await self._groups.call(
                group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, lambda: request, codes=lambda reply: _codes(reply.groups)
            )
            row = response.groups[0]
            check(row.error_code, f"group {group_id}")
        except ApiError as error:
            if error.code in UNKNOWN_TO_NEW_PROTOCOL:
                return None
            raise
        return consumer_description(row, await self._groups.find(group_id))

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        request = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False)
        response = await self._groups.call(
            group_id, ApiKey.DESCRIBE_GROUPS, lambda: request, codes=lambda reply: _codes(reply.groups)
        )
        row = response.groups[0]
        check(row.error_code, f"group {group_id}")
        if row.group_state == DEAD:
            # Before version 6, brokers describe a group that does not exist as dead.
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        return classic_description(row, await self._groups.find(group_id))

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets, all or those of `partitions`; partitions without one are left out.

        With `require_stable`, wait for open transactions that are about to commit offsets.
        """
        wanted = None if partitions is None else as_list(partitions, "partitions")
        request = fetch_request(ConsumerGroupMetadata(group_id), wanted, as_member=False, require_stable=require_stable)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            response = await self._groups.call(
                group_id, ApiKey.OFFSET_FETCH, lambda: request, codes=fetch_codes, version_max=OFFSETS_VERSION_MAX
            )
            for tp, code in fetch_errors(response).items():
                check(code, f"group {group_id}" if tp is None else f"group {group_id}, partition {tp}")
            return fetched_offsets(response)

        return await self._cluster.retry(attempt, retriable=lambda code: code is ErrorCode.UNSTABLE_OFFSET_COMMIT)

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, ErrorCode]:
        """Set the offsets of a group, which must have no members."""
        request = commit_request(ConsumerGroupMetadata(group_id), offsets)
        response = await self._groups.call(
            group_id, ApiKey.OFFSET_COMMIT, lambda: request, codes=commit_codes, version_max=OFFSETS_VERSION_MAX
        )
        return commit_results(response)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete the committed offsets of `partitions`. No member may subscribe to their topics."""
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in indexes_by_topic(as_list(partitions, "partitions")).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        response = await self._groups.call(
            group_id, ApiKey.OFFSET_DELETE, lambda: request, codes=lambda reply: [reply.error_code]
        )
        check(response.error_code, f"group {group_id}")
        return {tp: ErrorCode(row.error_code) for tp, row in partition_rows(response.topics)}

    async def delete_groups(self, group_ids: Iterable[str]) -> list[Outcome]:
        """Delete groups without members, with their offsets."""
        return [await self._delete_group(each) for each in dict.fromkeys(as_list(group_ids, "group_ids"))]

    async def _delete_group(self, group_id: str) -> Outcome:
        request = DeleteGroupsRequest(groups_names=[group_id])
        try:
            response = await self._groups.call(
                group_id, ApiKey.DELETE_GROUPS, lambda: request, codes=lambda reply: _codes(reply.results)
            )
        except ApiError as error:
            return Outcome.failed(group_id, error)
        return Outcome.of(group_id, response.results[0].error_code)

    async def remove_members(
        self,
        group_id: str,
        *,
        member_ids: Collection[str] | None = None,
        instance_ids: Collection[str] = (),
        reason: str = REMOVAL_REASON,
    ) -> list[RemovedMember]:
        """Remove members from a group: dynamic ones by member id, static ones by instance id; all if neither is given.

        A removed member that is still running joins again.
        """
        dynamic, static = as_list(member_ids or (), "member_ids"), as_list(instance_ids, "instance_ids")
        members = [MemberIdentity(member_id=member, group_instance_id=None, reason=reason) for member in dynamic]
        members += [MemberIdentity(member_id="", group_instance_id=instance, reason=reason) for instance in static]
        if member_ids is None and not static:
            (group,) = await self.describe_groups([group_id])
            members = [
                MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id, reason=reason)
                for member in group.check().members
            ]
        if not members:
            return []
        return await self._remove(group_id, members)

    async def _remove(self, group_id: str, members: list[MemberIdentity]) -> list[RemovedMember]:
        await self._require(ApiKey.LEAVE_GROUP, _SEVERAL_MEMBERS_SINCE, "cannot remove other members")
        request = LeaveGroupRequest(group_id=group_id, member_id="", members=members)
        response = await self._groups.call(
            group_id, ApiKey.LEAVE_GROUP, lambda: request, codes=lambda reply: [reply.error_code]
        )
        check(response.error_code, f"group {group_id}")
        return [
            RemovedMember(
                row.member_id or row.group_instance_id or "",
                ErrorCode(row.error_code),
                instance_id=row.group_instance_id,
            )
            for row in response.get("members", ())
        ]

    async def lags(self, group_id: str, assigned: Iterable[TopicPartition] = ()) -> list[PartitionLag]:
        """Return committed and end offsets of the partitions with a committed offset, and of those in `assigned`."""
        additional = as_list(assigned, "assigned")
        committed = await self.committed_offsets(group_id)
        partitions = sorted({*committed, *additional})
        ends = await self.end_offsets(partitions)
        return [PartitionLag(tp, committed[tp].offset if tp in committed else None, ends.get(tp)) for tp in partitions]


def consumer_description(row: ConsumerGroupDescribeResponseDescribedGroup, coordinator: NodeId) -> GroupDescription:
    return GroupDescription(
        group_id=row.group_id,
        group_type=CONSUMER,
        state=row.group_state,
        protocol_type="consumer",
        assignor=row.assignor_name,
        coordinator=coordinator,
        members=tuple(_consumer_member(member) for member in row.members),
        epoch=row.group_epoch,
        assignment_epoch=row.assignment_epoch,
    )


def classic_description(row: DescribeGroupsResponseDescribedGroup, coordinator: NodeId) -> GroupDescription:
    return GroupDescription(
        group_id=row.group_id,
        group_type=CLASSIC,
        state=row.group_state,
        protocol_type=row.protocol_type,
        assignor=row.protocol_data,
        coordinator=coordinator,
        members=tuple(_classic_member(member) for member in row.members),
    )


def _codes(rows: Iterable[ResultRow]) -> list[int]:
    return [row.error_code for row in rows]


def _consumer_member(row: Member) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        assignment=_assigned(row.assignment),
        target=_assigned(row.target_assignment),
        epoch=row.member_epoch,
    )


def _assigned(assignment: ConsumerGroupDescribeResponseAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _classic_member(row: DescribedGroupMember) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.get("group_instance_id"),
        client_id=row.client_id,
        client_host=row.client_host,
        assignment=tuple(sorted(read_assignment(row.member_assignment) or ())),
    )
