"""From a frame to its reply: `Dispatcher.handle` is called by every connection for every request.

Stage 1 (`handle` itself) runs synchronously and in the order of a connection's requests: header, version, decoding, and
the handler's work on the log. A handler that can respond immediately returns the response, and so does `handle`. One
that must wait returns an awaitable (stage 2); the connection sends the replies in the order of the requests. The frame
is reused when `handle` returns, so no view of it may be kept.

`broker.api_table` has the handlers, of two kinds: most take a decoded request and return a response; those of Produce
and Fetch read the frame and build the whole reply themselves. If these wait, they return a plain future, which the
connection cancels when it is lost; a coroutine would run until its deadline. (A Produce that waits before its append is
a coroutine: its records are still to be written, also if the connection is lost.)

Long requests run in slices, and the connection handles no later request meanwhile (`Held`). A request with many items
is handled in pieces (`broker.request_pieces`). A request of many bytes is decoded in a worker thread, one such request
of the broker at a time, because the decoded form is several times as large.

If there is an authorizer, guards run before the handlers (`broker.access`), also before those of requests in pieces and
in envelopes. Requests that are forwarded are guarded where they are handled, by the active controller.

Each listener serves the APIs of its type. On a broker's listener, the rows that are `is_forwarded` need the active
controller: if it is in this process, its handler is called as any other, else `broker.forwarding` sends the frame to
it. A handler on the active controller raises NotControllerError if it stops being active: a broker then forwards the
request, a controller responds with that error. Any other ApiError of such a handler becomes an error response.

If there are quotas, requests are charged to them (`broker.throttling`); if not, one look at a flag is the only cost.
For metrics, errors of responses are counted here; `broker.request_metering` measures times and sizes around `handle`.

A request without a possible response raises ProtocolError, and the connection is closed with one log line: an unknown
API, a version that is not served, bytes that cannot be decoded. Only ApiVersions has a response for unknown versions
(KIP-511).
"""

from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final, cast

from rookery.base.bounds import REQUEST_BYTES_ON_LOOP, REQUEST_ITEMS_MAX, UNSPLIT_REQUEST_BYTES, WHOLE_REQUEST_ITEMS_MAX
from rookery.base.errors import ApiError, ErrorCode, NotControllerError, UnsupportedVersionError
from rookery.base.files import FileSlice
from rookery.broker.access.guards import Guard, guarded
from rookery.broker.api_row import Api, FrameHandler, Handler, ListenerType, Quota
from rookery.broker.api_table import APIS
from rookery.broker.auditing import audited
from rookery.broker.context import (
    ClusterContext,
    ClusterServices,
    Context,
    Forwarding,
    RequestContext,
    Services,
)
from rookery.broker.handlers import k00_produce, k18_api_versions
from rookery.broker.large_requests import in_worker
from rookery.broker.request_pieces import Split, exceeds, join, pieces
from rookery.broker.throttling import Usage
from rookery.net.connection import ConnectionInfo, HandlerResult, Held
from rookery.net.send import Reply
from rookery.protocol.api import SERVED, SERVED_BY_CONTROLLERS, ApiKey, VersionRange, is_flexible
from rookery.protocol.codec import decode_request, decode_request_in_worker, encode_request, encode_response
from rookery.protocol.dialect import INT32
from rookery.protocol.error_responses import error_response
from rookery.protocol.framing import (
    SIZE_BYTES,
    RequestHeader,
    encode_request_frame,
    parse_request_header,
    response_prefix,
)
from rookery.protocol.message import FrozenMessage, Message, Struct
from rookery.protocol.response_errors import ErrorFinder, error_finder
from rookery.quotas.clients import ClientQuotas

# Requests whose quota has no effect: those between nodes, and those whose responses have no throttle time.
_UNLIMITED: Final = (Quota.NONE, Quota.EXEMPT)


