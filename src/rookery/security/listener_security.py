"""The security of a node's listeners, from its configuration: for the server, and for clients of the same listener.

A key is first looked up for the listener and the SASL mechanism (`listener.name.NAME.MECHANISM.KEY`), then for the
listener, then without a prefix. Pure: key stores are read later (`security.tls`). Each ConfigError names a key.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from rookery.base.codes import SecurityProtocol
from rookery.base.config import LISTENER_PREFIX, BrokerLayers
from rookery.base.config_key import ConfigValue
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.security.jaas import LoginModule, parse_jaas
from rookery.security.kerberos_login import KEYTAB_EXAMPLE, MODULE, SERVICE_KEY, has_keytab, login_problems, read_login
from rookery.security.kerberos_rules import KEY as LOCAL_NAMES
from rookery.security.kerberos_rules import KerberosRules
from rookery.security.peer_tokens import ENDPOINT_KEY, SUBJECT_OPTION, endpoint_tls, read_peer_tokens
from rookery.security.principal_rules import PrincipalRules
from rookery.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from rookery.security.sasl_server.plain import plain_users
from rookery.security.settings import SaslSettings, SecuritySettings, TlsSettings
from rookery.security.token_validation import TokenRules

SERVER_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
PEER_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
MECHANISMS_KEY: Final = "sasl.enabled.mechanisms"
JAAS_KEY: Final = "sasl.jaas.config"
KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_KEYS_TIMEOUT_S: Final = 10.0
_HANDLER: Final = "sasl.server.callback.handler.class"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_UNSECURED_HANDLER: Final = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
# The classes that do what is done here anyway.
_SECURED_HANDLERS: Final = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: MODULE,
}


class ClientCertificates(Enum):
    """`ssl.client.auth`: whether clients are asked for a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@value_class(kw_only=True)
class ServerTls:
    settings: TlsSettings
    client_certificates: ClientCertificates
    principal_rules: PrincipalRules


@value_class(kw_only=True)
class TokenSettings:
    """How bearer tokens are validated: with the keys at `keys_url`; None if tokens have no signatures.

    `tls` is the trust in an endpoint with https: the `ssl.*` options of the login module, as in Kafka.
    """

    rules: TokenRules
    keys_url: str | None
    refresh_ms: int
    retry_ms: int
    retry_max_ms: int
    timeout_s: float
    tls: TlsSettings | None = None


@value_class(kw_only=True)
class KerberosService:
    """The service that clients have tickets for: its keys are in the file `keytab`."""

    principal: str
    keytab: str
    rules: KerberosRules


@value_class(kw_only=True)
class ServerMechanism:
    """One mechanism of a listener. `max_reauth_ms` is the longest session, 0 without a limit.

    `tokens` is for OAUTHBEARER, `kerberos` for GSSAPI.
    """

    name: str
    login: LoginModule | None
    max_reauth_ms: int
    tokens: TokenSettings | None = None
    kerberos: KerberosService | None = None


@value_class(kw_only=True)
class ServerSasl:
    """`receive_size_max` bounds requests before the login; a failed login is answered after `failure_delay_ms`."""

    mechanisms: Mapping[str, ServerMechanism]
    receive_size_max: int
    failure_delay_ms: int


@value_class(kw_only=True)
class ListenerSecurity:
    """How one listener is protected; `tls` and `sasl` as the protocol has them."""

    name: str
    protocol: SecurityProtocol
    tls: ServerTls | None = None
    sasl: ServerSasl | None = None


def read_listener(layers: BrokerLayers, name: str, protocol: SecurityProtocol) -> ListenerSecurity:
    """Read the security of a listener. Raises ConfigError if something is missing or wrong."""
    keys = _Keys(layers, name)
    return ListenerSecurity(
        name=name,
        protocol=protocol,
        tls=_server_tls(keys, protocol) if protocol.has_tls else None,
        sasl=_server_sasl(keys) if protocol.has_sasl else None,
    )


def read_peers(layers: BrokerLayers, name: str, protocol: SecurityProtocol, mechanism_key: str) -> SecuritySettings:
    """Read how this node connects to a listener of other nodes; `mechanism_key` names the mechanism of its login."""
    keys = _Keys(layers, name)
    return SecuritySettings(
        tls=_tls(keys) if protocol.has_tls else None,
        sasl=_client_sasl(keys, mechanism_key) if protocol.has_sasl else None,
    )


