"""Reads when the certificates of listeners expire, by a TLS handshake with each broker. A shell.

The certificate is not verified: an expired one is what this looks for.
"""

import asyncio
import ssl
from collections.abc import Iterable

from rookery.base.errors import RookeryError
from rookery.client.admin import Broker
from rookery.doctor.snapshot import SeenCertificate

_TIMEOUT_S = 5.0


async def read_certificates(brokers: Iterable[Broker], unseen: list[str]) -> tuple[SeenCertificate, ...]:
    """Return the certificates of the brokers that answer; add a sentence to `unseen` for the others."""
    found = []
    for broker in brokers:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found.append(await _read(broker))
        except (OSError, TimeoutError, ImportError, RookeryError) as error:
            unseen.append(f"the certificate of {broker.address}: {error or type(error).__name__}")
    return tuple(found)


async def _read(broker: Broker) -> SeenCertificate:
    from rookery.security.authority import end_of_pem

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(broker.host, broker.port, ssl=context)
    try:
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    expires = end_of_pem(ssl.DER_cert_to_PEM_cert(encoded))
    return SeenCertificate(address=str(broker.address), expires_ms=int(expires.timestamp() * 1000))
