"""The protection of a node's listeners and of its connections to other nodes, built from the settings.

`open` reads the key stores, before any port is bound. Certificates are renewed while the node runs: when a file
changes, and when AlterConfigs changes a key such as `listener.name.NAME.ssl.keystore.location`.
"""

import asyncio
import base64
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError, StartupError
from rookery.metadata.image import ClusterImage
from rookery.net.guard import Guard, TlsRules
from rookery.net.login import LoggedLogins, LoginObserver, LoginRules
from rookery.net.opener import UNPROTECTED, ChannelOpener
from rookery.node.background import Job
from rookery.node.environment import Environment
from rookery.node.image_credentials import ImageCredentials
from rookery.node.settings import Settings
from rookery.node.tls_contexts import RenewedContext, TlsContexts
from rookery.security.gss import GssError
from rookery.security.listener_security import (
    JAAS_KEY,
    MECHANISMS_KEY,
    KerberosService,
    ListenerSecurity,
    ServerMechanism,
    ServerSasl,
    TokenSettings,
    read_listener,
)
from rookery.security.sasl import PLAIN
from rookery.security.sasl_server.exchange import Mechanism
from rookery.security.sasl_server.gssapi import GssapiMechanism
from rookery.security.sasl_server.oauth_bearer import OAuthBearerMechanism
from rookery.security.sasl_server.plain import PlainMechanism, plain_users
from rookery.security.sasl_server.scram import ScramServer
from rookery.security.scram_credentials import ScramMechanism
from rookery.security.settings import PLAINTEXT, SecuritySettings
from rookery.security.token_validation import BearerToken

if TYPE_CHECKING:
    from rookery.node.verification_keys import KeySource
    from rookery.security.system_gss import Acceptor

logger = structlog.get_logger(__name__)

_NONCE_BYTES: Final = 18
_SECRET_BYTES: Final = 32
# How long each request of a login between nodes may take.
_LOGIN_TIMEOUT_S: Final = 3.0


