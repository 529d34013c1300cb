"""The interface of a GSS-API security context, which the mechanism GSSAPI (RFC 4752) exchanges messages with. Pure.

`security.system_gss` implements it with the Kerberos library of the system.
"""

from typing import Protocol

from rookery.base.errors import RookeryError


class GssError(RookeryError):
    """A call of the GSS-API failed.

    `is_transient`: the same credentials may succeed a moment later, for example because no KDC answered.
    """

    def __init__(self, text: str, *, is_transient: bool = False) -> None:
        super().__init__(text)
        self.is_transient = is_transient


class GssContext(Protocol):
    """One side of a context. Calls block: they read files, and the client's side asks the KDC. All raise GssError."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def peer(self) -> str:
        """The principal of the client, on the server's side of a complete context."""

    def step(self, token: bytes) -> bytes:
        """Take a token of the other side; the first one of the client's side is empty. Returns the one to send."""

    def wrap(self, message: bytes) -> bytes:
        """Protect the integrity of a message."""

    def unwrap(self, message: bytes) -> bytes: ...

    def lifetime_s(self) -> int:
        """Return how long the credentials of the context remain valid."""
