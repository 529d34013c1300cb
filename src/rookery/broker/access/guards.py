"""Guards: a guard runs before an API's handler and decides what the handler gets to see of the request.

It returns None to pass the request on as it is, a response to refuse it as a whole, or `Restricted`: the request
without what is denied, and the function that completes the handler's response, for example with the errors of the items
that were taken out. A guard never changes the request: if the active controller has moved, the same request is
forwarded to the new one, which decides again.

Requests that are handled in pieces are guarded piece by piece: a guard must depend on the piece alone.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ApiError, ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.permissions import Client
from rookery.protocol.codec import request_shape, response_shape
from rookery.protocol.error_responses import Items, build_item, error_response, find_items
from rookery.protocol.message import Message, Struct


class Restricted(NamedTuple):
    """The request that the handler gets, and the function that completes its response."""

    request: Struct
    finish: Callable[[Any], Struct]


Verdict: TypeAlias = Struct | Restricted | None
Guard: TypeAlias = Callable[[Client, ClusterContext, Any], Verdict]
ContextT = TypeVar("ContextT", bound=ClusterContext)


class Unguarded(NamedTuple):
    """For an API that needs no permission; the reason is for readers."""

    reason: str


# The error of a denied operation, by the type of the resource.
CODES: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def guarded(
    guard: Guard, handle: Callable[[ContextT, Any], Struct | Awaitable[Struct]]
) -> Callable[[ContextT, Any], Struct | Awaitable[Struct]]:
    """Return a handler that runs the guard first."""

    def handle_guarded(context: ContextT, request: Struct) -> Struct | Awaitable[Struct]:
        access = context.services.access
        assert access is not None, "handlers are guarded only if there is an authorizer"
        try:
            verdict = guard(access.client(context), context, request)
        except ApiError as error:
            return refuse(context, request, error.code, error.message)
        if verdict is None:
            return handle(context, request)
        if not isinstance(verdict, Restricted):
            return verdict
        response = handle(context, verdict.request)
        if isinstance(response, Struct):
            return verdict.finish(response)
        return _finish_later(response, verdict.finish)

    return handle_guarded


async def _finish_later(response: Awaitable[Struct], finish: Callable[[Any], Struct]) -> Struct:
    return finish(await response)


def refuse(context: ClusterContext, request: Struct, code: ErrorCode, message: str | None = None) -> Struct:
    """Return the response with an error for the whole request, or for each of its items."""
    response = error_response(context.api_key, context.api_version, request, code, message)
    if response is None:
        raise ApiError(code, message)
    return response


def on_cluster(*operations: AclOperation) -> Guard:
    """A guard that asks for one of the operations on the cluster; the last is the one that the log names."""

    def guard(client: Client, context: ClusterContext, request: Struct) -> Verdict:
        last = operations[-1]
        if any(client.allows_on_cluster(each, is_logged=each is last) for each in operations):
            return None
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return guard


def with_items(guard: Guard) -> Guard:
    """A guard whose refusal has the error both for the whole request and for each item."""

    def guard_items(client: Client, context: ClusterContext, request: Struct) -> Verdict:
        refused = guard(client, context, request)
        if not isinstance(refused, Message) or refused.get("error_code") is None:
            return refused
        arrays = item_arrays(context.api_key, context.api_version)
        code = ErrorCode(refused.error_code)
        errors = [build_item(arrays.items, item, code) for item in vars(request)[arrays.in_request] or ()]
        return with_fields(refused, **{arrays.in_response: errors})

    return guard_items


class Asked(NamedTuple):
    """A permission for the resource that a field of the request names."""

    operation: AclOperation
    resource_type: AclResourceType
    field: str


def first_denied(client: Client, request: Any, asked: Sequence[Asked]) -> ErrorCode | None:
    """Return the error of the first permission that is missing."""
    for operation, resource_type, field in asked:
        if not client.allows(operation, resource_type, getattr(request, field)):
            return CODES[resource_type]
    return None


def on_fields(*asked: Asked) -> Guard:
    """A guard that asks for permissions for the whole request, in order."""

    def guard(client: Client, context: ClusterContext, request: Struct) -> Verdict:
        code = first_denied(client, request, asked)
        return None if code is None else refuse(context, request, code)

    return guard


class ItemArrays(NamedTuple):
    """An array of a request, and the array of the response with its results: the fields' names, and their shapes."""

    in_request: str
    in_response: str
    items: Items


@cache
def item_arrays(api_key: int, version: int) -> ItemArrays:
    items = find_items(request_shape(api_key, version), response_shape(api_key, version))
    assert items is not None, f"API key {api_key} has no results per item"
    return ItemArrays(items.in_request.name, items.in_response.name, items)


def without_items(
    context: ClusterContext,
    request: Struct,
    denied: Collection[int],
    code: Callable[[Any], ErrorCode],
    message: Callable[[ErrorCode], str | None] = lambda _: None,
) -> Verdict:
    """Take the items at the positions `denied` out of a request, and give them errors in the response.

    The results are in the order of the request, as far as the handler's are.
    """
    if not denied:
        return None
    arrays = item_arrays(context.api_key, context.api_version)
    items = vars(request)[arrays.in_request]
    left = [item for position, item in enumerate(items) if position not in denied]

    def finish(response: Struct) -> Struct:
        results = list(vars(response)[arrays.in_response])
        merged, taken = [], 0
        for position, item in enumerate(items):
            if position in denied:
                error = code(item)
                merged.append(build_item(arrays.items, item, error, message(error)))
            elif taken < len(results):
                merged.append(results[taken])
                taken += 1
        return with_fields(response, **{arrays.in_response: merged + results[taken:]})

    return Restricted(with_fields(request, **{arrays.in_request: left}), finish)


def with_fields(message: Struct, **fields: Any) -> Message:
    """Return a copy of a message with other values of some fields. Handlers may return messages that are cached."""
    return Message(**{**vars(message), **fields})


def repeated(keys: Sequence[Hashable]) -> set[Hashable]:
    """Return the keys that occur more than once: their error is another one, and comes first."""
    if len(set(keys)) == len(keys):
        return set()
    return {key for key, count in Counter(keys).items() if count > 1}
