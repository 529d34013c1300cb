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

A request without a possible response raises ProtocolError, and the connection is closed with one log line: an unknown
API, a version that is not served, bytes that cannot be decoded. Only ApiVersions has a response for unknown versions
(KIP-511).
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from rookery.base.bounds import REQUEST_BYTES_ON_LOOP, REQUEST_ITEMS_MAX, UNSPLIT_REQUEST_BYTES, WHOLE_REQUEST_ITEMS_MAX
from rookery.base.errors import ErrorCode, UnsupportedVersionError
from rookery.broker.api_table import APIS, Api, FrameHandler, Handler
from rookery.broker.context import RequestContext, Services
from rookery.broker.handlers import k00_produce, k18_api_versions
from rookery.broker.large_requests import in_worker
from rookery.broker.request_pieces import Split, exceeds, join, pieces
from rookery.net.connection import ConnectionInfo, HandlerResult, Held
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_request, decode_request_in_worker, encode_response
from rookery.protocol.framing import RequestHeader, parse_request_header
from rookery.protocol.message import Struct

# There are no quotas yet: no response is delayed.
_THROTTLE_TIME_MS: Final = 0


class _Route:
    """The columns of the table that the dispatcher needs, for one version of an API, so that one look-up finds them."""

    __slots__ = ("handle", "handle_frame", "has_throttle_time", "items_max", "split")

    def __init__(self, api: Api, version: int) -> None:
        self.handle_frame: FrameHandler | None = api.handle_frame
        self.handle: Handler = api.handle or _reject_message
        self.split: Split | None = api.split_of(version)
        self.items_max: int = WHOLE_REQUEST_ITEMS_MAX if self.split is None else REQUEST_ITEMS_MAX
        self.has_throttle_time: bool = api.has_throttle_time


def _reject_message(context: RequestContext, _: object) -> Struct:
    raise AssertionError(f"API key {context.api_key} has no handler of messages")


_ROUTES: Final[Mapping[tuple[int, int], _Route]] = {
    (int(api.key), version): _Route(api, version) for api in APIS.values() for version in api.versions
}


class Dispatcher:
    """Handles the requests of all connections of a broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def handle(self, frame: memoryview, connection: ConnectionInfo) -> HandlerResult:
        """Handle one request: stage 1 of it, or all. Raises ProtocolError if the connection has to be closed."""
        header, position = parse_request_header(frame)
        api_key, api_version = key = header[:2]
        route = _ROUTES.get(key)
        if route is None:
            return self._handle_unserved(header, frame, position, connection)
        context = RequestContext(self._services, header, connection)
        if route.handle_frame is not None:
            return route.handle_frame(context, frame, position)
        if len(frame) > UNSPLIT_REQUEST_BYTES:
            return self._handle_long(route, context, frame, position)
        response = route.handle(context, decode_request(api_key, api_version, frame, position))
        if isinstance(response, Struct):
            return _encode(route, context, response)
        return _encode_later(route, context, response)

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
        return _encode_later(route, context, response)

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
        # The slot is released before the wait: a JoinGroup that waits for other members would block all other large
        # requests.
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
            context = RequestContext(self._services, header._replace(api_version=0), connection)
            response = k18_api_versions.refuse(ErrorCode.UNSUPPORTED_VERSION)
            return _encode(_ROUTES[ApiKey.API_VERSIONS, 0], context, response)
        if header.api_key == ApiKey.PRODUCE and header.api_version in k00_produce.OLD_VERSIONS:
            context = RequestContext(self._services, header, connection)
            return context.reply(k00_produce.refuse_old_version(header.api_version, frame, position))
        raise UnsupportedVersionError(f"API key {header.api_key} version {header.api_version} is not served")


def _encode(route: _Route, context: RequestContext, response: Struct) -> Reply:
    if route.has_throttle_time:
        # Set in a cached response too: the value is the same every time, so its cached bytes stay valid.
        response.__dict__["throttle_time_ms"] = _THROTTLE_TIME_MS
    return context.reply([encode_response(context.api_key, context.api_version, response)])


async def _encode_later(route: _Route, context: RequestContext, response: Awaitable[Struct]) -> Reply:
    return _encode(route, context, await response)


async def _encode_in_worker(route: _Route, context: RequestContext, response: Struct) -> Reply:
    if route.has_throttle_time:
        response.__dict__["throttle_time_ms"] = _THROTTLE_TIME_MS
    return context.reply([await in_worker(lambda: encode_response(context.api_key, context.api_version, response))])


async def _result(answer: Struct | Awaitable[Struct]) -> Struct:
    if isinstance(answer, Struct):
        return answer
    return await answer
