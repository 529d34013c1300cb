"""Logs in on connections: SaslHandshake, then SaslAuthenticate until the mechanism is through.

A broker may want to see the login again before a session ends (KIP-368). It then says how long the session lasts, and
the first request after most of that time waits until the connection has been logged in on again
(`Channel.log_in_again_at`): no request is lost, their order stays, and nobody logs in for a connection that is not
used.

What is wrong with a user, a password, a mechanism or an identity provider is `AuthenticationError`, which nobody
retries.
"""

import asyncio
import secrets
from random import Random

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.net.channel import Channel
from rookery.net.errors import AuthenticationError
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.security.jwt import unsecured_token
from rookery.security.sasl import OAUTHBEARER, PLAIN, Exchange, SaslError, oauth_bearer, oauth_extensions, plain, scram
from rookery.security.settings import SaslSettings
from rookery.security.tokens import TokenError, TokenSource

# The part of a session's life after which a login is repeated, and the most that chance adds to it: Kafka's own.
_AGAIN_AFTER = 0.85
_AGAIN_JITTER = 0.1
_NONCE_BYTES = 18


class Authenticator:
    """For all connections of a client."""

    def __init__(
        self,
        settings: SaslSettings,
        *,
        timeout_s: float,
        randomness: Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`timeout_s` bounds each request of a login. ConfigError if there can be none with these settings."""
        self._settings = settings
        self._timeout_s = timeout_s
        self._randomness = randomness or Random()
        self._clock = clock or SystemClock()
        self._extensions = oauth_extensions(settings.login.options)
        self._tokens = None if settings.tokens is None else TokenSource(settings.tokens, clock=self._clock)
        if self._tokens is None:
            self._try()

    async def log_in(self, connection: Channel) -> None:
        """Raises AuthenticationError, or another ApiError if the connection failed."""
        lifetime_ms = await self._talk(connection, await self._begin())
        if lifetime_ms > 0:
            part = _AGAIN_AFTER + _AGAIN_JITTER * self._randomness.random()
            due_s = asyncio.get_running_loop().time() + part * lifetime_ms / 1000
            connection.log_in_again_at(due_s, self.log_in)

    def close(self) -> None:
        if self._tokens is not None:
            self._tokens.close()

    def _try(self) -> None:
        """What would fail with every connection fails when the client is made."""
        try:
            next(self._begin_alone())
        except UnicodeError:
            raise ConfigError("sasl.jaas.config has signs that are not Unicode's") from None

    async def _begin(self) -> Exchange:
        if self._tokens is None:
            return self._begin_alone()
        try:
            return oauth_bearer(await self._tokens.token(), self._extensions)
        except TokenError as error:
            raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None

    def _begin_alone(self) -> Exchange:
        """Of what the settings say, without an identity provider."""
        mechanism, options = self._settings.mechanism, self._settings.login.options
        if mechanism == OAUTHBEARER:
            return oauth_bearer(unsecured_token(options, self._clock.now_ms() / 1000), self._extensions)
        if mechanism == PLAIN:
            return plain(options["username"], options["password"])
        return scram(mechanism, options["username"], options["password"], secrets.token_urlsafe(_NONCE_BYTES))

    async def _talk(self, connection: Channel, exchange: Exchange) -> int:
        """How long the session lasts, in milliseconds; zero: as long as the connection."""
        await self._shake_hands(connection)
        said = next(exchange)
        while True:
            response = await self._ask(connection, ApiKey.SASL_AUTHENTICATE, Message(auth_bytes=said))
            if response.error_code != ErrorCode.NONE:
                raise self._refused(connection, response.error_message, ErrorCode(response.error_code))
            try:
                said = exchange.send(response.auth_bytes)
            except StopIteration:
                return int(response.get("session_lifetime_ms", 0))
            except SaslError as error:
                raise self._refused(connection, str(error)) from None

    async def _shake_hands(self, connection: Channel) -> None:
        mechanism = self._settings.mechanism
        response = await self._ask(connection, ApiKey.SASL_HANDSHAKE, Message(mechanism=mechanism))
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"{connection.address} does not know the mechanism {mechanism}: set sasl.mechanism to one of "
                f"{', '.join(response.mechanisms)}",
            )
        if response.error_code != ErrorCode.NONE:
            raise self._refused(connection, "it expects no login", ErrorCode(response.error_code))

    async def _ask(self, connection: Channel, api_key: ApiKey, message: Message) -> Message:
        # A broker answers in order: first what was asked before a login that is repeated.
        timeout_s = self._timeout_s + connection.patience_s
        try:
            return await connection.request(api_key, message, timeout_s=timeout_s)
        except ApiError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise self._refused(connection, "it knows no SASL") from None

    def _refused(
        self,
        connection: Channel,
        reason: str | None,
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
    ) -> AuthenticationError:
        keys = "security.protocol, sasl.mechanism and sasl.jaas.config"
        said = reason or code.name
        return AuthenticationError(code, f"cannot log in at {connection.address}: {said}; check {keys}")
