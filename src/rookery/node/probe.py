"""Asks whether a broker still answers, after its connection to the controller was lost."""

from collections.abc import Iterable
from typing import Final

from rookery.base.errors import ApiError
from rookery.metadata.records import BrokerEndpoint
from rookery.net.address import Address
from rookery.net.channel import Channel

# A process that was stopped accepts connections and does not answer; one that is gone refuses them at once.
_TIMEOUT_S: Final = 0.5


async def answers(endpoints: Iterable[BrokerEndpoint]) -> bool:
    """Return whether a broker answers ApiVersions at one of its endpoints."""
    for endpoint in endpoints:
        try:
            channel = await Channel.open(
                Address(endpoint.host, endpoint.port), client_id="controller-probe", timeout_s=_TIMEOUT_S
            )
        except ApiError:
            continue
        await channel.close(graceful=False)
        return True
    return False
