"""The keys of TLS, SASL and other security that Kafka 4's clients share. This client speaks plain text only so far.

They are known, so that a mistake in a name is told from what is missing, and refused, so that nobody believes to be
encrypted or authenticated who is not.
"""

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue
from rookery.client.settings.parsing import refused_row

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_DOUBLE = ConfigType.DOUBLE
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_PASSWORD = ConfigType.PASSWORD
_SHORT = ConfigType.SHORT
_STRING = ConfigType.STRING

_REASON = "this client has neither TLS nor SASL so far; leave the key out and connect to a PLAINTEXT listener"


def _row(name: str, kind: ConfigType, default: ConfigValue, doc: str) -> ConfigKey:
    return refused_row(name, kind, default, doc=doc, reason=_REASON)


_JAVA_OAUTH = "org.apache.kafka.common.security.oauthbearer"

_SASL_ROWS = (
    _row("sasl.client.callback.handler.class", _CLASS, None, "Java class that answers the mechanism's questions."),
    _row("sasl.jaas.config", _PASSWORD, None, "Login module and its options, with user and password."),
    _row("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", "Program that renews a Kerberos ticket."),
    _row("sasl.kerberos.min.time.before.relogin", _LONG, 60_000, "Shortest time between two Kerberos logins."),
    _row("sasl.kerberos.service.name", _STRING, None, "Kerberos principal that the brokers run as."),
    _row("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, "Random part of the time of a ticket's renewal."),
    _row("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8, "Part of a ticket's life after which to renew."),
    _row("sasl.login.callback.handler.class", _CLASS, None, "Java class that answers the login's questions."),
    _row("sasl.login.class", _CLASS, None, "Java class that logs in."),
    _row("sasl.login.connect.timeout.ms", _INT, None, "Time for connecting to the identity provider."),
    _row("sasl.login.read.timeout.ms", _INT, None, "Time for an answer of the identity provider."),
    _row("sasl.login.refresh.buffer.seconds", _SHORT, 300, "Time before expiry in which no refresh starts."),
    _row("sasl.login.refresh.min.period.seconds", _SHORT, 60, "Shortest time between two refreshes of a login."),
    _row("sasl.login.refresh.window.factor", _DOUBLE, 0.8, "Part of a login's life after which to refresh."),
    _row("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, "Random part of the time of a refresh."),
    _row("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "Longest wait between two tries to log in."),
    _row("sasl.login.retry.backoff.ms", _LONG, 100, "First wait between two tries to log in."),
    _row("sasl.mechanism", _STRING, "GSSAPI", "SASL mechanism."),
)
_OAUTH_ROWS = (
    _row("sasl.oauthbearer.assertion.algorithm", _STRING, "RS256", "Algorithm that signs the assertion."),
    _row("sasl.oauthbearer.assertion.claim.aud", _STRING, None, "Audience claim of the assertion."),
    _row("sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300, "Life of an assertion."),
    _row("sasl.oauthbearer.assertion.claim.iss", _STRING, None, "Issuer claim of the assertion."),
    _row("sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False, "Give each assertion an id."),
    _row("sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60, "How far back an assertion starts to be valid."),
    _row("sasl.oauthbearer.assertion.claim.sub", _STRING, None, "Subject claim of the assertion."),
    _row("sasl.oauthbearer.assertion.file", _STRING, None, "File with a ready assertion."),
    _row("sasl.oauthbearer.assertion.private.key.file", _STRING, None, "File with the key that signs assertions."),
    _row("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None, "Passphrase of that key."),
    _row("sasl.oauthbearer.assertion.template.file", _STRING, None, "File with further claims of assertions."),
    _row("sasl.oauthbearer.client.credentials.client.id", _STRING, None, "Client id for the identity provider."),
    _row("sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None, "Its secret."),
    _row("sasl.oauthbearer.clock.skew.seconds", _INT, 30, "Difference of clocks that is tolerated."),
    _row("sasl.oauthbearer.expected.audience", _LIST, (), "Audiences that a token may have."),
    _row("sasl.oauthbearer.expected.issuer", _STRING, None, "Issuer that a token must have."),
    _row("sasl.oauthbearer.header.urlencode", _BOOLEAN, False, "Encode client id and secret for the header."),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000, "How often the keys of tokens are read."),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _LONG, 10_000, "Longest wait for those keys."),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, 100, "First wait for those keys."),
    _row("sasl.oauthbearer.jwks.endpoint.url", _STRING, None, "Where the keys of tokens are."),
    _row(
        "sasl.oauthbearer.jwt.retriever.class", _CLASS, f"{_JAVA_OAUTH}.DefaultJwtRetriever", "Java class for tokens."
    ),
    _row(
        "sasl.oauthbearer.jwt.validator.class",
        _CLASS,
        f"{_JAVA_OAUTH}.DefaultJwtValidator",
        "Java class that checks tokens.",
    ),
    _row("sasl.oauthbearer.scope", _STRING, None, "Scope to ask for."),
    _row("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "Claim that holds the scope."),
    _row("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "Claim that holds the subject."),
    _row("sasl.oauthbearer.token.endpoint.url", _STRING, None, "Where tokens come from."),
)
_SSL_ROWS = (
    _row("ssl.cipher.suites", _LIST, (), "Cipher suites to offer."),
    _row("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS to offer."),
    _row("ssl.endpoint.identification.algorithm", _STRING, "https", "How a broker's name is checked."),
    _row("ssl.engine.factory.class", _CLASS, None, "Java class that makes TLS engines."),
    _row("ssl.key.password", _PASSWORD, None, "Password of the client's key."),
    _row("ssl.keymanager.algorithm", _STRING, "SunX509", "Java's algorithm for keys."),
    _row("ssl.keystore.certificate.chain", _PASSWORD, None, "The client's certificates, PEM."),
    _row("ssl.keystore.key", _PASSWORD, None, "The client's key, PEM."),
    _row("ssl.keystore.location", _STRING, None, "File with the client's key."),
    _row("ssl.keystore.password", _PASSWORD, None, "Password of that file."),
    _row("ssl.keystore.type", _STRING, "JKS", "Format of that file."),
    _row("ssl.protocol", _STRING, "TLSv1.3", "Version of TLS."),
    _row("ssl.provider", _STRING, None, "Java's provider of TLS."),
    _row("ssl.secure.random.implementation", _STRING, None, "Java's source of randomness for TLS."),
    _row("ssl.trustmanager.algorithm", _STRING, "PKIX", "Java's algorithm for trust."),
    _row("ssl.truststore.certificates", _PASSWORD, None, "Trusted certificates, PEM."),
    _row("ssl.truststore.location", _STRING, None, "File with trusted certificates."),
    _row("ssl.truststore.password", _PASSWORD, None, "Password of that file."),
    _row("ssl.truststore.type", _STRING, "JKS", "Format of that file."),
)

SECURITY_ROWS: tuple[ConfigKey, ...] = (
    *_SASL_ROWS,
    *_OAUTH_ROWS,
    *_SSL_ROWS,
    _row("security.protocol", _STRING, "PLAINTEXT", "How to talk to brokers: PLAINTEXT, in any case of letters."),
    _row("security.providers", _STRING, None, "Java classes that provide security algorithms."),
)
