"""Logins with tickets of a real Kerberos KDC: Java's tools, Python clients and our own; also between nodes."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiokafka
import kafka
import pytest

from rookery.base.codes import AclOperation, AclPermission, AclResourceType
from rookery.base.errors import ApiError, ErrorCode, StartupError
from rookery.client import NewTopic, sync
from rookery.client.errors import AuthenticationError
from rookery.security.acls import AclBinding, ResourcePattern
from rookery.testing import EmbeddedBroker, EmbeddedCluster
from tests.conformance.java_tools import run_tool
from tests.conformance.kerberos import (
    PASSWORD,
    PROTOCOLS,
    REJECTED,
    SESSION_MS,
    SHORT,
    Broker,
    cache_jaas,
    keytab_jaas,
    keytab_of,
    rejection,
    round_trip,
    start_realm,
    start_rookery,
    topics,
)
from tests.support.certificates import Certificates, make_certificates
from tests.support.kerberos import Realm
from tests.support.secured import tls_settings
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kerberos, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with start_realm(tmp_path_factory.mktemp("realm")) as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(realm: Realm, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_rookery(realm, certificates, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def tickets(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Log alice in with kinit, into the ticket cache that programs use by default."""
    cache = broker.realm.kinit("alice", PASSWORD, "alice.cache")
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    return cache


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


def test_a_kdc_that_does_not_answer(broker: Broker, topic: str) -> None:
    """A client with a ticket goes on. To one without, it is as if the broker did not answer: it tries again."""
    realm = broker.realm
    # Another file: the tickets by the usual one are in the memory of this process.
    late = broker.settings("SASL_PLAINTEXT", keytab_jaas("ops/admin", realm.export("ops/admin", "late.keytab")))
    holder = broker.settings("SASL_PLAINTEXT", cache_jaas(realm.kinit("alice", PASSWORD, "holder.cache")))
    topics(holder)
    realm.stop()
    try:
        topics(holder)
        with pytest.raises(ApiError, match="Cannot contact any KDC") as caught:
            topics(late)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
        with sync.Producer[bytes, bytes](late) as producer, ThreadPoolExecutor(1) as others:
            sent = others.submit(lambda: producer.send(topic, b"value").result(60))
            with pytest.raises(TimeoutError):
                sent.result(1)
            realm.start()
            assert sent.result(60).offset == 0
    finally:
        realm.stop()
        realm.start()


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
        return reason in broker.log()

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


def test_a_keytab_outlives_its_tickets(broker: Broker) -> None:
    """The client gets another ticket when the first one has ended."""
    realm = broker.realm
    config = broker.settings("SASL_PLAINTEXT", keytab_jaas("dave", realm.keytab("dave", "-maxlife", "3s")))
    for _ in range(3):
        topics({**config, "client.id": "dave"})
        time.sleep(3)


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
