"""Checks the passwords of other users by a login at a broker. The schema registry calls it."""

from ssl import SSLContext
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.errors import HandshakeError
from rookery.client.settings.common import CommonSettings
from rookery.net.authentication import Authenticator
from rookery.net.opener import ChannelOpener
from rookery.security.jaas import LoginModule
from rookery.security.settings import SaslSettings
from rookery.security.tls import client_context

_TIMEOUT_S: Final = 10.0


class LoginCheck:
    """Logs in with the brokers, the protocol and the mechanism of `settings`, which must be PLAIN or SCRAM."""

    def __init__(self, settings: CommonSettings) -> None:
        """Raises ConfigError if certificates cannot be used."""
        assert settings.security.sasl is not None, "only a login can be checked"
        self._mechanism = settings.security.sasl.mechanism
        self._addresses = settings.bootstrap_servers
        self._client_id = settings.client_id
        self._tls: SSLContext | None = None if settings.security.tls is None else client_context(settings.security.tls)

    async def accepts(self, user: str, password: str) -> bool:
        """Whether a broker accepts the password. Raises ApiError if none can tell.

        The hashing of SCRAM blocks the event loop for some milliseconds.
        """
        module = LoginModule("", "required", {"username": user, "password": password})
        authenticator = Authenticator(SaslSettings(mechanism=self._mechanism, login=module), timeout_s=_TIMEOUT_S)
        context = self._tls
        opener = ChannelOpener(tls=None if context is None else lambda: context, authenticator=authenticator)
        failure: ApiError | None = None
        for address in self._addresses:
            try:
                channel = await opener.open(address, client_id=self._client_id, timeout_s=_TIMEOUT_S)
            except ApiError as error:
                if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED and not isinstance(error, HandshakeError):
                    return False
                failure = error
            else:
                await channel.close()
                return True
        assert failure is not None, "there is at least one address"
        raise failure
