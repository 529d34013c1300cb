"""DeleteGroups (42): delete groups without members, and their offsets.

A group with members is NON_EMPTY_GROUP, an unknown group GROUP_ID_NOT_FOUND.

Versions: v1 differs in throttling only. v2 flexible.
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
    """Remove groups that are named twice, so that each is deleted once."""
    request.groups_names = list(dict.fromkeys(request.groups_names))
