"""A Kerberos realm, and brokers that log its users in: Rookery, and Apache Kafka with the same settings."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.systems import ApacheKafka, free_ports
from rookery.client import sync
from rookery.client.errors import AuthenticationError
from rookery.security.sasl import Exchange, gssapi
from rookery.security.settings import KerberosLogin
from rookery.security.system_gss import initiate
from tests.conformance.brokers import JARS
from tests.support.broker import start_node
from tests.support.certificates import Certificates
from tests.support.kerberos import Realm
from tests.support.secured import tls_settings

PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
# Listeners whose sessions end: after SESSION_MS, and after an hour, which is longer than the tickets of the tests.
SHORT, HOUR = "SHORT", "HOUR"
SESSION_MS = 2000
HOUR_MS = 3_600_000
TICKET_S = 60
# The tolerance for clocks, in the realm's configuration.
SKEW_S = 1
_PROTOCOL_MAP = {name: name for name in PROTOCOLS} | {SHORT: "SASL_PLAINTEXT", HOUR: "SASL_PLAINTEXT"}
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PASSWORD = "secret"
REJECTED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
# `alice` is a user by the default rule, `ops/admin` by one of its own, and no rule fits `other/localhost`.
RULES = r"RULE:[2:$1;$2](^ops;admin$)s/;.*$//U,RULE:[1:$1],RULE:[2:$1@$0](kafka@.*)s/@.*//"


def keytab_jaas(principal: str, keytab: Path) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


def cache_jaas(cache: Path) -> str:
    return f'{MODULE} required useTicketCache=true doNotPrompt=true ticketCache="{cache}";'


def keytab_of(realm: Realm, principal: str) -> str:
    return keytab_jaas(principal, realm.directory / f"{principal.replace('/', '-')}.keytab")


@contextmanager
def start_realm(directory: Path) -> Iterator[Realm]:
    """Run a realm with the service `kafka/localhost` and some users, and point this process and its children to it."""
    with Realm(directory) as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
        for principal in ("kafka/localhost", "ops/admin", "other/localhost"):
            realm.keytab(principal)
        for user in ("alice", "bob"):
            realm.add(user, PASSWORD)
            realm.export(user, f"{user}.keytab")
        yield realm


class Broker:
    """A broker with a listener for each protocol, and for sessions that end."""

    def __init__(self, realm: Realm, certificates: Certificates) -> None:
        self.realm = realm
        self.authority = certificates.authority
        self._ports = dict(zip(_PROTOCOL_MAP, free_ports(len(_PROTOCOL_MAP)), strict=True))
        # How to read the broker's log, if it runs in a process of its own.
        self.log: Callable[[], str] = lambda: ""

    def address(self, listener: str) -> str:
        return f"localhost:{self._ports[listener]}"

    @property
    def listeners(self) -> list[str]:
        return [f"{name}://{self.address(name)}" for name in self._ports]

    def settings(self, listener: str, jaas: str) -> dict[str, str]:
        """Return the settings of our client, which are those of Java's."""
        found = {
            "bootstrap.servers": self.address(listener),
            "security.protocol": "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas,
        }
        if listener == "SASL_SSL":
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        return found

    def python_settings(self, listener: str) -> dict[str, Any]:
        """Return the keyword arguments of aiokafka and kafka-python, which use the ticket cache of the user."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.address(listener),
            "security_protocol": listener,
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
            "sasl_kerberos_domain_name": "localhost",
        }
        if listener == "SASL_SSL":
            found["ssl_context"] = ssl.create_default_context(cafile=self.authority)
        return found

    def tool_settings(self, path: Path, listener: str, jaas: str) -> str:
        """Write a file with the settings of Java's tools; returns its path."""
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings(listener, jaas).items()))
        return str(path)


@contextmanager
def start_rookery(realm: Realm, certificates: Certificates, directory: Path) -> Iterator[Broker]:
    """Run a broker with an authorizer, as a user does."""
    broker = Broker(realm, certificates)
    settings = {
        **_settings(broker, certificates),
        "listeners": ",".join(broker.listeners),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:OPS",
        "log.dirs": str(directory / "data"),
    }
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with start_node(config) as process:
        broker.log = process.log
        yield broker


@contextmanager
def start_kafka(realm: Realm, certificates: Certificates, directory: Path) -> Iterator[Broker]:
    """Run Apache Kafka, without an authorizer."""
    broker = Broker(realm, certificates)
    running = ApacheKafka(JARS, listeners=broker.listeners).start(directory, _settings(broker, certificates))
    try:
        yield broker
    finally:
        running.stop()


def _settings(broker: Broker, certificates: Certificates) -> dict[str, str]:
    login = keytab_jaas("kafka/localhost", broker.realm.directory / "kafka-localhost.keytab")
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_PROTOCOL_MAP}
    return {
        **tls_settings(certificates),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": login for name in _PROTOCOL_MAP},
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.hour.gssapi.connections.max.reauth.ms": str(HOUR_MS),
    }


def login_of(keytab: Path | None = None, principal: str | None = None, cache: Path | None = None) -> Exchange:
    """Begin an exchange of our client with the service."""
    login = KerberosLogin(
        service_name="kafka",
        principal=principal,
        keytab=None if keytab is None else str(keytab),
        ticket_cache=None if cache is None else str(cache),
    )
    return gssapi(initiate(login, "localhost"))


def topics(config: dict[str, str]) -> list[str]:
    with sync.Admin(config) as admin:
        return [found.name for found in admin.list_topics()]


def rejection(config: dict[str, str]) -> str:
    with pytest.raises(AuthenticationError) as caught:
        topics(config)
    return str(caught.value)


def round_trip(config: dict[str, str], topic: str) -> bytes | None:
    with sync.Producer[bytes, bytes](config) as producer:
        producer.send(topic, b"value").result(30)
    with sync.Consumer[bytes, bytes]({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while not (records := consumer.poll(1)):
            pass
        return next(iter(records)).value
