"""DescribeGroups (15): classic groups with their members.

An unknown group has the state "Dead": without an error up to v5, with GROUP_ID_NOT_FOUND from v6 on. So has a group of
the new protocol, for which there is ConsumerGroupDescribe.

Versions: v1 throttle time. v3 authorized operations, -2147483648 if they were not requested. v4 group instance ids.
v5 flexible. v6 GROUP_ID_NOT_FOUND and an error message.
"""

from collections.abc import Awaitable

from rookery.base.codes import AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond_to_all
from rookery.broker.context import RequestContext
from rookery.broker.visibility import authorized_operations
from rookery.coordinators.group.classic.results import DescribedGroup
from rookery.protocol.messages import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
)

_NOT_FOUND_SINCE = 6


def handle(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    wants_operations = request.get("include_authorized_operations", False)

    def convert(results: list[DescribedGroup | ErrorCode]) -> DescribeGroupsResponse:
        groups = [
            DescribedGroup(group_id, result) if isinstance(result, ErrorCode) else result
            for group_id, result in zip(request.groups, results, strict=True)
        ]
        return DescribeGroupsResponse(groups=[_group(context, group, wants_operations) for group in groups])

    return respond_to_all([context.services.groups.describe(group_id) for group_id in request.groups], convert)


def _group(
    context: RequestContext, group: DescribedGroup, wants_operations: bool
) -> DescribeGroupsResponseDescribedGroup:
    code = group.error_code
    if code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < _NOT_FOUND_SINCE:
        code = ErrorCode.NONE
    return DescribeGroupsResponseDescribedGroup(
        error_code=code,
        error_message=group.message,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=authorized_operations(
            context, AclResourceType.GROUP, group.group_id, requested=wants_operations and code is ErrorCode.NONE
        ),
    )