class _Keys:
    """The values of keys on one listener."""

    def __init__(self, layers: BrokerLayers, listener: str) -> None:
        self._layers = layers
        self._listener = listener

    def prefixed(self, key: str, mechanism: str | None = None) -> str:
        """Return the most specific name of a key, for an error message."""
        middle = "" if mechanism is None else f"{mechanism.lower()}."
        return f"{LISTENER_PREFIX}{self._listener.lower()}.{middle}{key}"

    def text(self, key: str, mechanism: str | None = None) -> str | None:
        value = self._layers.value_at(self._listener, key, mechanism=mechanism)
        assert value is None or isinstance(value, str), key
        return value or None

    def own_text(self, key: str) -> str | None:
        """Return the value that is set for the listener itself."""
        value = self._layers.listener_value(self._listener, key)
        return None if value is None else str(value)

    def value(self, key: str, mechanism: str) -> ConfigValue:
        return self._layers.value_at(self._listener, key, mechanism=mechanism)

    def integer(self, key: str, mechanism: str | None = None) -> int:
        value = self._layers.value_at(self._listener, key, mechanism=mechanism)
        assert isinstance(value, int), key
        return value

    def items(self, key: str, mechanism: str | None = None) -> tuple[str, ...]:
        value = self._layers.value_at(self._listener, key, mechanism=mechanism)
        assert value is None or isinstance(value, tuple), key
        return value or ()

    def login(self, mechanism: str) -> LoginModule | None:
        text = self.text(JAAS_KEY, mechanism)
        if text is None:
            return None
        try:
            return parse_jaas(text)
        except ConfigError as error:
            raise ConfigError(f"listener {self._listener}, mechanism {mechanism}: {error}") from None

    @property
    def listener(self) -> str:
        return self._listener


