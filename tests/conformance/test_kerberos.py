"""Logins with tickets of a real Kerberos KDC: Java's tools, Python clients and our own; also between nodes."""

import asyncio
import random
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType
from rookery.base.errors import ApiError, ErrorCode, StartupError
from rookery.client import NewTopic, sync
from rookery.client.errors import AuthenticationError
from rookery.security.acls import AclBinding, ResourcePattern
from rookery.security.sasl import Exchange, gssapi
from rookery.security.settings import KerberosLogin
from rookery.security.system_gss import initiate
from rookery.testing import EmbeddedBroker, EmbeddedCluster
from tests.conformance.java_tools import run_tool
from tests.conformance.raw_login import RawLogin
from tests.support.broker import BrokerProcess, free_port, start_node
from tests.support.certificates import Certificates, make_certificates
from tests.support.kerberos import Realm
from tests.support.secured import tls_settings
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kerberos, pytest.mark.timeout(300)]

PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
# Listeners whose sessions end: after SESSION_MS, and after an hour, which is longer than the tickets of the tests.
SHORT, HOUR = "SHORT", "HOUR"
SESSION_MS = 2000
HOUR_MS = 3_600_000
TICKET_S = 60
# The tolerance for clocks, in the realm's configuration.
SKEW_S = 1
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PASSWORD = "secret"
REJECTED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
# `alice` is a user by the default rule, `ops/admin` by one of its own, and no rule fits `other/localhost`.
RULES = r"RULE:[2:$1;$2](^ops;admin$)s/;.*$//U,RULE:[1:$1],RULE:[2:$1@$0](kafka@.*)s/@.*//"


def keytab_jaas(principal: str, keytab: Path) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


def cache_jaas(cache: Path) -> str:
    return f'{MODULE} required useTicketCache=true doNotPrompt=true ticketCache="{cache}";'


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    directory = tmp_path_factory.mktemp("realm")
    with Realm(directory) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={running.config}")
        running.keytab("kafka/localhost")
        running.keytab("ops/admin")
        running.keytab("other/localhost")
        for user in ("alice", "bob"):
            running.add(user, PASSWORD)
            running.export(user, f"{user}.keytab")
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Broker:
    """A broker with an authorizer and a listener for each protocol, and for sessions that end."""

    def __init__(self, realm: Realm, certificates: Certificates, process: BrokerProcess, ports: dict[str, int]) -> None:
        self.realm = realm
        self.process = process
        self.authority = certificates.authority
        self._ports = ports

    def address(self, listener: str) -> str:
        return f"localhost:{self._ports[listener]}"

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


