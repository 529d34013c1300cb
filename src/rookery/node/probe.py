"""Asks whether a broker still answers, after its connection to the controller was lost."""

from collections.abc import Iterable
from typing import Final

from rookery.base.codes import SecurityProtocol
from rookery.base.errors import ApiError
from rookery.metadata.records import BrokerEndpoint
from rookery.net.address import Address
from rookery.net.channel import Channel
from rookery.net.errors import HandshakeError
from rookery.security.tls import probe_context

# A process that was stopped accepts connections and does not answer; one that is gone refuses them at once.
_TIMEOUT_S: Final = 0.5


async def answers(endpoints: Iterable[BrokerEndpoint]) -> bool:
    """Return whether a broker answers ApiVersions, which needs no login, at one of its endpoints."""
    for endpoint in endpoints:
        try:
            channel = await Channel.open(
                Address(endpoint.host, endpoint.port),
                client_id="controller-probe",
                timeout_s=_TIMEOUT_S,
                tls=probe_context() if SecurityProtocol(endpoint.security_protocol).has_tls else None,
            )
        except HandshakeError:
            # It wants a certificate of its client: it answers.
            return True
        except ApiError:
            continue
        await channel.close(graceful=False)
        return True
    return False