class _Route:
    """The columns of the table that the dispatcher needs, for one version of an API, so that one look-up finds them."""

    __slots__ = (
        "find_errors",
        "guard",
        "handle",
        "handle_frame",
        "has_throttle_time",
        "is_forwarded",
        "is_limited",
        "items_max",
        "needs_controller",
        "split",
    )

    def __init__(
        self,
        api: Api,
        version: int,
        listener_type: ListenerType,
        *,
        is_guarded: bool,
        is_audited: bool,
        is_measured: bool = False,
    ) -> None:
        on_broker = listener_type is ListenerType.BROKER
        handle_frame = api.handle_frame_guarded if is_guarded else api.handle_frame
        self.handle_frame: FrameHandler | None = handle_frame if on_broker else None
        handle = api.handle if on_broker else cast("Handler | None", api.handle_on_controller)
        self.guard: Guard | None = api.guard_of(listener_type) if is_guarded else None
        self.handle: Handler = self.guarded(handle or _reject_message)
        if is_audited and api.describe_changes is not None:
            # Around the guard: a refused change is in the audit log, too.
            self.handle = audited(api.describe_changes, self.handle)
        self.find_errors: ErrorFinder | None = error_finder(api.key, version) if is_measured else None
        self.split: Split | None = api.split_of(version)
        self.items_max: int = WHOLE_REQUEST_ITEMS_MAX if self.split is None else REQUEST_ITEMS_MAX
        self.has_throttle_time: bool = api.has_throttle_time
        self.is_forwarded: bool = api.is_forwarded
        self.is_limited: bool = api.quota not in _UNLIMITED
        self.needs_controller: bool = api.is_forwarded or not on_broker

    def guarded(self, handle: Handler) -> Handler:
        """Return a handler that asks for permission first, if this is needed."""
        return handle if self.guard is None else guarded(self.guard, handle)


def _reject_message(context: RequestContext, _: object) -> Struct:
    raise AssertionError(f"API key {context.api_key} has no handler of messages")


@cache
def routes(
    listener_type: ListenerType, *, is_guarded: bool, is_audited: bool = False, is_measured: bool = False
) -> Mapping[tuple[int, int], _Route]:
    """Return the routes of a type of listener. Without an authorizer, requests do not even look for a guard."""
    return {
        (int(api.key), version): _Route(
            api, version, listener_type, is_guarded=is_guarded, is_audited=is_audited, is_measured=is_measured
        )
        for api in APIS.values()
        if listener_type in api.listeners
        for version in api.versions
    }


# The forwarded APIs whose responses have the throttle time as their last field. In those of all others it is the first.
THROTTLE_TIME_LAST: Final = frozenset(
    (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)
)
_FORWARDED: Final = frozenset(api.key for api in APIS.values() if api.is_forwarded)