@pytest.fixture(scope="module")
def broker(realm: Realm, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("broker")
    ports = {name: free_port() for name in (*PROTOCOLS, SHORT, HOUR)}
    login = keytab_jaas("kafka/localhost", realm.directory / "kafka-localhost.keytab")
    settings = {
        **tls_settings(certificates),
        "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SHORT:SASL_PLAINTEXT,"
        "HOUR:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES.replace("\\", "\\\\"),
        **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": login for name in ports},
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.hour.gssapi.connections.max.reauth.ms": str(HOUR_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:OPS",
        "log.dirs": str(directory / "data"),
    }
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with start_node(config) as process:
        yield Broker(realm, certificates, process, ports)


def keytab_of(realm: Realm, principal: str) -> str:
    return keytab_jaas(principal, realm.directory / f"{principal.replace('/', '-')}.keytab")


@pytest.fixture
def tickets(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Log alice in with kinit, into the ticket cache that programs use by default."""
    cache = broker.realm.kinit("alice", PASSWORD, "alice.cache")
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    return cache


def round_trip(config: dict[str, str], topic: str) -> bytes | None:
    with sync.Producer[bytes, bytes](config) as producer:
        producer.send(topic, b"value").result(30)
    with sync.Consumer[bytes, bytes]({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while not (records := consumer.poll(1)):
            pass
        return next(iter(records)).value


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


@pytest.mark.java
@pytest.mark.parametrize("listener", PROTOCOLS)
def test_javas_tools_log_in(broker: Broker, tickets: Path, tmp_path: Path, listener: str, topic: str) -> None:
    """The administrator and the producer have a ticket by kinit, the consumer a keytab."""
    server = ("--bootstrap-server", broker.address(listener))
    by_ticket = broker.tool_settings(tmp_path / "ticket", listener, cache_jaas(tickets))
    by_keytab = broker.tool_settings(tmp_path / "keytab", listener, keytab_of(broker.realm, "ops/admin"))
    run_tool("topics", *server, "--command-config", by_ticket, "--create", "--topic", topic, "--partitions", "1")
    assert topic in run_tool("topics", *server, "--command-config", by_keytab, "--list")
    run_tool("console-producer", *server, "--topic", topic, "--command-config", by_ticket, text="one\ntwo\n")
    reading = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    found = run_tool("console-consumer", *server, "--topic", topic, "--command-config", by_keytab, *reading)
    assert found.startswith("one\ntwo\n")


@pytest.mark.java
def test_java_logs_in_again(broker: Broker, tmp_path: Path, topic: str) -> None:
    """The producer runs longer than two sessions."""
    settings = broker.tool_settings(tmp_path / "keytab", SHORT, keytab_of(broker.realm, "alice"))
    server = ("--bootstrap-server", broker.address(SHORT), "--command-config", settings)
    done = run_tool(
        *("producer-perf-test", "--topic", topic, *server),
        *("--num-records", "300", "--throughput", "60", "--record-size", "10"),
    )
    assert "300 records sent" in done


@pytest.mark.java
def test_javas_tools_without_a_user_are_rejected(broker: Broker, tmp_path: Path) -> None:
    settings = broker.tool_settings(tmp_path / "keytab", "SASL_PLAINTEXT", keytab_of(broker.realm, "other/localhost"))
    server = ("--bootstrap-server", broker.address("SASL_PLAINTEXT"), "--command-config", settings)
    refused = run_tool("topics", *server, "--list", fails=True)
    assert (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI" in refused
    )


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_aiokafka_logs_in(broker: Broker, tickets: Path, listener: str, topic: str) -> None:
    common = broker.python_settings(listener)

    async def main() -> bytes:
        async with aiokafka.AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait(topic, b"value")
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **common) as consumer:
            found: bytes = (await consumer.getone()).value
            return found

    assert asyncio.run(main()) == b"value"


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_kafka_python_logs_in(broker: Broker, tickets: Path, listener: str, topic: str) -> None:
    common = broker.python_settings(listener)
    producer = kafka.KafkaProducer(**common)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, group_id=None, auto_offset_reset="earliest", **common)
    assert next(iter(consumer)).value == b"value"
    consumer.close()


@pytest.mark.kcat
@pytest.mark.parametrize("listener", PROTOCOLS)
def test_kcat_logs_in(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: str, topic: str
) -> None:
    """librdkafka runs kinit with the keytab, and Cyrus SASL uses its ticket."""
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "tickets"))
    settings = {
        "security.protocol": listener,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "alice",
        "sasl.kerberos.keytab": str(broker.realm.directory / "alice.keytab"),
    }
    if listener == "SASL_SSL":
        settings["ssl.ca.location"] = str(broker.authority)
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    command = ["kcat", "-b", broker.address(listener), *options, "-t", topic]
    subprocess.run([*command, "-P"], input=b"value\n", timeout=60, check=True)
    found = subprocess.run([*command, "-C", "-o", "beginning", "-c", "1"], capture_output=True, timeout=60, check=True)
    assert found.stdout == b"value\n"


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("source", ["cache", "keytab", "default"])
def test_our_client_logs_in(broker: Broker, tickets: Path, listener: str, source: str, topic: str) -> None:
    jaas = {"cache": cache_jaas(tickets), "keytab": keytab_of(broker.realm, "alice"), "default": ""}[source]
    config = broker.settings(listener, jaas)
    if source == "default":
        del config["sasl.jaas.config"]
    assert round_trip(config, topic) == b"value"


def test_rules_and_acls_decide(broker: Broker, topic: str) -> None:
    """`ops/admin` is the super user OPS; bob may do what an ACL for User:bob allows."""
    operator = broker.settings("SASL_SSL", keytab_of(broker.realm, "ops/admin"))
    bob = broker.settings("SASL_SSL", keytab_of(broker.realm, "bob"))
    with sync.Admin(operator) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])[0].check()
        assert topic not in topics(bob)
        with pytest.raises(ApiError) as refused, sync.Producer[bytes, bytes](bob) as producer:
            producer.send(topic, b"value").result(30)
        assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        pattern = ResourcePattern(AclResourceType.TOPIC, topic)
        allowed = AclBinding(pattern, "User:bob", "*", AclOperation.WRITE, AclPermission.ALLOW)
        admin.create_acls([allowed])[0].check()
    eventually(lambda: topic in topics(bob), "bob's rights")
    with sync.Producer[bytes, bytes](bob) as producer:
        producer.send(topic, b"value").result(30)


def test_a_client_without_a_ticket(broker: Broker, tmp_path: Path) -> None:
    refused = rejection(broker.settings("SASL_PLAINTEXT", cache_jaas(tmp_path / "none")))
    assert "No credentials cache found" in refused
    assert "sasl.kerberos.service.name" in refused


def test_a_client_with_a_wrong_keytab(broker: Broker) -> None:
    """The file has keys of another user, or keys that were replaced."""
    realm = broker.realm
    jaas = keytab_jaas("alice", realm.directory / "bob.keytab")
    assert "cannot log in at localhost" in rejection(broker.settings("SASL_PLAINTEXT", jaas))
    old = realm.keytab("carol")
    realm.change_key("carol")
    assert "cannot log in at localhost" in rejection(broker.settings("SASL_PLAINTEXT", keytab_jaas("carol", old)))


def test_a_ticket_for_another_service(broker: Broker) -> None:
    """The broker has no key for it, and does not tell what is wrong."""
    config = broker.settings("SASL_PLAINTEXT", keytab_of(broker.realm, "alice"))
    refused = rejection({**config, "sasl.kerberos.service.name": "other"})
    assert REJECTED in refused
    assert "other" not in refused


def test_an_unknown_service(broker: Broker) -> None:
    config = broker.settings("SASL_PLAINTEXT", keytab_of(broker.realm, "alice"))
    refused = rejection({**config, "sasl.kerberos.service.name": "missing"})
    assert "missing/localhost@ROOKERY.TEST not found in Kerberos database" in refused


def test_a_user_without_a_rule(broker: Broker) -> None:
    """The client gets the text of all failures; the reason is in the log, which has one line per second at most."""
    config = broker.settings("SASL_PLAINTEXT", keytab_of(broker.realm, "other/localhost"))
    reason = "no rule of sasl.kerberos.principal.to.local.rules applies to 'other/localhost@ROOKERY.TEST'"

    def is_logged() -> bool:
        assert REJECTED in rejection(config)
        return reason in broker.process.log()

    eventually(is_logged, "the reason in the log")


def test_an_expired_ticket(broker: Broker) -> None:
    cache = broker.realm.kinit("alice", PASSWORD, "short.cache", "-l", "3s")
    config = broker.settings("SASL_PLAINTEXT", cache_jaas(cache))

    def is_over() -> bool:
        try:
            topics(config)
        except AuthenticationError as error:
            return "expired" in str(error)
        return False

    eventually(is_over, "the end of the ticket")


def test_a_token_of_an_expired_ticket(broker: Broker) -> None:
    """It was valid when the client made it."""
    cache = broker.realm.kinit("alice", PASSWORD, "expired.cache", "-l", "8s")
    token = next(login_of(cache=cache))
    time.sleep(8 + SKEW_S + 1)
    with RawLogin(broker.address(SHORT), "GSSAPI") as raw:
        found = raw.authenticate(token)
        assert (found.error_code, found.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REJECTED)
        assert raw.is_closed()


@pytest.mark.parametrize("message", [b"", b"x", b"\x60\x82\x01\x00", bytes(1000)])
def test_tokens_that_are_none(broker: Broker, message: bytes) -> None:
    with RawLogin(broker.address("SASL_PLAINTEXT"), "GSSAPI") as raw:
        found = raw.authenticate(message)
        assert (found.error_code, found.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REJECTED)
        assert raw.is_closed()


def test_changed_tokens(broker: Broker) -> None:
    """One byte of the client's first token is another one."""
    alice = broker.realm.directory / "alice.keytab"
    size = len(next(login_of(alice, "alice")))
    for position in random.Random(1).sample(range(size), 40):
        token = bytearray(next(login_of(alice, "alice")))
        token[position % len(token)] ^= 0x55
        with RawLogin(broker.address("SASL_PLAINTEXT"), "GSSAPI") as raw:
            exchange = raw.authenticate(bytes(token))
            if exchange.error_code == ErrorCode.NONE:
                # The byte means nothing to the service, but the last message needs the key of the ticket.
                raw.authenticate(b"")
                exchange = raw.authenticate(b"\x01\0\0\0")
            assert exchange.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_bare_tokens(broker: Broker) -> None:
    """Clients before Kafka 1.0 send tokens without headers, and the last one has no answer."""
    exchange = login_of(broker.realm.directory / "alice.keytab", "alice")
    with RawLogin(broker.address("SASL_PLAINTEXT"), "GSSAPI", version=0) as raw:
        offer = raw.exchange_token(exchange.send(raw.exchange_token(next(exchange))))
        raw.send_token(exchange.send(offer))
        assert isinstance(raw.topics(), list)


@pytest.mark.parametrize(
    ("listener", "longest_ms"),
    [("SASL_PLAINTEXT", 0), (SHORT, SESSION_MS), (HOUR, (TICKET_S + SKEW_S) * 1000)],
)
def test_a_session_with_a_limit_ends_with_its_ticket(broker: Broker, listener: str, longest_ms: int) -> None:
    cache = broker.realm.kinit("alice", PASSWORD, "limited.cache", "-l", f"{TICKET_S}s")
    exchange = login_of(cache=cache)
    with RawLogin(broker.address(listener), "GSSAPI") as raw:
        message = next(exchange)
        for _ in range(2):
            message = exchange.send(raw.authenticate(message).auth_bytes)
        found = raw.authenticate(message)
        assert found.error_code == ErrorCode.NONE
        assert found.session_lifetime_ms <= longest_ms
        assert (found.session_lifetime_ms > 0) == (longest_ms > 0)


def test_our_client_logs_in_again(broker: Broker, topic: str) -> None:
    config = broker.settings(SHORT, keytab_of(broker.realm, "alice"))
    with sync.Producer[bytes, bytes](config) as producer:
        producer.send(topic, b"0").result(30)
        made = connections_made(producer)
        end_s = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < end_s:
            producer.send(topic, b"1").result(30)
        assert connections_made(producer) == made


def connections_made(producer: sync.Producer[bytes, bytes]) -> float:
    return sum(value for name, value in producer.metrics().items() if name.name == "connection-creation-total")


def test_a_new_key_of_the_service(broker: Broker) -> None:
    """The keytab has both keys: tickets with the old and with the new one are accepted without a restart."""
    realm = broker.realm
    cache = realm.kinit("alice", PASSWORD, "before.cache")
    before = broker.settings("SASL_PLAINTEXT", cache_jaas(cache))
    topics(before)
    realm.change_key("kafka/localhost", realm.directory / "kafka-localhost.keytab")
    topics(before)
    after = realm.kinit("alice", PASSWORD, "after.cache")
    topics(broker.settings("SASL_PLAINTEXT", cache_jaas(after)))


@pytest.mark.parametrize(
    ("keytab", "reason"),
    [("missing.keytab", "missing.keytab' not found"), ("alice.keytab", "No key table entry found for kafka/localhost")],
)
def test_a_broker_without_its_key_does_not_start(realm: Realm, keytab: str, reason: str) -> None:
    login = keytab_jaas("kafka/localhost", realm.directory / keytab)
    settings = {"sasl.enabled.mechanisms": "GSSAPI", "sasl.jaas.config": login}
    broken = EmbeddedBroker(settings=settings, security_protocol="SASL_PLAINTEXT")
    with pytest.raises(StartupError, match=r"sasl\.jaas\.config: the keytab .* cannot be used for kafka") as caught:
        broken.start()
    assert reason in str(caught.value)


def test_a_cluster_that_logs_in_with_kerberos_inside(realm: Realm, certificates: Certificates) -> None:
    """Brokers and controllers log in at each other with the keys that they serve with."""
    login = keytab_jaas("kafka/127.0.0.1", realm.keytab("kafka/127.0.0.1"))
    nodes = {
        **tls_settings(certificates),
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": login,
    }
    clients = {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": keytab_of(realm, "alice"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }
    with EmbeddedCluster(3, settings=nodes, security_protocol="SASL_SSL", client_settings=clients) as cluster:
        cluster.create_topic("t", partitions=1, replicas=3)
        cluster.produce("t", "before")
        cluster.in_sync_replicas("t", at_least=3)
        active = cluster.controller()
        cluster.kill(active)
        assert cluster.controller(other_than=active) != active
        cluster.leader_of("t", other_than=active)
        cluster.produce("t", "after")
        cluster.start(active)
        cluster.in_sync_replicas("t", at_least=3)
        assert [record.value for record in cluster.records("t", count=2)] == [b"before", b"after"]
