"""Sends requests to the active controller: in process if this node is it, else over a channel.

The quorum of this node holds who leads. A request is sent again, after a short pause, if there is no leader, the
connection fails or the response is NOT_CONTROLLER; it is also abandoned and sent again if another node becomes the
leader while it waits, because a controller that was stopped or cut off does not respond.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, cast

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.files import FileSlice
from rookery.base.types import NodeId
from rookery.net.connection import ConnectionInfo, Handler
from rookery.net.peers import Peers
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import SIZE_BYTES, RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Message, Request, ResponseT

# How long to wait before the next look at who leads.
_PAUSE_S: Final = 0.05

ResultT = TypeVar("ResultT")


class ActiveControllerLink:
    """Implements `metadata.controller_link.ControllerLink`."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        leader: Callable[[], NodeId | None],
        local: Handler | None = None,
        peers: Peers | None = None,
    ) -> None:
        """`leader` returns the node that leads the quorum, None while there is none.

        `local` handles frames as a controller's listener on this node does; None if this node is not a controller.
        `peers` are the channels to controllers; None if there are no others.
        """
        self._node_id = node_id
        self._leader = leader
        self._local = local
        self._peers = peers
        self._connection = ConnectionInfo("127.0.0.1", 0, "local", is_local=True)

    async def send(self, api_key: ApiKey, request: Request[ResponseT], *, timeout_s: float) -> ResponseT:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        reason = "there is no active controller"
        while (left_s := deadline_s - loop.time()) > 0:
            leader = self._leader()
            if leader is not None:
                try:
                    response = await self._attempt(leader, api_key, request, left_s)
                    if not _is_not_controller(response):
                        return response
                    reason = f"node {leader} is not the active controller any more"
                except ApiError as error:
                    if error.code is ErrorCode.UNSUPPORTED_VERSION:
                        raise
                    reason = str(error)
            await asyncio.sleep(min(_PAUSE_S, max(deadline_s - loop.time(), 0)))
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no response of the active controller: {reason}")

    async def _attempt(
        self, leader: NodeId, api_key: ApiKey, request: Request[ResponseT], timeout_s: float
    ) -> ResponseT:
        if leader == self._node_id and self._local is not None:
            return await self._call(self._local, api_key, request)
        if self._peers is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"the address of node {leader} is not known")
        attempt = asyncio.ensure_future(self._peers.request(leader, api_key, request, timeout_s=timeout_s))
        try:
            while not attempt.done():
                await asyncio.wait((attempt,), timeout=_PAUSE_S)
                if not attempt.done() and self._leader() not in (leader, None):
                    raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"node {leader} has been replaced as controller")
            return attempt.result()
        finally:
            attempt.cancel()

    async def _call(self, handle: Handler, api_key: ApiKey, request: Request[ResponseT]) -> ResponseT:
        """Handle a request in this process. Its frame fills in defaults, as a request over a channel does."""
        version = DEFINED[api_key].maximum
        body = encode_request(api_key, version, request)
        frame = bytearray(encode_request_frame(RequestHeader(api_key, version, 0, None), body))
        result = handle(memoryview(frame)[SIZE_BYTES:], self._connection)
        reply = result if result is None or isinstance(result, list) else await result
        assert reply is not None, "every request to the controller has a response"
        data = b"".join(part for part in reply if not isinstance(part, FileSlice))[SIZE_BYTES:]
        _, position = parse_response_header(api_key, version, data)
        return cast(ResponseT, decode_response(api_key, version, data, position))


def _is_not_controller(response: object) -> bool:
    """Return whether the node was not the active controller. Some responses have error codes per topic only."""
    assert isinstance(response, Message)
    code = response.get("error_code")
    codes = [code] if code is not None else [topic.get("error_code") for topic in response.get("topics") or ()]
    return ErrorCode.NOT_CONTROLLER in codes