class Dispatcher:
    """Handles the requests of all connections of a node's listeners of one type."""

    def __init__(self, services: ClusterServices, listener_type: ListenerType = ListenerType.BROKER) -> None:
        """Serve a type of listener. A broker's listener needs `Services`, a controller's `ClusterServices`."""
        # Not typed: `Services` for the handlers of a broker's listener, which no other listener calls.
        self._services: Any = services
        is_guarded = services.access is not None
        self._routes: Mapping[tuple[int, int], _Route] = routes(
            listener_type,
            is_guarded=is_guarded,
            is_audited=services.changes is not None,
            is_measured=services.requests.is_measured,
        )
        self._served: Mapping[ApiKey, VersionRange] = SERVED
        self._forwarding: Forwarding | None = None
        self._quotas: ClientQuotas = services.throttling.quotas
        self._is_broker = listener_type is ListenerType.BROKER
        if listener_type is ListenerType.BROKER:
            assert isinstance(services, Services)
            self._forwarding = services.forwarding
        else:
            self._routes = self._with_envelopes(self._routes, is_guarded=is_guarded)
            self._served = SERVED_BY_CONTROLLERS

    def _with_envelopes(
        self, routes: Mapping[tuple[int, int], _Route], *, is_guarded: bool
    ) -> Mapping[tuple[int, int], _Route]:
        """Return the routes, with handlers of envelopes that pass their contents to this dispatcher."""
        own = dict(routes)
        for api in APIS.values():
            if api.handle_envelope is not None:
                for version in api.versions:
                    route = _Route(api, version, ListenerType.CONTROLLER, is_guarded=is_guarded, is_audited=False)
                    route.handle = route.guarded(partial(api.handle_envelope, self._handle_forwarded))
                    own[api.key, version] = route
        return own

    def handle(self, frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
        """Handle one request: stage 1 of it, or all. Raises ProtocolError if the connection has to be closed."""
        header, position = parse_request_header(frame)
        route = self._routes.get(header[:2])
        if route is None:
            return self._handle_unserved(header, frame, position, connection)
        if self._quotas.is_active and self._is_limited(route, connection):
            return self._handle_charged(route, header, frame, position, connection)
        context: RequestContext = Context(self._services, header, connection)
        if route.handle_frame is not None:
            return route.handle_frame(context, frame, position)
        return self._handle_message(route, context, frame, position)

    def _is_limited(self, route: _Route, connection: ConnectionInfo) -> bool:
        # Clients reach a controller through brokers. What nodes send to its listener themselves has no quota.
        return route.is_limited and (self._is_broker or connection.is_forwarded)

    def _handle_charged(
        self, route: _Route, header: RequestHeader, frame: memoryview, position: int, connection: ConnectionInfo
    ) -> HandlerResult:
        """Handle a request that is charged to its client's quotas."""
        usage = self._services.throttling.measure(connection, header.client_id, len(frame))
        context: RequestContext = Context(self._services, header, connection, usage)
        if route.handle_frame is not None:
            result = route.handle_frame(context, frame, position)
        else:
            result = self._handle_message(route, context, frame, position)
        if result is None or isinstance(result, list):
            usage.finish()
            return result
        usage.pause()
        if type(result) is Held:
            return Held(usage.follow(result))
        # A plain future is not followed: the connection would not know that it may cancel it.
        return usage.follow(result) if isinstance(result, Coroutine) else result

    def _handle_message(
        self, route: _Route, context: RequestContext, frame: memoryview, position: int
    ) -> HandlerResult:
        if route.is_forwarded and (forwarding := self._forwarding) is not None and forwarding.is_needed:
            return self._forward(route, forwarding, context, frame)
        if len(frame) > UNSPLIT_REQUEST_BYTES:
            return self._handle_long(route, context, frame, position)
        request = decode_request(context.api_key, context.api_version, frame, position)
        response = route.handle(context, request)
        if isinstance(response, Struct):
            return _encode(route, context, response)
        return self._encode_later(route, context, request, response)

    def _forward(
        self, route: _Route, forwarding: Forwarding, context: RequestContext, frame: memoryview
    ) -> Awaitable[Reply]:
        if len(frame) > REQUEST_BYTES_ON_LOOP:
            reply = self._forward_large(forwarding, context, self._services.large_requests.admit(frame))
        else:
            reply = forwarding.forward(context, bytes(frame))
        return reply if context.usage is None or not route.has_throttle_time else _charge_forwarded(context, reply)

    async def _forward_large(self, forwarding: Forwarding, context: RequestContext, frame: bytes) -> Reply:
        try:
            return await forwarding.forward(context, frame)
        finally:
            self._services.large_requests.release(frame)

    def _handle_forwarded(self, frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
        """Handle a client's request that a broker has forwarded in an envelope."""
        header, _ = parse_request_header(frame)
        if header.api_key not in _FORWARDED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"requests of API key {header.api_key} are not forwarded")
        return self.handle(frame, connection)

    def _handle_long(self, route: _Route, context: RequestContext, frame: memoryview, position: int) -> HandlerResult:
        """Handle a request that may have more items, or bytes, than one turn of the event loop may process."""
        if len(frame) > REQUEST_BYTES_ON_LOOP:
            return Held(self._handle_large(route, context, self._services.large_requests.admit(frame), position))
        request = decode_request(context.api_key, context.api_version, frame, position, route.items_max)
        if route.split is not None and exceeds(route.split, request):
            return Held(self._handle_split(route, context, request, route.split))
        response = route.handle(context, request)
        if isinstance(response, Struct):
            return _encode(route, context, response)
        return self._encode_later(route, context, request, response)

    def _encode_later(
        self, route: _Route, context: RequestContext, request: Struct, response: Awaitable[Struct]
    ) -> Awaitable[Reply]:
        if route.needs_controller:
            return self._encode_decision(route, context, request, response)
        return _encode_later(route, context, response)

    async def _encode_decision(
        self, route: _Route, context: RequestContext, request: Struct, response: Awaitable[Struct]
    ) -> Reply:
        """Encode the response of a handler that calls the controller or the quorum."""
        try:
            return _encode(route, context, await response)
        except ApiError as error:
            return await self._handle_error(route, context, request, error)

    async def _handle_error(self, route: _Route, context: RequestContext, request: Struct, error: ApiError) -> Reply:
        """Forward a request to the new active controller if this node has just stopped being it; else respond."""
        if isinstance(error, NotControllerError):
            if self._forwarding is not None:
                reply = self._forwarding.forward(context, _frame_of(context, request))
                limited = context.usage is not None and route.has_throttle_time
                return await (_charge_forwarded(context, reply) if limited else reply)
            if context.connection.is_forwarded:
                # The broker that forwarded the request sends it to the next controller; its client must not see this.
                raise error
        response = error_response(context.api_key, context.api_version, request, error.code, error.message)
        if response is None:
            raise error
        return _encode(route, context, response)

    async def _handle_large(self, route: _Route, context: RequestContext, frame: bytes, position: int) -> Reply:
        api_key, version, items_max = context.api_key, context.api_version, route.items_max
        large_requests = self._services.large_requests
        async with large_requests.decoded_slots:
            request = await large_requests.decode(
                frame, lambda data: decode_request_in_worker(api_key, version, data, position, items_max)
            )
            if route.split is not None and exceeds(route.split, request):
                return await self._handle_split(route, context, request, route.split)
            answer = route.handle(context, request)
        if route.needs_controller:
            try:
                return await _encode_in_worker(route, context, await _result(answer))
            except ApiError as error:
                return await self._handle_error(route, context, request, error)
        # The slot is released before the wait, and so is the request: a JoinGroup that waits for other members would
        # block all other large requests.
        del request
        return await _encode_in_worker(route, context, await _result(answer))

    async def _handle_split(self, route: _Route, context: RequestContext, request: Struct, split: Split) -> Reply:
        whole = None
        if (prepare := split.prepare) is not None:
            await in_worker(lambda: prepare(request))
        for piece in pieces(request, split.request, split.size):
            if whole is not None:
                await self._services.slices.pause()
            answer = route.handle(context, piece.message)
            whole = join(whole, await _result(answer), split.response, piece.continued)
        assert whole is not None, "a request has at least one piece"
        return await _encode_in_worker(route, context, whole)

    def _handle_unserved(
        self, header: RequestHeader, frame: memoryview, position: int, connection: ConnectionInfo
    ) -> Reply:
        if header.api_key == ApiKey.API_VERSIONS:
            context = Context(self._services, header._replace(api_version=0), connection)
            response = k18_api_versions.refuse(ErrorCode.UNSUPPORTED_VERSION, self._served)
            return _encode(self._routes[ApiKey.API_VERSIONS, 0], context, response)
        is_old_produce = header.api_key == ApiKey.PRODUCE and header.api_version in k00_produce.OLD_VERSIONS
        if is_old_produce and ApiKey.PRODUCE in self._served:
            context = Context(self._services, header, connection)
            return context.reply(k00_produce.refuse_old_version(header.api_version, frame, position))
        raise UnsupportedVersionError(f"API key {header.api_key} version {header.api_version} is not served")


def _frame_of(context: ClusterContext, request: Struct) -> bytes:
    """Return the frame, without its size, that a request was decoded from."""
    body = encode_request(context.api_key, context.api_version, request)
    header = RequestHeader(context.api_key, context.api_version, context.correlation_id, context.client_id)
    return encode_request_frame(header, body)[SIZE_BYTES:]


def _encode(route: _Route, context: ClusterContext, response: Struct) -> Reply:
    if route.find_errors is not None:
        _count_errors(context, route.find_errors(response))
    if route.has_throttle_time:
        if context.usage is None:
            # Set in a cached response, too: the value is the same every time, so its cached bytes stay valid.
            response.__dict__["throttle_time_ms"] = 0
        else:
            response = _charge(context.usage, response)
    return context.reply([encode_response(context.api_key, context.api_version, response)])


def _count_errors(context: ClusterContext, codes: Iterable[int]) -> None:
    for code in codes:
        context.services.requests.add_error(context.api_key, code)


def _charge(usage: Usage, response: Struct) -> Struct:
    """Charge a request to its client's quotas; return its response with the throttle time."""
    throttle_ms = usage.charge()
    if throttle_ms and isinstance(response, FrozenMessage):
        # Other clients get the cached response, too. They are not throttled.
        response = Message(**vars(response))
    response.__dict__["throttle_time_ms"] = throttle_ms
    return response


async def _charge_forwarded(context: ClusterContext, forwarded: Awaitable[Reply]) -> Reply:
    """Return the reply of another node with the longer of its throttle time and this node's."""
    data = bytearray(b"".join(part for part in await forwarded if not isinstance(part, FileSlice)))
    position = len(response_prefix(context.api_key, context.api_version, 0, 0))
    if context.api_key in THROTTLE_TIME_LAST:
        # Only the tagged fields follow, of which there are none.
        position = len(data) - INT32.size - is_flexible(context.api_key, context.api_version)
    assert context.usage is not None
    INT32.pack_into(data, position, context.usage.charge(*INT32.unpack_from(data, position)))
    return [data]


async def _encode_later(route: _Route, context: ClusterContext, response: Awaitable[Struct]) -> Reply:
    return _encode(route, context, await response)


async def _encode_in_worker(route: _Route, context: ClusterContext, response: Struct) -> Reply:
    if route.has_throttle_time:
        if context.usage is None:
            response.__dict__["throttle_time_ms"] = 0
        else:
            response = _charge(context.usage, response)
    find_errors = route.find_errors
    body, codes = await in_worker(
        lambda: (
            encode_response(context.api_key, context.api_version, response),
            () if find_errors is None else find_errors(response),
        )
    )
    _count_errors(context, codes)
    return context.reply([body])


async def _result(answer: Struct | Awaitable[Struct]) -> Struct:
    if isinstance(answer, Struct):
        return answer
    return await answer
