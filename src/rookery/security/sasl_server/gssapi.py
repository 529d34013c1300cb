"""The mechanism GSSAPI (RFC 4752) with Kerberos: the client proves that it has a ticket for this service. Pure.

    client                          server
    tokens of the context           tokens of the context, until it is complete
    empty                           offer of security layers: only "none", protected by the context
    choice of it, protected

The tokens of a context may be replayed. The last message proves that the client has the key of its ticket.

As in Kafka, the name that the client asks to act as (authorization id) is ignored: clients send their own principal,
nothing, or even that of the service. The user is always the one of the ticket.
"""

from collections.abc import Callable, Generator
from typing import Final

from rookery.base.types import TimestampMs
from rookery.base.values import value_class
from rookery.protocol.principal import Principal
from rookery.security.gss import GssContext, GssError
from rookery.security.kerberos_rules import KerberosRules, NoLocalNameError
from rookery.security.sasl_server.exchange import (
    Identity,
    InvalidCredentialsError,
    ServerExchange,
    TransientLoginError,
)

# The byte of the layer "none", and the largest message, which is 0 without a layer.
NO_LAYER: Final = b"\x01\x00\x00\x00"
# Kerberos takes one, or two in the style of DCE.
_TOKENS_MAX: Final = 4


@value_class(kw_only=True)
class GssapiMechanism:
    """`new_context` begins the server's side of a context; `now_ms` returns the time.

    `has_limit`: sessions are limited, and one ends at the latest with the client's ticket. As in Kafka, a session
    without a limit survives the ticket.
    """

    new_context: Callable[[], GssContext]
    rules: KerberosRules
    default_realm: str
    now_ms: Callable[[], TimestampMs]
    has_limit: bool

    @property
    def name(self) -> str:
        return "GSSAPI"

    @property
    def is_slow(self) -> bool:
        # Reads the keytab, and records the ticket in a file against replays.
        return True

    def begin(self) -> ServerExchange:
        first = yield b""
        try:
            # Created here: the code before the first message does not run in a thread.
            context = self.new_context()
            yield from _establish(context, first)
            choice = context.unwrap((yield context.wrap(NO_LAYER)))
            if len(choice) < len(NO_LAYER) or choice[0] != NO_LAYER[0]:
                raise InvalidCredentialsError("the client asks for a security layer")
            peer, expires_ms = context.peer, None
            if self.has_limit:
                expires_ms = self.now_ms() + context.lifetime_s() * 1000
        except GssError as error:
            if error.is_transient:
                raise TransientLoginError(str(error)) from None
            raise InvalidCredentialsError(str(error)) from None
        try:
            user = self.rules.local_name(peer, self.default_realm)
        except NoLocalNameError as error:
            raise InvalidCredentialsError(str(error)) from None
        if not user:
            raise InvalidCredentialsError(f"the rules for principals make an empty name of {peer!r}")
        return Identity(principal=Principal("User", user), response=None, expires_ms=expires_ms)


def _establish(context: GssContext, message: bytes) -> Generator[bytes, bytes, None]:
    """Exchange tokens until the context is complete, and the client expects the offer of layers."""
    for _ in range(_TOKENS_MAX):
        token = context.step(message)
        if context.is_complete and not token:
            return
        message = yield token
        if context.is_complete:
            if message:
                raise InvalidCredentialsError("the client continues a context that is complete")
            return
    raise InvalidCredentialsError("the context takes too many tokens")
