"""Errors of an opening channel whose two ends do not trust each other. `client.errors` shows both to users."""

from rookery.base.errors import ApiError, ErrorCode


class AuthenticationError(ApiError):
    """Not retriable: it takes other settings, or another broker. The text names the settings."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        # The code names SASL only, and TLS fails as well.
        self.args = (message,)


class HandshakeError(AuthenticationError):
    """A TLS handshake with one broker failed. Each broker has its own certificate: another one may be trusted."""
