"""What a handshake of TLS that failed means to the user: which setting to look at, and whether to try again."""

import ssl

from rookery.base.errors import ApiError, ErrorCode
from rookery.net.address import Address
from rookery.net.errors import HandshakeError

# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_WRONG_NAME = (62, 64)
# The only word that the protocol has for it.
_NO_TRUST = ErrorCode.SASL_AUTHENTICATION_FAILED


def no_handshake(address: Address) -> ApiError:
    """That somebody hung up may have other reasons: it is tried again."""
    hint = "is that a listener with TLS (security.protocol), and does it want no certificate (ssl.keystore.location)?"
    return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address} hung up during the handshake of TLS: {hint}")


def untrusted(address: Address, error: ssl.SSLError) -> ApiError:
    """A handshake of TLS that one side refused."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return no_handshake(address)
    if isinstance(error, ssl.SSLCertVerificationError):
        keys = "ssl.truststore.location"
        if error.verify_code in _WRONG_NAME:
            keys = "bootstrap.servers, the broker's advertised.listeners, or ssl.endpoint.identification.algorithm"
        return HandshakeError(_NO_TRUST, f"{address} is not trusted: {error.verify_message}; check {keys}")
    reason = error.reason or str(error)
    keys = "security.protocol, ssl.enabled.protocols, or ssl.keystore.location if the broker asks for a certificate"
    return HandshakeError(_NO_TRUST, f"the handshake of TLS with {address} failed: {reason}; check {keys}")
