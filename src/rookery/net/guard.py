"""Protects the connections of one listener: TLS, logins, and bounds on the connections that have not logged in.

A peer that does not complete its TLS handshake and its login in time is closed. If too many peers are at that point,
the one that has waited for longest is closed: peers that never log in cannot keep others out.
"""

import ssl
from collections.abc import Callable
from typing import Final

import structlog

from rookery.base.bounds import PENDING_LOGIN_SECONDS_MAX, PENDING_LOGINS_MAX
from rookery.base.errors import ProtocolError
from rookery.base.values import value_class
from rookery.net.connection import Connection, Handler
from rookery.net.login import Login, LoginRules
from rookery.net.receive import SCRATCH_SIZE
from rookery.net.tls import TlsLayer
from rookery.protocol.principal import Principal
from rookery.security.certificates import subject_of
from rookery.security.principal_rules import PrincipalRules

_log = structlog.get_logger(__name__)

_RECEIVE_SIZE_KEY: Final = "sasl.server.max.receive.size"
_REQUEST_SIZE_KEY: Final = "socket.request.max.bytes"


@value_class(kw_only=True)
class TlsRules:
    """`context` returns the TLS context of a new connection; `principal_rules` are for clients' certificates."""

    context: Callable[[], ssl.SSLContext]
    principal_rules: PrincipalRules


class Guard:
    """The protection of a listener. `tls` and `logins` are None if it has none."""

    def __init__(self, *, tls: TlsRules | None, logins: LoginRules | None) -> None:
        self._tls = tls
        self._logins = logins
        self._scratch = memoryview(bytearray(SCRATCH_SIZE)) if tls is not None else memoryview(b"")
        # The connections that have not logged in, with the time of their start, in this order.
        self._pending: dict[Connection, float] = {}

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def protect(self, connection: Connection, handle: Handler, request_size_max: int) -> "Connection | TlsLayer":
        """Return the protocol for an accepted connection; `handle` gets its requests after the login."""
        if (logins := self._logins) is not None:

            def accept(connection: Connection) -> None:
                connection.limit_requests(request_size_max, _REQUEST_SIZE_KEY)
                self.forget(connection)

            connection.use(Login(connection, logins, handle, accept).handle)
            connection.limit_requests(min(logins.receive_size_max, request_size_max), _RECEIVE_SIZE_KEY)
        if self._tls is None:
            return connection
        return TlsLayer(connection, self._tls.context, self._scratch, self._opened)

    def admit(self, connection: Connection, now_s: float) -> None:
        """Take note of a new connection."""
        self._pending[connection] = now_s
        if len(self._pending) > PENDING_LOGINS_MAX:
            oldest = next(iter(self._pending))
            self.forget(oldest)
            oldest.drop(f"more than {PENDING_LOGINS_MAX} connections have not logged in, and this one is the oldest")

    def forget(self, connection: Connection) -> None:
        """The connection is closed, or its client has logged in."""
        self._pending.pop(connection, None)

    def check(self, now_s: float) -> None:
        """Close the connections that take too long to log in. Called periodically."""
        while self._pending:
            oldest, since_s = next(iter(self._pending.items()))
            if now_s - since_s < PENDING_LOGIN_SECONDS_MAX:
                return
            self.forget(oldest)
            oldest.drop(f"no TLS handshake and login within {PENDING_LOGIN_SECONDS_MAX} s")

    def _opened(self, connection: Connection, certificate: bytes | None) -> str | None:
        """The TLS handshake is complete; return why the connection is rejected, else None."""
        if self._logins is not None:
            return None
        assert self._tls is not None
        if certificate is not None:
            try:
                subject = subject_of(certificate)
            except ProtocolError as error:
                return str(error)
            name = self._tls.principal_rules.apply(subject)
            if name is None:
                return f"no rule of ssl.principal.mapping.rules applies to {subject!r}"
            connection.info.principal = Principal("User", name)
        self.forget(connection)
        return None
