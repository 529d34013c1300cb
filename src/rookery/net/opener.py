"""Opens channels to other nodes: with TLS and a login, as their listener requires."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from rookery.base.types import NodeId
from rookery.net.address import Address
from rookery.net.channel import Channel, ChannelObserver

if TYPE_CHECKING:
    from ssl import SSLContext

    from rookery.net.authentication import Authenticator

_UNKNOWN_NODE: NodeId = -1


class ChannelOpener:
    """`tls` returns the context of a new channel, which may change when certificates are renewed."""

    def __init__(
        self, *, tls: "Callable[[], SSLContext] | None" = None, authenticator: "Authenticator | None" = None
    ) -> None:
        self._tls = tls
        self._authenticator = authenticator

    async def open(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        node: NodeId = _UNKNOWN_NODE,
        observer: ChannelObserver | None = None,
    ) -> Channel:
        """Open a channel and log in. Raises ApiError as `Channel.open` and `Authenticator.log_in` do."""
        channel = await Channel.open(
            address,
            client_id=client_id,
            timeout_s=timeout_s,
            node=node,
            observer=observer,
            tls=None if self._tls is None else self._tls(),
        )
        if self._authenticator is not None:
            try:
                await self._authenticator.log_in(channel)
            except BaseException:
                await channel.close(graceful=False)
                raise
        return channel


UNPROTECTED = ChannelOpener()
