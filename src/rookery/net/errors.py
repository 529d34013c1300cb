"""Errors of a channel that cannot be opened because one end does not trust the other.

`client.errors` exports both to users.
"""

from rookery.base.errors import ApiError, ErrorCode


class AuthenticationError(ApiError):
    """A login or a TLS handshake failed. Not retriable: other settings, or another broker, are needed.

    The text names the settings.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        # ApiError's text begins with the name of the code, which says SASL even if TLS failed.
        self.args = (message,)


class HandshakeError(AuthenticationError):
    """A TLS handshake with one broker failed. Each broker has its own certificate, so another one may succeed."""
