"""DeleteGroups (42): groups without members, and their offsets.

A group that is in use is NON_EMPTY_GROUP, one that nobody knows GROUP_ID_NOT_FOUND.

Versions: v1 only asks for throttling before the response. v2 flexible.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.broker.answers import respond_to_all
from rookery.broker.context import RequestContext
from rookery.protocol.messages import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    remove_repeated(request)
    names = request.groups_names

    def convert(codes: list[ErrorCode]) -> DeleteGroupsResponse:
        pairs = zip(names, codes, strict=True)
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in pairs],
        )

    return respond_to_all([context.services.groups.delete(group_id) for group_id in names], convert)


def remove_repeated(request: DeleteGroupsRequest) -> None:
    """A group that is named twice is deleted once."""
    request.groups_names = list(dict.fromkeys(request.groups_names))