def _server_tls(keys: _Keys, protocol: SecurityProtocol) -> ServerTls:
    tls = _tls(keys)
    if tls.keystore_location is None and tls.keystore_key is None and tls.keystore_certificate_chain is None:
        raise ConfigError(
            f"listener {keys.listener} uses {protocol.name}, but has no key: set "
            f"{keys.prefixed('ssl.keystore.location')} with .type and .password, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    # As in Kafka, a listener with SASL asks for certificates only if its own key says so.
    asked = keys.own_text("ssl.client.auth") if protocol.has_sasl else keys.text("ssl.client.auth")
    return ServerTls(
        settings=tls,
        client_certificates=ClientCertificates(asked or "none"),
        principal_rules=PrincipalRules.parse(keys.text("ssl.principal.mapping.rules") or "DEFAULT"),
    )


def _tls(keys: _Keys) -> TlsSettings:
    algorithm = (keys.text("ssl.endpoint.identification.algorithm") or "").strip()
    if algorithm.lower() not in ("", "https"):
        raise ConfigError(
            f"ssl.endpoint.identification.algorithm must be https, or empty for no check, not {algorithm}"
        )
    return TlsSettings(
        enabled_protocols=keys.items("ssl.enabled.protocols"),
        verify_host_name=bool(algorithm),
        truststore_type=(keys.text("ssl.truststore.type") or "JKS").upper(),
        truststore_location=keys.text("ssl.truststore.location"),
        truststore_password=keys.text("ssl.truststore.password"),
        truststore_certificates=keys.text("ssl.truststore.certificates"),
        keystore_type=(keys.text("ssl.keystore.type") or "JKS").upper(),
        keystore_location=keys.text("ssl.keystore.location"),
        keystore_password=keys.text("ssl.keystore.password"),
        keystore_key=keys.text("ssl.keystore.key"),
        keystore_certificate_chain=keys.text("ssl.keystore.certificate.chain"),
        key_password=keys.text("ssl.key.password"),
    )


def _server_sasl(keys: _Keys) -> ServerSasl:
    names = keys.items(MECHANISMS_KEY)
    for name in names:
        if name not in SERVER_MECHANISMS:
            raise ConfigError(
                f"listener {keys.listener}: {MECHANISMS_KEY} has {name}, which is not supported: set it to some of "
                f"{', '.join(SERVER_MECHANISMS)}"
            )
    if not names:
        raise ConfigError(
            f"listener {keys.listener}: {MECHANISMS_KEY} is empty: set it to some of {', '.join(SERVER_MECHANISMS)}"
        )
    return ServerSasl(
        mechanisms={name: _server_mechanism(keys, name) for name in names},
        receive_size_max=keys.integer("sasl.server.max.receive.size"),
        failure_delay_ms=keys.integer("connection.failed.authentication.delay.ms"),
    )


def _server_mechanism(keys: _Keys, name: str) -> ServerMechanism:
    login = keys.login(name)
    for problem in _credential_problems(keys, name, login):
        raise ConfigError(problem)
    return ServerMechanism(
        name=name,
        login=login,
        max_reauth_ms=keys.integer("connections.max.reauth.ms", name),
        tokens=_tokens(keys, login) if name == OAUTHBEARER else None,
        kerberos=_kerberos(keys, login) if name == GSSAPI else None,
    )


def _kerberos(keys: _Keys, login: LoginModule | None) -> KerberosService:
    assert login is not None
    try:
        rules = KerberosRules.parse(keys.items(LOCAL_NAMES, GSSAPI))
    except ConfigError as error:
        raise ConfigError(f"listener {keys.listener}: {error}") from None
    return KerberosService(principal=login.options["principal"], keytab=login.options["keyTab"], rules=rules)


def _tokens(keys: _Keys, login: LoginModule | None) -> TokenSettings:
    url = keys.text(KEYS_URL, OAUTHBEARER)
    has_tls = url is not None and url.startswith("https://")
    return TokenSettings(
        rules=TokenRules(
            issuer=keys.text("sasl.oauthbearer.expected.issuer", OAUTHBEARER),
            audiences=keys.items("sasl.oauthbearer.expected.audience", OAUTHBEARER),
            skew_s=keys.integer("sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER),
            scope_claim=keys.text("sasl.oauthbearer.scope.claim.name", OAUTHBEARER) or "scope",
            subject_claim=keys.text("sasl.oauthbearer.sub.claim.name", OAUTHBEARER) or "sub",
        ),
        keys_url=url,
        refresh_ms=keys.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms", OAUTHBEARER),
        retry_ms=keys.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", OAUTHBEARER),
        retry_max_ms=keys.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", OAUTHBEARER),
        timeout_s=_KEYS_TIMEOUT_S,
        tls=endpoint_tls({} if login is None else login.options) if has_tls else None,
    )


def _credential_problems(keys: _Keys, name: str, login: LoginModule | None) -> Iterator[str]:
    if name == PLAIN and not (login is not None and plain_users(login.options)):
        yield (
            f"listener {keys.listener} offers PLAIN without users: set {keys.prefixed(JAAS_KEY, name)}="
            f'{_MODULES[name]} required user_alice="secret";'
        )
    if name == GSSAPI:
        options = {} if login is None else login.options
        if not (has_keytab(options) and options.get("keyTab") and options.get("principal")):
            yield (
                f"listener {keys.listener} offers GSSAPI, the default of {MECHANISMS_KEY}, without a keytab: set "
                f"{keys.prefixed(JAAS_KEY, name)}={KEYTAB_EXAMPLE} or choose other mechanisms"
            )
    if name == OAUTHBEARER:
        url, handler = keys.text(KEYS_URL, name), keys.text(_HANDLER, name)
        if handler not in (None, *_SECURED_HANDLERS, _UNSECURED_HANDLER):
            yield (
                f"listener {keys.listener}: {_HANDLER} is a Java class, which cannot be run: remove it, or set it to "
                f"{_UNSECURED_HANDLER} to accept tokens without signatures"
            )
        elif handler == _UNSECURED_HANDLER and url is not None:
            yield f"listener {keys.listener}: {KEYS_URL} is set, and {_HANDLER} ignores it: remove one of them"
        elif handler != _UNSECURED_HANDLER and not (url or "").startswith(("https://", "http://", "file://")):
            yield (
                f"listener {keys.listener} offers OAUTHBEARER without keys to verify tokens with: set "
                f"{keys.prefixed(KEYS_URL, name)} to https://..., or to file:///... with a JWKS document"
            )


def _client_sasl(keys: _Keys, mechanism_key: str) -> SaslSettings:
    mechanism = keys.text(mechanism_key) or ""
    if mechanism not in PEER_MECHANISMS:
        raise ConfigError(
            f"{mechanism_key} is {mechanism}, which is not supported: set it to one of {', '.join(PEER_MECHANISMS)}"
        )
    login = keys.login(mechanism)
    if mechanism == OAUTHBEARER:
        return _client_tokens(keys, mechanism_key, login)
    if mechanism == GSSAPI:
        return _kerberos_client(keys, mechanism_key, login)
    if login is None or not {"username", "password"} <= login.options.keys():
        raise ConfigError(
            f"this node has no credentials for {mechanism} ({mechanism_key}): set "
            f'{keys.prefixed(JAAS_KEY, mechanism)}={_MODULES[mechanism]} required username="..." password="...";'
        )
    return SaslSettings(mechanism=mechanism, login=login)


def _client_tokens(keys: _Keys, mechanism_key: str, login: LoginModule | None) -> SaslSettings:
    tokens = None if login is None else read_peer_tokens(keys, login.options)
    if login is None or (tokens is None and SUBJECT_OPTION not in login.options):
        raise ConfigError(
            f"this node has no bearer tokens ({mechanism_key}): set {keys.prefixed(ENDPOINT_KEY, OAUTHBEARER)} to "
            f"https://... or file:///..., and {keys.prefixed(JAAS_KEY, OAUTHBEARER)}={_MODULES[OAUTHBEARER]} required "
            'clientId="..." clientSecret="...";'
        )
    return SaslSettings(mechanism=OAUTHBEARER, login=login, tokens=tokens)


def _kerberos_client(keys: _Keys, mechanism_key: str, login: LoginModule | None) -> SaslSettings:
    if login is None:
        raise ConfigError(
            f"this node has no credentials for {GSSAPI} ({mechanism_key}): set {keys.prefixed(JAAS_KEY, GSSAPI)}="
            f"{KEYTAB_EXAMPLE}"
        )
    service_name = keys.text(SERVICE_KEY, GSSAPI)
    for problem in login_problems(login.options, service_name):
        raise ConfigError(f"listener {keys.listener}, {mechanism_key}: {problem}")
    return SaslSettings(mechanism=GSSAPI, login=login, kerberos=read_login(login.options, service_name))
