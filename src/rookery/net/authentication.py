"""SASL logins on connections: SaslHandshake, then SaslAuthenticate until the mechanism's exchange is complete.

A broker may require a new login before a session ends (KIP-368). It then returns the lifetime of the session, and the
first request after most of that time waits until the login has been repeated (`Channel.log_in_again_at`). No request
is lost, requests keep their order, and an idle connection does not log in again.

A wrong user, password, mechanism or identity provider raises `AuthenticationError`, which is not retriable. A Kerberos
KDC that does not answer is a network failure like that of a broker.
"""

import asyncio
import secrets
from random import Random

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.net.channel import Channel
from rookery.net.errors import AuthenticationError
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from rookery.security.jwt import unsecured_token
from rookery.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    Exchange,
    SaslError,
    TransientSaslError,
    gssapi,
    logs_in_with_token,
    oauth_bearer,
    oauth_extensions,
    plain,
    scram,
)
from rookery.security.settings import SaslSettings
from rookery.security.tokens import TokenError, TokenSource

# The fraction of a session's lifetime after which the login is repeated, and the maximum of the random fraction that is
# added to it. Both are Kafka's values.
_RENEWAL_FRACTION = 0.85
_RENEWAL_JITTER = 0.1
_NONCE_BYTES = 18


class Authenticator:
    """Logs in on all connections of one client."""

    def __init__(
        self,
        settings: SaslSettings,
        *,
        timeout_s: float,
        randomness: Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`timeout_s` bounds each request of a login. Raises ConfigError if no login can succeed with `settings`."""
        self._settings = settings
        self._timeout_s = timeout_s
        self._randomness = randomness or Random()
        self._clock = clock or SystemClock()
        self._extensions = oauth_extensions(settings.login.options)
        self._tokens = None if settings.tokens is None else TokenSource(settings.tokens, clock=self._clock)
        # One step of Kerberos at a time: with an unreachable KDC, each occupies a thread for many seconds.
        self._kerberos_turn = asyncio.Lock()
        if self._tokens is None:
            self._check_settings()

    async def log_in(self, connection: Channel) -> None:
        """Log in on `connection` and schedule the next login if the session has a lifetime.

        Raises AuthenticationError, or another ApiError if the connection failed.
        """
        lifetime_ms = await self._authenticate(connection, await self._begin(connection))
        if lifetime_ms > 0:
            fraction = _RENEWAL_FRACTION + _RENEWAL_JITTER * self._randomness.random()
            due_s = asyncio.get_running_loop().time() + fraction * lifetime_ms / 1000
            connection.log_in_again_at(due_s, self.log_in)

    def close(self) -> None:
        if self._tokens is not None:
            self._tokens.close()

    def _check_settings(self) -> None:
        """Fail when the client is constructed, if the settings would make every login fail."""
        if self._settings.kerberos is not None:
            from rookery.security.system_gss import check_library

            check_library("sasl.mechanism")
            return
        try:
            next(self._begin_from_settings())
        except UnicodeError:
            raise ConfigError("sasl.jaas.config has characters that are not valid Unicode") from None

    async def _begin(self, connection: Channel) -> Exchange:
        if self._settings.kerberos is not None:
            # Imported here, because only GSSAPI needs the module and its library.
            from rookery.security.system_gss import initiate

            return gssapi(initiate(self._settings.kerberos, connection.address.host))
        if self._tokens is None:
            return self._begin_from_settings()
        try:
            return oauth_bearer(await self._tokens.token(), self._extensions)
        except TokenError as error:
            raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None

    def _begin_from_settings(self) -> Exchange:
        """Start an exchange with the credentials of the settings, without an identity provider."""
        mechanism, options = self._settings.mechanism, self._settings.login.options
        if mechanism == OAUTHBEARER:
            return oauth_bearer(unsecured_token(options, self._clock.now_ms() / 1000), self._extensions)
        if mechanism == PLAIN:
            return plain(options["username"], options["password"])
        nonce, is_token = secrets.token_urlsafe(_NONCE_BYTES), logs_in_with_token(options)
        return scram(mechanism, options["username"], options["password"], nonce, is_token=is_token)

    async def _authenticate(self, connection: Channel, exchange: Exchange) -> int:
        """Return the session's lifetime in milliseconds; zero means as long as the connection."""
        await self._handshake(connection)
        received: bytes | None = None
        lifetime_ms = 0
        while (auth_bytes := await self._step(connection, exchange, received)) is not None:
            response = await self._request(
                connection, ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=auth_bytes)
            )
            if response.error_code != ErrorCode.NONE:
                raise self._login_error(connection, response.error_message, ErrorCode(response.error_code))
            received, lifetime_ms = response.auth_bytes, response.get("session_lifetime_ms", 0)
        return lifetime_ms

    async def _step(self, connection: Channel, exchange: Exchange, received: bytes | None) -> bytes | None:
        """Send the broker's message, None before the first one, into the exchange.

        Returns the client's next message; None if the exchange is complete.
        """
        try:
            if self._settings.kerberos is None:
                return _advance(exchange, received)
            async with self._kerberos_turn:
                return await asyncio.get_running_loop().run_in_executor(None, _advance, exchange, received)
        except TransientSaslError as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"cannot log in at {connection.address}: {error}") from None
        except SaslError as error:
            raise self._login_error(connection, str(error)) from None

    async def _handshake(self, connection: Channel) -> None:
        mechanism = self._settings.mechanism
        response = await self._request(connection, ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism))
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"{connection.address} does not support the mechanism {mechanism}: set sasl.mechanism to one of "
                f"{', '.join(response.mechanisms)}",
            )
        if response.error_code != ErrorCode.NONE:
            raise self._login_error(connection, "it expects no login", ErrorCode(response.error_code))

    async def _request(self, connection: Channel, api_key: ApiKey, message: Request[ResponseT]) -> ResponseT:
        # A broker answers in order. When a login is repeated, the requests that were sent before it are answered first,
        # so their time is added: without it, a slow Fetch would time out the login and close a healthy connection.
        timeout_s = self._timeout_s + connection.pending_timeout_s
        try:
            return await connection.request(api_key, message, timeout_s=timeout_s)
        except ApiError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise self._login_error(connection, "it does not support SASL") from None

    def _login_error(
        self,
        connection: Channel,
        reason: str | None,
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
    ) -> AuthenticationError:
        keys = "security.protocol, sasl.mechanism and sasl.jaas.config"
        if self._settings.kerberos is not None:
            keys = "security.protocol, sasl.mechanism, sasl.kerberos.service.name and sasl.jaas.config"
        return AuthenticationError(code, f"cannot log in at {connection.address}: {reason or code.name}; check {keys}")


def _advance(exchange: Exchange, received: bytes | None) -> bytes | None:
    try:
        return next(exchange) if received is None else exchange.send(received)
    except StopIteration:
        return None
