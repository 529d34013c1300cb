"""Apache Kafka with all security features that Rookery's client supports, and the client settings for it.

The settings have Kafka's keys, so that Java clients can use the same. Each listener tests one feature. The password of
`PLAIN` has characters that a JAAS text must escape. The mechanisms of SCRAM have different passwords, so that a login
with the wrong mechanism fails.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from bench.systems import ApacheKafka, free_ports
from rookery.base.values import value_class
from tests.conformance.brokers import JARS, SETTINGS
from tests.conformance.tokens import AUDIENCE, CLIENT_ID, CLIENT_SECRET, SCOPE, TokenEndpoint
from tests.support.certificates import Certificates, make_certificates
from tests.support.waiting import eventually

SSL, SASL_PLAINTEXT, SASL_SSL = "SSL", "SASL_PLAINTEXT", "SASL_SSL"
# This listener requires a client certificate; SSL only requests one.
MUTUAL = "MUTUAL"
# This listener has an address that its certificate does not contain.
MISNAMED = "MISNAMED"
# A login at this listener lasts SESSION_MS, and it has no SCRAM-SHA-256. Kafka rejects a second login within a second.
SHORT = "SHORT"
PROTOCOLS = {
    SSL: SSL,
    MUTUAL: SSL,
    MISNAMED: SSL,
    SASL_PLAINTEXT: SASL_PLAINTEXT,
    SASL_SSL: SASL_SSL,
    SHORT: SASL_SSL,
}
SESSION_MS = 2000

PLAIN, SCRAM_256, SCRAM_512, OAUTH = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512, OAUTH)
_SHORT_MECHANISMS = (PLAIN, SCRAM_512, OAUTH)
USER = "alice"
PASSWORDS = {PLAIN: 'a "quoted\\ word"; and=more ä', SCRAM_256: "secret-256", SCRAM_512: "secret-512"}

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    PLAIN: f"{_SECURITY}.plain.PlainLoginModule",
    SCRAM_256: f"{_SECURITY}.scram.ScramLoginModule",
    SCRAM_512: f"{_SECURITY}.scram.ScramLoginModule",
    OAUTH: f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_VALIDATOR = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
_TOKEN_LOGIN = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
# The system property with the URLs from which Java's clients and brokers may request tokens or keys.
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_ITERATIONS = 4096
_JVM_OPTIONS = ("-Xmx512M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

Settings = dict[str, str]


@value_class
class SecureKafka:
    """A running broker. `plain` is the address for the setup of tests."""

    plain: str
    addresses: Mapping[str, str]
    certificates: Certificates
    tokens: TokenEndpoint

    def settings(
        self, listener: str, mechanism: str = "", *, user: str = USER, password: str | None = None
    ) -> Settings:
        """Return the settings with which a client can connect, without the address; certificates are in PEM files."""
        protocol = PROTOCOLS[listener]
        found = {"security.protocol": protocol}
        if protocol != SASL_PLAINTEXT:
            found |= trusting(self.certificates.authority)
        if protocol != SSL:
            found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": _client_jaas(mechanism, user, password)}
        if listener == MUTUAL:
            found |= self._identity()
        if listener == MISNAMED:
            found["ssl.endpoint.identification.algorithm"] = ""
        if mechanism == OAUTH:
            found["sasl.login.callback.handler.class"] = _TOKEN_LOGIN
            found["sasl.oauthbearer.token.endpoint.url"] = self.tokens.url
        return found

    def _identity(self) -> Settings:
        """The settings of the client's certificate."""
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificates.client)}

    def add_user(self, name: str) -> None:
        """Add a user for SCRAM-SHA-512. The broker may learn of the user only a moment later."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        self._alter(UserScramCredentialUpsertion(name, info, PASSWORDS[SCRAM_512].encode()))

    def remove_user(self, name: str) -> None:
        self._alter(UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512))

    def _alter(self, alteration: UserScramCredentialAlteration) -> None:
        admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})
        for done in admin.alter_user_scram_credentials([alteration]).values():
            done.result()


def trusting(path: Path) -> Settings:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}


def _client_jaas(mechanism: str, user: str, password: str | None) -> str:
    if mechanism == OAUTH:
        secret = password or CLIENT_SECRET
        return _jaas(mechanism, {"clientId": CLIENT_ID, "clientSecret": secret, "scope": SCOPE})
    return _jaas(mechanism, {"username": user, "password": password or PASSWORDS[mechanism]})


@contextmanager
def start_secure(directory: Path) -> Iterator[SecureKafka]:
    certificates = make_certificates(directory)
    ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    addresses = {name: f"{'127.0.0.2' if name == MISNAMED else 'localhost'}:{port}" for name, port in ports.items()}
    with TokenEndpoint(directory) as tokens:
        keys_url = tokens.keys_path.as_uri()
        kafka = ApacheKafka(
            JARS,
            listeners=[f"{name}://{address}" for name, address in addresses.items()],
            jvm_options=[*_JVM_OPTIONS, f"-D{ALLOWED_URLS}={keys_url}"],
            format_options=[
                f"--add-scram={mechanism}=[name={USER},password={PASSWORDS[mechanism]}]"
                for mechanism in (SCRAM_256, SCRAM_512)
            ],
        )
        broker = kafka.start(directory / "kafka", {**SETTINGS, **_broker_settings(certificates, keys_url)})
        try:
            # The listeners open one after the other.
            eventually(lambda: all(map(_is_open, addresses.values())), "open listeners")
            yield SecureKafka(broker.bootstrap, addresses, certificates, tokens)
        finally:
            broker.stop()


def _is_open(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


def _broker_settings(certificates: Certificates, keys_url: str) -> Settings:
    protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **PROTOCOLS}
    settings = {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        **trusting(certificates.authority),
        f"listener.name.{SSL.lower()}.ssl.client.auth": "requested",
        f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
        f"listener.name.{SHORT.lower()}.connections.max.reauth.ms": str(SESSION_MS),
        f"listener.name.{SHORT.lower()}.sasl.enabled.mechanisms": ",".join(_SHORT_MECHANISMS),
    }
    for name, protocol in PROTOCOLS.items():
        if protocol != SSL:
            for mechanism in MECHANISMS:
                of_mechanism = _mechanism_settings(mechanism, keys_url)
                prefix = f"listener.name.{name}.{mechanism}.".lower()
                settings |= {prefix + key: _escaped(value) for key, value in of_mechanism.items()}
    return settings


def _mechanism_settings(mechanism: str, keys_url: str) -> Settings:
    if mechanism == OAUTH:
        return {
            "sasl.jaas.config": _jaas(mechanism, {}),
            "sasl.server.callback.handler.class": _VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
    users = {f"user_{USER}": PASSWORDS[mechanism]} if mechanism == PLAIN else {}
    return {"sasl.jaas.config": _jaas(mechanism, users)}


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    quoted = (f' {key}="{_backslashed(value)}"' for key, value in options.items())
    return f"{_MODULES[mechanism]} required{''.join(quoted)};"


def _backslashed(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file, which is in ASCII."""
    backslashed = value.replace("\\", "\\\\")
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in backslashed)