class Protection:
    """`peers` opens connections to other brokers, `controllers` to controllers."""

    def __init__(
        self,
        settings: Settings,
        environment: Environment,
        *,
        image: Callable[[], ClusterImage],
        observer: LoginObserver | None = None,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._observer = observer or LoggedLogins(environment.clock)
        self._contexts = TlsContexts(environment.executor)
        self._secret = environment.random.randbytes(_SECRET_BYTES)
        self._credentials = ImageCredentials(
            image,
            environment.clock,
            secret_key=settings.layers.text("delegation.token.secret.key"),
            salt=self._secret,
        )
        self._listener_contexts = {
            name: self._listener_context(security)
            for name, security in settings.security.items()
            if security.tls is not None
        }
        self._stores = {name: security.tls for name, security in settings.security.items()}
        self._key_sources = dict(self._make_key_sources())
        self._acceptors = dict(self._make_acceptors())
        self.peers = self._opener("connections to brokers", settings.peer_security)
        self.controllers = self._opener("connections to controllers", settings.controller_security)

    async def open(self) -> None:
        """Read the key stores and keytabs. Raises StartupError."""
        await self._contexts.load()
        for acceptor in self._acceptors.values():
            await self._check_keytab(acceptor)
        for source in self._key_sources.values():
            await source.open()

    def guard(self, listener: str) -> Guard | None:
        """Return the protection of a listener; None if it has none."""
        security = self._settings.security[listener]
        if security.tls is None and security.sasl is None:
            return None
        tls = None
        if security.tls is not None:
            context = self._listener_contexts[listener]
            tls = TlsRules(context=context.current, principal_rules=security.tls.principal_rules)
        return Guard(tls=tls, logins=None if security.sasl is None else self._login_rules(security.sasl))

    def jobs(self) -> list[Job]:
        return [*self._contexts.jobs(), *(source.job() for source in self._key_sources.values())]

    def configure(self, layers: BrokerLayers) -> None:
        """Use the key stores of changed settings, from the next check on."""
        for name, context in self._listener_contexts.items():
            before = self._settings.security[name]
            try:
                security = read_listener(layers, name, before.protocol)
            except ConfigError:
                # The controller checks single keys only; the context tells the operator what is wrong.
                continue
            if security.tls != self._stores[name]:
                self._stores[name] = security.tls
                self._replace(context, security)

    def _make_key_sources(self) -> Iterator[tuple[TokenSettings, "KeySource"]]:
        for security in self._settings.security.values():
            for mechanism in () if security.sasl is None else security.sasl.mechanisms.values():
                tokens = mechanism.tokens
                if tokens is None or tokens.keys_url is None:
                    continue
                from rookery.node.verification_keys import KeySource
                from rookery.security.token_signatures import check_library

                check_library()
                _warn_of_open_rules(security.name, tokens)
                yield tokens, KeySource(tokens, self._environment.clock, self._environment.executor)

    def _make_acceptors(self) -> "Iterator[tuple[KerberosService, Acceptor]]":
        for security in self._settings.security.values():
            for mechanism in () if security.sasl is None else security.sasl.mechanisms.values():
                if mechanism.kerberos is None:
                    continue
                # Imported here, because only GSSAPI needs the module and its library.
                from rookery.security.system_gss import Acceptor, check_library

                check_library(MECHANISMS_KEY)
                yield mechanism.kerberos, Acceptor(mechanism.kerberos.principal, mechanism.kerberos.keytab)

    async def _check_keytab(self, acceptor: "Acceptor") -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._environment.executor, acceptor.check)
        except GssError as error:
            raise StartupError(
                f"{JAAS_KEY}: the keytab {acceptor.keytab} cannot be used for {acceptor.principal}: {error}"
            ) from None

    def _listener_context(self, security: ListenerSecurity) -> RenewedContext:
        # Imported here, because a node without TLS needs neither the module nor its libraries.
        from rookery.security.tls import server_context, store_files

        assert security.tls is not None
        name = f"listener {security.name}"
        return self._contexts.add(name, partial(server_context, security.tls), store_files(security.tls.settings))

    @staticmethod
    def _replace(context: RenewedContext, security: ListenerSecurity) -> None:
        from rookery.security.tls import server_context, store_files

        assert security.tls is not None
        context.replace(partial(server_context, security.tls), store_files(security.tls.settings))

    def _opener(self, name: str, security: SecuritySettings) -> ChannelOpener:
        if security == PLAINTEXT:
            return UNPROTECTED
        context = None
        if security.tls is not None:
            from rookery.security.tls import client_context, store_files

            context = self._contexts.add(name, partial(client_context, security.tls), store_files(security.tls))
        authenticator = None
        if security.sasl is not None:
            from rookery.net.authentication import Authenticator

            authenticator = Authenticator(
                security.sasl,
                timeout_s=_LOGIN_TIMEOUT_S,
                randomness=self._environment.random,
                clock=self._environment.clock,
            )
        return ChannelOpener(tls=None if context is None else context.current, authenticator=authenticator)

    def _login_rules(self, sasl: ServerSasl) -> LoginRules:
        return LoginRules(
            mechanisms={name: self._mechanism(mechanism) for name, mechanism in sasl.mechanisms.items()},
            max_reauth_ms={name: mechanism.max_reauth_ms for name, mechanism in sasl.mechanisms.items()},
            receive_size_max=sasl.receive_size_max,
            failure_delay_s=sasl.failure_delay_ms / 1000,
            clock=self._environment.clock,
            observer=self._observer,
        )

    def _mechanism(self, mechanism: ServerMechanism) -> Mechanism:
        if mechanism.name == PLAIN:
            assert mechanism.login is not None
            return PlainMechanism(plain_users(mechanism.login.options))
        if mechanism.tokens is not None:
            return OAuthBearerMechanism(self._token_check(mechanism.tokens))
        if mechanism.kerberos is not None:
            return self._gssapi(mechanism.kerberos, has_limit=mechanism.max_reauth_ms > 0)
        scram = ScramMechanism.of_name(mechanism.name)
        assert scram is not None
        return ScramServer(
            mechanism=scram, credentials=self._credentials, new_nonce=self._new_nonce, secret=self._secret
        )

    def _gssapi(self, service: KerberosService, *, has_limit: bool) -> Mechanism:
        from rookery.security.system_gss import default_realm

        realm = default_realm()
        if not realm:
            logger.warning("krb5.conf has no default_realm: the rule DEFAULT applies to no principal")
        return GssapiMechanism(
            new_context=self._acceptors[service].begin,
            rules=service.rules,
            default_realm=realm,
            now_ms=self._environment.clock.now_ms,
            has_limit=has_limit,
        )

    def _token_check(self, tokens: TokenSettings) -> Callable[[str], BearerToken]:
        # Imported here, because only OAUTHBEARER needs the modules and their libraries.
        from rookery.node.verification_keys import validate_unsecured

        if tokens.keys_url is None:
            return validate_unsecured(tokens, self._environment.clock)
        return self._key_sources[tokens].validate

    def _new_nonce(self) -> str:
        return base64.urlsafe_b64encode(self._environment.random.randbytes(_NONCE_BYTES)).decode()


def _warn_of_open_rules(listener: str, tokens: TokenSettings) -> None:
    """Name the checks that a token passes unseen."""
    for key, value in (("issuer", tokens.rules.issuer), ("audience", tokens.rules.audiences)):
        if not value:
            logger.warning(
                f"sasl.oauthbearer.expected.{key} is not set: tokens for other services are accepted", listener=listener
            )
