"""The interface of the server's mechanisms. Pure: the caller receives and sends the messages.

An exchange is a generator: the client's messages are sent into it, and it yields the responses. Its first `next` only
starts it. It returns an `Identity`, or raises LoginError.

    exchange = mechanism.begin()
    next(exchange)
    while True:
        try:
            response = exchange.send(message)
        except StopIteration as end:
            identity = end.value
"""

from collections.abc import Generator
from typing import Protocol, TypeAlias

from rookery.base.errors import RookeryError
from rookery.base.types import TimestampMs
from rookery.base.values import value_class
from rookery.protocol.principal import Principal


@value_class(kw_only=True)
class Identity:
    """A client that has logged in.

    `response` is the last message to it: None if the mechanism ends with a message of the client, which then gets a
    response only if it sends SaslAuthenticate requests. `expires_ms` is when its credentials end.
    """

    principal: Principal
    response: bytes | None = b""
    expires_ms: TimestampMs | None = None


class LoginError(RookeryError):
    """A login failed. The text goes to the client if the mechanism has its own texts; it never has a secret.

    `reason` is for the log, if it differs.
    """

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason or text


class InvalidCredentialsError(LoginError):
    """A login failed, and the client gets a text that is the same for all reasons. The text is for the log."""


class TransientLoginError(LoginError):
    """A login failed that may succeed a moment later: the client gets no answer, and so tries again."""


ServerExchange: TypeAlias = Generator[bytes, bytes, Identity]


class Mechanism(Protocol):
    """`is_slow`: a step may take long or read files, so that it has to run in a thread."""

    @property
    def name(self) -> str: ...

    @property
    def is_slow(self) -> bool: ...

    def begin(self) -> ServerExchange: ...
