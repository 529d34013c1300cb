"""ListGroups (16): the groups of both kinds that this broker coordinates.

While one of its partitions is being loaded, the response is COORDINATOR_LOAD_IN_PROGRESS.

Versions: v1 throttle time. v3 flexible. v4 states, and a filter for them. v5 types ("classic", "consumer"), and a
filter for them. Filters ignore case; unknown names match nothing.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.protocol.messages import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = context.services.groups.list()
    if isinstance(groups, ErrorCode):
        return ListGroupsResponse(error_code=groups, groups=[])
    states = {state.lower() for state in request.get("states_filter", ())}
    types = {name.lower() for name in request.get("types_filter", ())}
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in groups
            if (not states or group.state.lower() in states) and (not types or group.type in types)
        ],
    )
