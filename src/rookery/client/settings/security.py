"""The keys of TLS, SASL and other security that Kafka 4's clients share, and the settings made from them.

Keys that make sense only in Java (providers, classes, algorithms) are known, so that they are not reported as
misspelt, and rejected, so that no client is less secure than its configuration says. A Java class is accepted if it
names what this client does anyway.
"""

from collections.abc import Iterator, Mapping

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue, broker_row
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.client.settings.parser import Values, check_together, table, unsupported_row
from rookery.security.jaas import LoginModule, parse_jaas
from rookery.security.kerberos_login import MODULE, SERVICE_KEY, login_problems, read_login
from rookery.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_MECHANISMS, logs_in_with_token
from rookery.security.settings import PLAINTEXT, SaslSettings, SecuritySettings, TlsSettings, TokenSettings

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_DOUBLE = ConfigType.DOUBLE
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_PASSWORD = ConfigType.PASSWORD
_SHORT = ConfigType.SHORT
_STRING = ConfigType.STRING

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
STORE_TYPES = ("JKS", "PKCS12", "PEM")

_JAVA = "it is specific to Java; omit it"
_ASSERTIONS = "only tokens by client id and secret, or from a file, are supported; omit it"
_VALIDATION = "only brokers validate tokens; omit it"
_JAVA_OAUTH = "org.apache.kafka.common.security.oauthbearer"

# The rows of the clients' tables have the form of the broker's.
_row = broker_row


def _unsupported(name: str, kind: ConfigType, default: ConfigValue, doc: str, reason: str) -> ConfigKey:
    return unsupported_row(name, kind, default, doc=doc, reason=reason)


@value_class
class _KnownJavaClass:
    """The check of a Java class: accepts those that do what this client does anyway."""

    names: tuple[str, ...]

    def __call__(self, value: ConfigValue) -> str | None:
        if value is None or value in self.names:
            return None
        return f"Java classes are not supported; omit it, or set {' or '.join(self.names)}"


_SASL_ROWS = (
    ConfigKey(
        name="sasl.client.callback.handler.class",
        type=_CLASS,
        default=None,
        doc="Java class that handles the callbacks of the mechanism.",
        check=_KnownJavaClass((f"{_JAVA_OAUTH}.internals.OAuthBearerSaslClientCallbackHandler",)),
        effective=False,
    ),
    _row(
        "sasl.jaas.config", _PASSWORD, None, "Login module and its options, such as username and password, as in Java."
    ),
    _row(
        "sasl.kerberos.kinit.cmd",
        _STRING,
        "/usr/bin/kinit",
        "Program that renews a ticket; here the tickets of a cache are not renewed.",
        effective=False,
    ),
    _row(
        "sasl.kerberos.min.time.before.relogin",
        _LONG,
        60_000,
        "Shortest time between two logins at the KDC; here the Kerberos library decides.",
        effective=False,
    ),
    _row("sasl.kerberos.service.name", _STRING, None, "Service in the principals of the brokers, such as kafka."),
    _row(
        "sasl.kerberos.ticket.renew.jitter",
        _DOUBLE,
        0.05,
        "Random part of a renewal's time; here the Kerberos library decides.",
        effective=False,
    ),
    _row(
        "sasl.kerberos.ticket.renew.window.factor",
        _DOUBLE,
        0.8,
        "When to renew a ticket; here the Kerberos library decides.",
        effective=False,
    ),
    ConfigKey(
        name="sasl.login.callback.handler.class",
        type=_CLASS,
        default=None,
        doc="Java class that gets tokens from the identity provider; here this depends on the endpoint's URL only.",
        check=_KnownJavaClass(
            (
                f"{_JAVA_OAUTH}.OAuthBearerLoginCallbackHandler",
                f"{_JAVA_OAUTH}.secured.OAuthBearerLoginCallbackHandler",
            )
        ),
        effective=False,
    ),
    _unsupported("sasl.login.class", _CLASS, None, "Java class that logs in.", _JAVA),
    _row("sasl.login.connect.timeout.ms", _INT, None, "Time-out for connecting to the identity provider."),
    _row("sasl.login.read.timeout.ms", _INT, None, "Time-out for a response of the identity provider."),
    _row(
        "sasl.login.refresh.buffer.seconds",
        _SHORT,
        300,
        "A token is replaced at least this long before it expires.",
        minimum=0,
        maximum=3600,
    ),
    _row(
        "sasl.login.refresh.min.period.seconds",
        _SHORT,
        60,
        "Shortest time between two refreshes of a login; here tokens are refreshed only when needed.",
        minimum=0,
        maximum=900,
        effective=False,
    ),
    _row(
        "sasl.login.refresh.window.factor",
        _DOUBLE,
        0.8,
        "Fraction of a token's lifetime after which it is replaced.",
        minimum=0.5,
        maximum=1.0,
    ),
    _row(
        "sasl.login.refresh.window.jitter",
        _DOUBLE,
        0.05,
        "Random variation of the refresh time; here tokens are refreshed only when needed.",
        minimum=0.0,
        maximum=0.25,
        effective=False,
    ),
    _row("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "How long requests for a token are retried."),
    _row(
        "sasl.login.retry.backoff.ms", _LONG, 100, "Wait before the first retry of a request for a token; it doubles."
    ),
    _row("sasl.mechanism", _STRING, "GSSAPI", f"SASL mechanism: {', '.join(MECHANISMS)}."),
)
_OAUTH_ROWS = (
    _unsupported(
        "sasl.oauthbearer.assertion.algorithm", _STRING, "RS256", "Signature algorithm of assertions.", _ASSERTIONS
    ),
    _unsupported("sasl.oauthbearer.assertion.claim.aud", _STRING, None, "Audience of an assertion.", _ASSERTIONS),
    _unsupported("sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300, "Lifetime of an assertion.", _ASSERTIONS),
    _unsupported("sasl.oauthbearer.assertion.claim.iss", _STRING, None, "Issuer of an assertion.", _ASSERTIONS),
    _unsupported(
        "sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False, "Whether assertions have an id.", _ASSERTIONS
    ),
    _unsupported(
        "sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60, "Start of an assertion's lifetime.", _ASSERTIONS
    ),
    _unsupported("sasl.oauthbearer.assertion.claim.sub", _STRING, None, "Subject of an assertion.", _ASSERTIONS),
    _unsupported("sasl.oauthbearer.assertion.file", _STRING, None, "File with an assertion.", _ASSERTIONS),
    _unsupported(
        "sasl.oauthbearer.assertion.private.key.file", _STRING, None, "Private key that signs assertions.", _ASSERTIONS
    ),
    _unsupported(
        "sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None, "Passphrase of that key.", _ASSERTIONS
    ),
    _unsupported(
        "sasl.oauthbearer.assertion.template.file", _STRING, None, "File with the claims of assertions.", _ASSERTIONS
    ),
    _row("sasl.oauthbearer.client.credentials.client.id", _STRING, None, "Client id for the identity provider."),
    _row(
        "sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None, "Client secret for the identity provider."
    ),
    _row("sasl.oauthbearer.clock.skew.seconds", _INT, 30, "Clock skew that brokers tolerate.", effective=False),
    _unsupported("sasl.oauthbearer.expected.audience", _LIST, (), "Audiences that a token may have.", _VALIDATION),
    _unsupported("sasl.oauthbearer.expected.issuer", _STRING, None, "Issuer that a token must have.", _VALIDATION),
    _row("sasl.oauthbearer.header.urlencode", _BOOLEAN, False, "URL-encode the client id and secret in the header."),
    _unsupported(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000, "How often keys are refreshed.", _VALIDATION
    ),
    _unsupported(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        10_000,
        "Longest wait before a retry for keys.",
        _VALIDATION,
    ),
    _unsupported(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        _LONG,
        100,
        "Wait before the first retry for keys.",
        _VALIDATION,
    ),
    _unsupported("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "URL of the keys that sign tokens.", _VALIDATION),
    _unsupported(
        "sasl.oauthbearer.jwt.retriever.class",
        _CLASS,
        f"{_JAVA_OAUTH}.DefaultJwtRetriever",
        "Java class that gets tokens.",
        _ASSERTIONS,
    ),
    _unsupported(
        "sasl.oauthbearer.jwt.validator.class",
        _CLASS,
        f"{_JAVA_OAUTH}.DefaultJwtValidator",
        "Java class that validates tokens.",
        _VALIDATION,
    ),
    _row("sasl.oauthbearer.scope", _STRING, None, "Scope to request."),
    _row("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "Claim that holds the scope.", effective=False),
    _row("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "Claim that holds the subject.", effective=False),
    _row("sasl.oauthbearer.token.endpoint.url", _STRING, None, "URL of the token endpoint: http, https or file."),
)
_SSL_ROWS = (
    _unsupported("ssl.cipher.suites", _LIST, (), "Cipher suites to offer.", "OpenSSL chooses them; omit it"),
    _row("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS to offer."),
    _row(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "https: verify the broker's host name; empty: do not.",
    ),
    _unsupported("ssl.engine.factory.class", _CLASS, None, "Java class that creates TLS engines.", _JAVA),
    _row("ssl.key.password", _PASSWORD, None, "Password of the client's private key."),
    _unsupported("ssl.keymanager.algorithm", _STRING, "SunX509", "Java's key manager algorithm.", _JAVA),
    _row("ssl.keystore.certificate.chain", _PASSWORD, None, "The client's certificate chain, PEM."),
    _row("ssl.keystore.key", _PASSWORD, None, "The client's private key, PEM."),
    _row("ssl.keystore.location", _STRING, None, "File with the client's private key and certificates."),
    _row("ssl.keystore.password", _PASSWORD, None, "Password of that file."),
    _row("ssl.keystore.type", _STRING, "JKS", f"Format of that file: {', '.join(STORE_TYPES)}."),
    _row("ssl.protocol", _STRING, "TLSv1.3", "Version of TLS: see ssl.enabled.protocols.", effective=False),
    _unsupported("ssl.provider", _STRING, None, "Java's TLS provider.", _JAVA),
    _unsupported("ssl.secure.random.implementation", _STRING, None, "Java's source of randomness for TLS.", _JAVA),
    _unsupported("ssl.trustmanager.algorithm", _STRING, "PKIX", "Java's trust manager algorithm.", _JAVA),
    _row("ssl.truststore.certificates", _PASSWORD, None, "Trusted certificates, PEM."),
    _row("ssl.truststore.location", _STRING, None, "File with trusted certificates; by default the system's."),
    _row("ssl.truststore.password", _PASSWORD, None, "Password of that file."),
    _row("ssl.truststore.type", _STRING, "JKS", f"Format of that file: {', '.join(STORE_TYPES)}."),
)

SECURITY_ROWS: tuple[ConfigKey, ...] = (
    *_SASL_ROWS,
    *_OAUTH_ROWS,
    *_SSL_ROWS,
    _row(
        "security.protocol",
        _STRING,
        "PLAINTEXT",
        f"Protocol for connections to brokers: {', '.join(PROTOCOLS)}, in any case.",
        choices=tuple(name.lower() for name in PROTOCOLS),
        any_case=True,
    ),
    _unsupported("security.providers", _STRING, None, "Java classes that provide security algorithms.", _JAVA),
)


def read_security(values: Values) -> SecuritySettings:
    """Read the security settings. As in Kafka, keys that security.protocol does not use may have any value."""
    protocol = values.text("security.protocol").upper()
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    if not has_tls and not has_sasl:
        return PLAINTEXT
    problems = [*(_tls_problems(values) if has_tls else ()), *(_sasl_problems(values) if has_sasl else ())]
    check_together(problems)
    return SecuritySettings(tls=_read_tls(values) if has_tls else None, sasl=_read_sasl(values) if has_sasl else None)


def _tls_problems(values: Values) -> Iterator[str]:
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if values.text(name).upper() not in STORE_TYPES:
            yield f"{name} must be one of: {', '.join(STORE_TYPES)}"
    algorithm = values.text("ssl.endpoint.identification.algorithm")
    if algorithm.strip().lower() not in ("", "https"):
        yield f"ssl.endpoint.identification.algorithm must be https, or empty for no check, not {algorithm}"


def _read_tls(values: Values) -> TlsSettings:
    return TlsSettings(
        enabled_protocols=values.items("ssl.enabled.protocols"),
        verify_host_name=bool(values.text("ssl.endpoint.identification.algorithm").strip()),
        truststore_type=values.text("ssl.truststore.type").upper(),
        truststore_location=values.optional_text("ssl.truststore.location"),
        truststore_password=values.optional_text("ssl.truststore.password"),
        truststore_certificates=values.optional_text("ssl.truststore.certificates"),
        keystore_type=values.text("ssl.keystore.type").upper(),
        keystore_location=values.optional_text("ssl.keystore.location"),
        keystore_password=values.optional_text("ssl.keystore.password"),
        keystore_key=values.optional_text("ssl.keystore.key"),
        keystore_certificate_chain=values.optional_text("ssl.keystore.certificate.chain"),
        key_password=values.optional_text("ssl.key.password"),
    )


def _read_endpoint_tls(options: Mapping[str, str]) -> TlsSettings:
    """Read the trust settings for the identity provider: as in Kafka, `ssl.*` options of the login module."""
    try:
        values = Values(table(_SSL_ROWS), {name: value for name, value in options.items() if name.startswith("ssl.")})
        check_together(_tls_problems(values))
    except ConfigError as error:
        raise ConfigError(f"sasl.jaas.config: {error}") from None
    return _read_tls(values)


def _sasl_problems(values: Values) -> Iterator[str]:
    mechanism = values.text("sasl.mechanism")
    if mechanism not in MECHANISMS:
        yield f"sasl.mechanism must be one of: {', '.join(MECHANISMS)}; {mechanism} is not supported"
        return
    text = values.optional_text("sasl.jaas.config")
    if mechanism == GSSAPI and text is None:
        yield from login_problems({}, values.optional_text(SERVICE_KEY))
        return
    if text is None:
        yield f"sasl.jaas.config is required: {_example(mechanism)}"
        return
    try:
        options = parse_jaas(text).options
    except ConfigError as error:
        yield str(error)
        return
    if mechanism == OAUTHBEARER:
        # `security.tokens` checks its own options.
        return
    if mechanism == GSSAPI:
        yield from login_problems(options, values.optional_text(SERVICE_KEY))
        return
    if missing := [name for name in ("username", "password") if name not in options]:
        yield f"sasl.jaas.config has no {' and no '.join(missing)}: {_example(mechanism)}"
    elif mechanism == PLAIN and logs_in_with_token(options):
        yield f"sasl.jaas.config: tokenauth needs SCRAM: set sasl.mechanism to {' or '.join(SCRAM_MECHANISMS)}"


def _example(mechanism: str) -> str:
    package = "org.apache.kafka.common.security"
    if mechanism == OAUTHBEARER:
        return f"{package}.oauthbearer.OAuthBearerLoginModule required;"
    module = "scram.ScramLoginModule" if mechanism in SCRAM_MECHANISMS else "plain.PlainLoginModule"
    return f'{package}.{module} required username="..." password="...";'


def _read_sasl(values: Values) -> SaslSettings:
    mechanism = values.text("sasl.mechanism")
    if mechanism == GSSAPI:
        return _read_kerberos(values)
    login = parse_jaas(values.text("sasl.jaas.config"))
    url = values.optional_text("sasl.oauthbearer.token.endpoint.url")
    if mechanism != OAUTHBEARER or url is None:
        return SaslSettings(mechanism=mechanism, login=login)
    # Before Kafka 4.1, client id, client secret and scope were options of the login module.
    tokens = TokenSettings(
        endpoint_url=url,
        client_id=values.optional_text("sasl.oauthbearer.client.credentials.client.id")
        or login.options.get("clientId"),
        client_secret=values.optional_text("sasl.oauthbearer.client.credentials.client.secret")
        or login.options.get("clientSecret"),
        scope=values.optional_text("sasl.oauthbearer.scope") or login.options.get("scope"),
        url_encode_header=values.boolean("sasl.oauthbearer.header.urlencode"),
        connect_timeout_ms=values.optional_integer("sasl.login.connect.timeout.ms"),
        read_timeout_ms=values.optional_integer("sasl.login.read.timeout.ms"),
        refresh_window_factor=values.number("sasl.login.refresh.window.factor"),
        refresh_buffer_s=values.integer("sasl.login.refresh.buffer.seconds"),
        retry_backoff_ms=values.integer("sasl.login.retry.backoff.ms"),
        retry_backoff_max_ms=values.integer("sasl.login.retry.backoff.max.ms"),
        tls=_read_endpoint_tls(login.options) if url.startswith("https:") else None,
    )
    return SaslSettings(mechanism=mechanism, login=login, tokens=tokens)


def _read_kerberos(values: Values) -> SaslSettings:
    text = values.optional_text("sasl.jaas.config")
    login = LoginModule(MODULE, "required", {"useTicketCache": "true"}) if text is None else parse_jaas(text)
    return SaslSettings(
        mechanism=GSSAPI, login=login, kerberos=read_login(login.options, values.optional_text(SERVICE_KEY))
    )
