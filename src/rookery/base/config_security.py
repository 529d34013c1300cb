"""Keys of Kafka 4 for TLS, SASL and authorization; some are known and checked, and have no effect.

Each may also be set for one listener, as `listener.name.NAME.KEY` with the name in lower case, and those of SASL for
one mechanism of it, as `listener.name.NAME.MECHANISM.KEY`.
"""

from rookery.base.config_key import ConfigKey, ConfigType, Update
from rookery.base.config_key import broker_row as _effective_row
from rookery.base.config_key import inert_row as _row

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_DOUBLE = ConfigType.DOUBLE
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_PASSWORD = ConfigType.PASSWORD
_SHORT = ConfigType.SHORT
_STRING = ConfigType.STRING
_PER_BROKER = Update.PER_BROKER

# The keys of a listener's certificates, which can be changed at run time.
STORE_KEYS: frozenset[str] = frozenset(
    f"ssl.{name}"
    for name in (
        "key.password",
        "keystore.certificate.chain",
        "keystore.key",
        "keystore.location",
        "keystore.password",
        "keystore.type",
        "truststore.certificates",
        "truststore.location",
        "truststore.password",
        "truststore.type",
    )
)

SECURITY_ROWS: tuple[ConfigKey, ...] = (
    _effective_row(
        "connection.failed.authentication.delay.ms",
        _INT,
        100,
        "Wait before a connection with wrong credentials is closed.",
        minimum=0,
    ),
    _effective_row(
        "connections.max.reauth.ms",
        _LONG,
        0,
        "Longest life of an authenticated session before it must authenticate again.",
    ),
    _effective_row(
        "delegation.token.expiry.check.interval.ms",
        _LONG,
        3_600_000,
        "How often expired delegation tokens are removed.",
        minimum=1,
    ),
    _effective_row(
        "delegation.token.expiry.time.ms", _LONG, 86_400_000, "Life of a delegation token without renewal.", minimum=1
    ),
    _effective_row(
        "delegation.token.max.lifetime.ms", _LONG, 604_800_000, "Longest life of a delegation token.", minimum=1
    ),
    _effective_row(
        "delegation.token.secret.key",
        _PASSWORD,
        None,
        "Secret that signs delegation tokens, the same on all nodes; without it there are none.",
    ),
    _row(
        "principal.builder.class",
        _CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Java class that derives the principal of a connection.",
        update=_PER_BROKER,
    ),
    _row("sasl.client.callback.handler.class", _CLASS, None, "Java class for SASL client callbacks."),
    _effective_row("sasl.enabled.mechanisms", _LIST, ("GSSAPI",), "SASL mechanisms that are offered."),
    _effective_row("sasl.jaas.config", _PASSWORD, None, "JAAS login configuration."),
    _row("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", "The kinit command.", update=_PER_BROKER),
    _row(
        "sasl.kerberos.min.time.before.relogin",
        _LONG,
        60_000,
        "Least time between Kerberos logins.",
        update=_PER_BROKER,
    ),
    _effective_row(
        "sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), "How Kerberos principals become short names."
    ),
    _effective_row("sasl.kerberos.service.name", _STRING, None, "Kerberos name of the service."),
    _row(
        "sasl.kerberos.ticket.renew.jitter",
        _DOUBLE,
        0.05,
        "Random part of the Kerberos renewal time.",
        update=_PER_BROKER,
    ),
    _row(
        "sasl.kerberos.ticket.renew.window.factor",
        _DOUBLE,
        0.8,
        "Share of a ticket's life after which it is renewed.",
        update=_PER_BROKER,
    ),
    _row("sasl.login.callback.handler.class", _CLASS, None, "Java class for SASL login callbacks."),
    _row("sasl.login.class", _CLASS, None, "Java class for SASL logins."),
    _effective_row("sasl.login.connect.timeout.ms", _INT, None, "Time-out of connections to a login provider."),
    _effective_row("sasl.login.read.timeout.ms", _INT, None, "Time-out of reads from a login provider."),
    _effective_row(
        "sasl.login.refresh.buffer.seconds",
        _SHORT,
        300,
        "Time before expiry by which a credential must be refreshed.",
    ),
    _row("sasl.login.refresh.min.period.seconds", _SHORT, 60, "Least time between refreshes.", update=_PER_BROKER),
    _effective_row(
        "sasl.login.refresh.window.factor",
        _DOUBLE,
        0.8,
        "Share of a credential's life after which it is refreshed.",
    ),
    _row("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, "Random part of that time.", update=_PER_BROKER),
    _effective_row("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "Longest wait between login attempts."),
    _effective_row("sasl.login.retry.backoff.ms", _LONG, 100, "First wait between login attempts."),
    _effective_row("sasl.mechanism.controller.protocol", _STRING, "GSSAPI", "SASL mechanism towards controllers."),
    _effective_row("sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI", "SASL mechanism between brokers."),
    _row(
        "sasl.oauthbearer.assertion.algorithm",
        _STRING,
        "RS256",
        "Algorithm that signs OAuth assertions.",
        choices=("es256", "rs256"),
        any_case=True,
    ),
    _row("sasl.oauthbearer.assertion.claim.aud", _STRING, None, "Audience of OAuth assertions."),
    _row(
        "sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300, "Life of OAuth assertions.", minimum=0, maximum=86400
    ),
    _row("sasl.oauthbearer.assertion.claim.iss", _STRING, None, "Issuer of OAuth assertions."),
    _row("sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False, "Give OAuth assertions an id."),
    _row(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        _INT,
        60,
        "How far back OAuth assertions are valid.",
        minimum=0,
        maximum=3600,
    ),
    _row("sasl.oauthbearer.assertion.claim.sub", _STRING, None, "Subject of OAuth assertions."),
    _row("sasl.oauthbearer.assertion.file", _STRING, None, "File with a ready OAuth assertion."),
    _row("sasl.oauthbearer.assertion.private.key.file", _STRING, None, "Key that signs OAuth assertions."),
    _row("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None, "Passphrase of that key."),
    _row("sasl.oauthbearer.assertion.template.file", _STRING, None, "File with static parts of OAuth assertions."),
    _effective_row("sasl.oauthbearer.client.credentials.client.id", _STRING, None, "OAuth client id."),
    _effective_row("sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None, "OAuth client secret."),
    _effective_row(
        "sasl.oauthbearer.clock.skew.seconds", _INT, 30, "Clock difference to the OAuth provider that is tolerated."
    ),
    _effective_row("sasl.oauthbearer.expected.audience", _LIST, (), "Audiences that tokens must be for."),
    _effective_row("sasl.oauthbearer.expected.issuer", _STRING, None, "Issuer that tokens must come from."),
    _effective_row(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000, "How often the provider's keys are fetched."
    ),
    _effective_row(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        10_000,
        "Longest wait between attempts to fetch them.",
    ),
    _effective_row(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100, "First wait between attempts to fetch them."
    ),
    _effective_row("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "URL of the provider's keys."),
    _row(
        "sasl.oauthbearer.jwt.retriever.class",
        _CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Java class that retrieves tokens.",
    ),
    _row(
        "sasl.oauthbearer.jwt.validator.class",
        _CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Java class that checks tokens.",
    ),
    _effective_row("sasl.oauthbearer.scope", _STRING, None, "OAuth scope that is requested."),
    _effective_row("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "Name of the scope claim."),
    _effective_row("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "Name of the subject claim."),
    _effective_row("sasl.oauthbearer.token.endpoint.url", _STRING, None, "URL from which tokens are requested."),
    _effective_row("sasl.server.callback.handler.class", _CLASS, None, "Java class for SASL server callbacks."),
    _effective_row("sasl.server.max.receive.size", _INT, 524_288, "Largest SASL message."),
    _row("security.providers", _STRING, None, "Java security providers."),
    _row("ssl.allow.dn.changes", _BOOLEAN, False, "Allow a new certificate to change its distinguished name."),
    _row("ssl.allow.san.changes", _BOOLEAN, False, "Allow a new certificate to drop alternative names."),
    _row("ssl.cipher.suites", _LIST, (), "TLS cipher suites.", update=_PER_BROKER),
    _effective_row(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients must present a certificate.",
        choices=("required", "requested", "none"),
    ),
    _effective_row("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "TLS versions."),
    _effective_row(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "How host names are checked against certificates.",
    ),
    _row("ssl.engine.factory.class", _CLASS, None, "Java class that creates TLS engines.", update=_PER_BROKER),
    _effective_row("ssl.key.password", _PASSWORD, None, "Password of the private key.", update=_PER_BROKER),
    _row("ssl.keymanager.algorithm", _STRING, "SunX509", "Java key manager algorithm.", update=_PER_BROKER),
    _effective_row("ssl.keystore.certificate.chain", _PASSWORD, None, "Certificate chain in PEM.", update=_PER_BROKER),
    _effective_row("ssl.keystore.key", _PASSWORD, None, "Private key in PEM.", update=_PER_BROKER),
    _effective_row("ssl.keystore.location", _STRING, None, "File of the key store.", update=_PER_BROKER),
    _effective_row("ssl.keystore.password", _PASSWORD, None, "Password of the key store.", update=_PER_BROKER),
    _effective_row("ssl.keystore.type", _STRING, "JKS", "Format of the key store.", update=_PER_BROKER),
    _effective_row("ssl.principal.mapping.rules", _STRING, "DEFAULT", "How certificate names become principals."),
    _row("ssl.protocol", _STRING, "TLSv1.3", "TLS version of the context.", update=_PER_BROKER),
    _row("ssl.provider", _STRING, None, "Java TLS provider.", update=_PER_BROKER),
    _row("ssl.secure.random.implementation", _STRING, None, "Java random number generator.", update=_PER_BROKER),
    _row("ssl.trustmanager.algorithm", _STRING, "PKIX", "Java trust manager algorithm.", update=_PER_BROKER),
    _effective_row("ssl.truststore.certificates", _PASSWORD, None, "Trusted certificates in PEM.", update=_PER_BROKER),
    _effective_row("ssl.truststore.location", _STRING, None, "File of the trust store.", update=_PER_BROKER),
    _effective_row("ssl.truststore.password", _PASSWORD, None, "Password of the trust store.", update=_PER_BROKER),
    _effective_row("ssl.truststore.type", _STRING, "JKS", "Format of the trust store.", update=_PER_BROKER),
)
