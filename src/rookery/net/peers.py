"""The connections of a node to the other nodes of its cluster: one channel per node id.

A channel is opened at the first request to its node, and again at the first request after it failed. Every attempt asks
`address_of` and resolves the name again: a node may return at another address. There is no pause between attempts; the
callers (quorum, controller link, replica fetchers) have their own retry rules.

Responses of one channel arrive in the order of their requests, so a long poll delays the requests after it: callers
with different rhythms use different `Peers`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.base.types import Buffer, NodeId
from rookery.net.address import Address
from rookery.net.channel import Channel
from rookery.net.opener import UNPROTECTED, ChannelOpener
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT

ResultT = TypeVar("ResultT")

# How long a node may take to accept a connection, and then to answer. A node that was killed meanwhile may do neither:
# without this bound, a replica would wait for the whole time-out of its fetch before it tried again.
_OPEN_TIMEOUT_S = 3.0


class Peers:
    """Sends requests to nodes by their id. Safe to use from many tasks of one event loop."""

    def __init__(
        self,
        address_of: Callable[[NodeId], Address | None],
        *,
        client_id: str,
        on_lost: Callable[[NodeId], None] | None = None,
        opener: ChannelOpener = UNPROTECTED,
    ) -> None:
        """`on_lost` is called when an open channel breaks: the node closed it, or did not respond in time."""
        self._address_of = address_of
        self._client_id = client_id
        self._on_lost = on_lost
        self._opener = opener
        self._channels: dict[NodeId, Channel] = {}
        self._opening: dict[NodeId, asyncio.Task[Channel]] = {}
        self._is_closed = False

    async def request(
        self,
        node: NodeId,
        api_key: ApiKey,
        request: Request[ResponseT],
        *,
        timeout_s: float,
        version_min: int = 0,
    ) -> ResponseT:
        """Send a request and wait for its response; `timeout_s` bounds opening a channel and the request together.

        ApiError as `Channel` raises it: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, or UNSUPPORTED_VERSION if the node does
        not serve `version_min` of the API. NETWORK_EXCEPTION also if the node has no address.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        channel, version = await self._negotiated(node, api_key, timeout_s, version_min)
        left_s = deadline_s - asyncio.get_running_loop().time()
        return await channel.request(api_key, request, timeout_s=left_s, api_version=version)

    async def exchange(
        self,
        node: NodeId,
        api_key: ApiKey,
        encode: Callable[[int], Buffer],
        decode: Callable[[int, memoryview], ResultT],
        *,
        timeout_s: float,
        version_min: int = 0,
    ) -> ResultT:
        """Like `request`, for an API with its own codec: `encode` gets the version, `decode` that and the response."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        channel, version = await self._negotiated(node, api_key, timeout_s, version_min)
        left_s = deadline_s - asyncio.get_running_loop().time()
        body = await channel.exchange(api_key, version, (encode(version),), timeout_s=left_s)
        try:
            return decode(version, body)
        except ProtocolError as error:
            raise channel.reject_response(error) from None

    async def _negotiated(
        self, node: NodeId, api_key: ApiKey, timeout_s: float, version_min: int
    ) -> tuple[Channel, int]:
        channel = await self._channel(node, timeout_s)
        version = channel.version(api_key)
        if version < version_min:
            text = f"{channel.address} serves {api_key.name} only up to version {version}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        return channel, version

    async def close(self) -> None:
        """Close all channels for good, without a call of `on_lost`. Requests in flight fail with NETWORK_EXCEPTION."""
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        for channel in list(self._channels.values()):
            await channel.close(graceful=False)

    async def _channel(self, node: NodeId, timeout_s: float) -> Channel:
        """Return the open channel of a node. Concurrent calls share one attempt to open it."""
        if self._is_closed:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the connections to other nodes are closed")
        address = self._address_of(node)
        if address is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"the address of node {node} is not known")
        channel = self._channels.get(node)
        if channel is not None and not channel.is_closed:
            if channel.address == address:
                return channel
            del self._channels[node]
            channel.drop(f"node {node} has moved to {address}")
        task = self._opening.get(node)
        if task is None:
            open_s = min(timeout_s, _OPEN_TIMEOUT_S)
            task = asyncio.get_running_loop().create_task(self._open(node, address, open_s))
            self._opening[node] = task
            task.add_done_callback(lambda done: self._opened(node, done))
        # The attempt goes on if this caller is cancelled: other callers may wait for it.
        await asyncio.wait((task,), timeout=timeout_s)
        if not task.done():
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no connection to node {node} within {timeout_s:g} s")
        if task.cancelled():
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"the attempt to connect to node {node} was cancelled")
        return task.result()

    async def _open(self, node: NodeId, address: Address, timeout_s: float) -> Channel:
        watch = _LossWatch()
        channel = await self._opener.open(
            address, client_id=self._client_id, timeout_s=timeout_s, node=node, observer=watch
        )
        self._channels[node] = channel
        watch.on_closed = lambda: self._lost(node, channel)
        return channel

    def _opened(self, node: NodeId, task: asyncio.Task[Channel]) -> None:
        del self._opening[node]
        if not task.cancelled():
            # Mark the exception as retrieved: asyncio would warn if all waiting callers were cancelled.
            task.exception()

    def _lost(self, node: NodeId, channel: Channel) -> None:
        if self._channels.get(node) is not channel:
            return
        del self._channels[node]
        if self._on_lost is not None and not self._is_closed:
            self._on_lost(node)


class _LossWatch:
    """Calls `on_closed` when its channel's socket is closed."""

    def __init__(self) -> None:
        self.on_closed: Callable[[], None] | None = None

    def opened(self, node: NodeId) -> None: ...

    def closed(self, node: NodeId) -> None:
        if self.on_closed is not None:
            self.on_closed()

    def sent(self, node: NodeId, size_bytes: int) -> None: ...

    def received(self, node: NodeId, size_bytes: int, latency_s: float) -> None: ...
