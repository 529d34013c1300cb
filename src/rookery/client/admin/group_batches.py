"""Describes many groups, and fetches their offsets, in few requests: one for each coordinator and hundred groups.

`GroupAdmin` asks for one group at a time, which a cluster with a thousand groups answers too slowly. Monitoring
(`rookery.lag`) uses this.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.client.admin.base import as_list
from rookery.client.admin.groups import (
    DEAD,
    UNKNOWN_TO_NEW_PROTOCOL,
    GroupAdmin,
    GroupDescription,
    classic_description,
    consumer_description,
)
from rookery.client.membership.interfaces import NO_GENERATION, OffsetAndMetadata
from rookery.client.membership.offset_requests import OFFSETS_VERSION_MAX
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)

Result = TypeVar("Result")
Offsets = dict[TopicPartition, OffsetAndMetadata]

_GROUPS_PER_REQUEST = 100
_SEVERAL_GROUPS_SINCE = 8


class GroupBatchAdmin(GroupAdmin):
    async def describe_group_batch(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Like `describe_groups`, in few requests."""
        wanted = list(dict.fromkeys(as_list(group_ids, "group_ids")))
        found = await self._groups.call_each(wanted, in_batches(self._describe_consumer_batch))
        classic = [
            key
            for key, row in found.items()
            if isinstance(row, ApiError) and ErrorCode(row.code) in UNKNOWN_TO_NEW_PROTOCOL
        ]
        found |= await self._groups.call_each(classic, in_batches(self._describe_classic_batch))
        return [_or_error(group_id, found[group_id]) for group_id in wanted]

    async def _describe_consumer_batch(
        self, node: NodeId, group_ids: Sequence[str]
    ) -> dict[str, GroupDescription | ApiError]:
        request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=False)
        response = await self._call(ApiKey.CONSUMER_GROUP_DESCRIBE, request, node=node)
        return {
            row.group_id: consumer_description(row, node)
            if row.error_code == ErrorCode.NONE
            else ApiError(ErrorCode(row.error_code), f"group {row.group_id}")
            for row in response.groups
        }

    async def _describe_classic_batch(
        self, node: NodeId, group_ids: Sequence[str]
    ) -> dict[str, GroupDescription | ApiError]:
        request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=False)
        response = await self._call(ApiKey.DESCRIBE_GROUPS, request, node=node)
        found: dict[str, GroupDescription | ApiError] = {}
        for row in response.groups:
            # Before version 6, brokers describe a group that does not exist as dead.
            code = ErrorCode.GROUP_ID_NOT_FOUND if row.group_state == DEAD else ErrorCode(row.error_code)
            found[row.group_id] = (
                classic_description(row, node) if code == ErrorCode.NONE else ApiError(code, f"group {row.group_id}")
            )
        return found

    async def committed_offset_batch(self, group_ids: Iterable[str]) -> dict[str, Offsets | ApiError]:
        """Return all committed offsets of each group, or the error of its coordinator, in few requests.

        Brokers before Kafka 3.0 are asked for each group alone.
        """
        wanted = list(dict.fromkeys(as_list(group_ids, "group_ids")))
        connection = await self._cluster.connection()
        if connection.version(ApiKey.OFFSET_FETCH) >= _SEVERAL_GROUPS_SINCE:
            return await self._groups.call_each(wanted, in_batches(self._fetch_offset_batch))
        found: dict[str, Offsets | ApiError] = {}
        for group_id in wanted:
            try:
                found[group_id] = await self.committed_offsets(group_id)
            except ApiError as error:
                found[group_id] = error
        return found

    async def _fetch_offset_batch(self, node: NodeId, group_ids: Sequence[str]) -> dict[str, Offsets | ApiError]:
        groups = [
            OffsetFetchRequestGroup(group_id=group_id, member_id=None, member_epoch=NO_GENERATION, topics=None)
            for group_id in group_ids
        ]
        await self._ensure_broker_known(node)
        response = await self._cluster.call(
            ApiKey.OFFSET_FETCH,
            OffsetFetchRequest(groups=groups, require_stable=False),
            node=node,
            version_max=OFFSETS_VERSION_MAX,
        )
        return {row.group_id: _offsets(row) for row in response.get("groups", ())}


def in_batches(
    send: Callable[[NodeId, Sequence[str]], Awaitable[Mapping[str, Result | ApiError]]],
) -> Callable[[NodeId, Sequence[str]], Awaitable[Mapping[str, Result | ApiError]]]:
    """Return a function that calls `send` with at most a hundred keys at a time, so that no response becomes huge."""

    async def send_all(node: NodeId, keys: Sequence[str]) -> Mapping[str, Result | ApiError]:
        found: dict[str, Result | ApiError] = {}
        for batch in _batches(keys):
            try:
                found |= await send(node, batch)
            except ApiError as error:
                found |= dict.fromkeys(batch, error)
        return found

    return send_all


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), _GROUPS_PER_REQUEST):
        yield keys[start : start + _GROUPS_PER_REQUEST]


def _or_error(group_id: str, found: GroupDescription | ApiError) -> GroupDescription:
    if isinstance(found, ApiError):
        return GroupDescription(group_id=group_id, error=found.code, message=found.message)
    return found


def _offsets(group: OffsetFetchResponseGroup) -> Offsets | ApiError:
    """Return the offsets of a group. The error of one partition is that of the group: its lag would be wrong."""
    codes = [group.error_code, *(row.error_code for topic in group.topics for row in topic.partitions)]
    for code in codes:
        if code != ErrorCode.NONE:
            return ApiError(ErrorCode(code), f"group {group.group_id}")
    return {
        TopicPartition(topic.get("name", ""), row.partition_index): OffsetAndMetadata(
            row.committed_offset, row.metadata or "", row.committed_leader_epoch
        )
        for topic in group.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }
