"""Errors for failed TLS handshakes: they name the settings to check, and their type says whether a retry helps."""

import ssl

from rookery.base.errors import ApiError, ErrorCode
from rookery.net.address import Address
from rookery.net.errors import HandshakeError

# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_WRONG_NAME = (62, 64)
# The protocol's only error code for a failed authentication.
_NO_TRUST = ErrorCode.SASL_AUTHENTICATION_FAILED


def handshake_interrupted(address: Address) -> ApiError:
    """Return the error of a handshake during which the broker closed the connection.

    It is retriable, because the reason may be something else, for example a restart.
    """
    hint = "is that a listener with TLS (security.protocol), and does it want no certificate (ssl.keystore.location)?"
    return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address} hung up during the TLS handshake: {hint}")


def handshake_error(address: Address, error: ssl.SSLError) -> ApiError:
    """Return the error of a handshake that one side rejected or that was interrupted."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return handshake_interrupted(address)
    if isinstance(error, ssl.SSLCertVerificationError):
        keys = "ssl.truststore.location"
        if error.verify_code in _WRONG_NAME:
            keys = "bootstrap.servers, the broker's advertised.listeners, or ssl.endpoint.identification.algorithm"
        return HandshakeError(_NO_TRUST, f"{address} is not trusted: {error.verify_message}; check {keys}")
    reason = error.reason or str(error)
    keys = "security.protocol, ssl.enabled.protocols, or ssl.keystore.location if the broker asks for a certificate"
    return HandshakeError(_NO_TRUST, f"the TLS handshake with {address} failed: {reason}; check {keys}")
