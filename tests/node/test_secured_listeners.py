"""A broker with TLS and SASL on its listeners: foreign clients log in, wrong ones do not, and errors say why."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import aiokafka
import confluent_kafka
import kafka
import pytest

from rookery.base.errors import ConfigError, RookeryError, StartupError
from rookery.client import sync
from rookery.client.errors import AuthenticationError
from rookery.node.settings import Settings
from rookery.testing import EmbeddedBroker
from tests.support.certificates import Certificates, make_certificates
from tests.support.secured import (
    SECRET,
    USER,
    client_settings,
    confluent_settings,
    plain_settings,
    python_settings,
    tls_settings,
)

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
VALUE = b"x" * 300_000
RoundTrip: TypeAlias = Callable[[str, str, Certificates], bytes | None]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def start(protocol: str, certificates: Certificates, **more: str) -> EmbeddedBroker:
    settings = {**tls_settings(certificates), **plain_settings(protocol, {USER: SECRET}), **more}
    return EmbeddedBroker(
        settings=settings, security_protocol=protocol, client_settings=client_settings(protocol, certificates)
    )


@pytest.fixture(scope="module", params=PROTOCOLS)
def broker(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[tuple[str, str]]:
    with start(request.param, certificates) as running:
        yield request.param, running.bootstrap_servers


def with_confluent(protocol: str, address: str, certificates: Certificates) -> bytes | None:
    common = {"bootstrap.servers": address, **confluent_settings(protocol, certificates)}
    producer = confluent_kafka.Producer(common)
    producer.produce("confluent", VALUE)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def with_kafka_python(protocol: str, address: str, certificates: Certificates) -> bytes | None:
    common = {"bootstrap_servers": address, **python_settings(protocol, certificates)}
    producer = kafka.KafkaProducer(**common)
    producer.send("python", VALUE).get(30)
    producer.close()
    consumer = kafka.KafkaConsumer("python", group_id=None, auto_offset_reset="earliest", **common)
    value: bytes = next(iter(consumer)).value
    consumer.close()
    return value


def with_aiokafka(protocol: str, address: str, certificates: Certificates) -> bytes | None:
    common: dict[str, Any] = {"bootstrap_servers": address, **python_settings(protocol, certificates)}
    if common.pop("ssl_cafile", None) is not None:
        common["ssl_context"] = ssl.create_default_context(cafile=certificates.authority)

    async def main() -> bytes:
        async with aiokafka.AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait("aio", VALUE)
        consumer = aiokafka.AIOKafkaConsumer("aio", group_id="aio", auto_offset_reset="earliest", **common)
        async with consumer:
            found: bytes = (await consumer.getone()).value
            return found

    return asyncio.run(main())


def with_our_client(protocol: str, address: str, certificates: Certificates) -> bytes | None:
    common = {"bootstrap.servers": address, **client_settings(protocol, certificates)}
    with sync.Producer(common) as producer:
        producer.send("ours", VALUE).result(30)
    consumer: sync.Consumer[Any, Any]
    with sync.Consumer({**common, "group.id": "ours", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["ours"])
        while not (records := consumer.poll(1)):
            pass
        return next(iter(records)).value


@pytest.mark.parametrize("round_trip", [with_confluent, with_kafka_python, with_aiokafka, with_our_client])
def test_clients_log_in(broker: tuple[str, str], certificates: Certificates, round_trip: RoundTrip) -> None:
    protocol, address = broker
    assert round_trip(protocol, address, certificates) == VALUE


def test_a_wrong_password(broker: tuple[str, str], certificates: Certificates) -> None:
    protocol, address = broker
    if not protocol.startswith("SASL"):
        return
    wrong = {"bootstrap.servers": address, **client_settings(protocol, certificates, password="wrong")}
    with pytest.raises(AuthenticationError, match="Invalid username or password"), sync.Admin(wrong):
        pass
    errors: list[confluent_kafka.KafkaError] = []
    foreign = {**confluent_settings(protocol, certificates, password="wrong"), "error_cb": errors.append}
    client = confluent_kafka.Producer({"bootstrap.servers": address, **foreign})
    while not errors:
        client.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_a_client_without_security_gets_no_answer(broker: tuple[str, str]) -> None:
    _, address = broker
    hasty = {"default.api.timeout.ms": 1000, "request.timeout.ms": 1000}
    with pytest.raises(RookeryError), sync.Admin({"bootstrap.servers": address, **hasty}) as admin:
        admin.list_topics()


def test_a_listener_may_have_any_name(certificates: Certificates) -> None:
    settings = {
        **tls_settings(certificates),
        "listener.security.protocol.map": "OUTSIDE:SASL_SSL",
        **plain_settings("OUTSIDE", {USER: SECRET}),
    }
    with EmbeddedBroker(
        settings=settings, security_protocol="OUTSIDE", client_settings=client_settings("SASL_SSL", certificates)
    ) as running:
        running.produce("t", "x")
        assert [record.value for record in running.records("t")] == [b"x"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"listeners": "SSL://:9092"}, "listener SSL uses SSL, but has no key: set listener.name.ssl.ssl.keystore"),
        (
            {"listeners": "X://:9092", "listener.security.protocol.map": "X:TLS"},
            "listener.security.protocol.map: 'X:TLS' is not NAME:PROTOCOL with one of PLAINTEXT, SSL",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.jaas.config": 'x required username="a" password="b";',
            },
            "sasl.mechanism.inter.broker.protocol is PLAIN, but listener SASL_PLAINTEXT offers only SCRAM-SHA-512",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
                "sasl.jaas.config": 'x required username="a" password="b";',
            },
            "sasl.mechanism.controller.protocol is SCRAM-SHA-512, but controllers have no users of SCRAM before",
        ),
    ],
)
def test_wrong_settings_are_rejected_before_the_start(settings: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        Settings.load(overrides=[f"{key}={value}" for key, value in settings.items()])
    assert str(error.value).startswith(expected)


def test_an_unreadable_key_store_ends_the_start(tmp_path: Path) -> None:
    missing = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "missing.pem")}
    broker = EmbeddedBroker(settings=missing, security_protocol="SSL")
    with pytest.raises(StartupError, match=r"^listener SSL: ssl\.keystore\.location: cannot read .*missing\.pem"):
        broker.start()


def test_a_registry_needs_a_listener_that_it_can_use(certificates: Certificates) -> None:
    broker = start("SASL_SSL", certificates)
    broker._has_registry = True
    with pytest.raises(ConfigError, match=r"Set schema\.registry\.kafkastore\.security\.protocol to the protocol"):
        broker.start()


def test_a_registry_of_a_secured_broker(certificates: Certificates) -> None:
    protocol = "SASL_SSL"
    own = client_settings(protocol, certificates)
    settings = {
        **tls_settings(certificates),
        **plain_settings(protocol, {USER: SECRET}),
        **{f"schema.registry.kafkastore.{key}": value for key, value in own.items()},
    }
    with EmbeddedBroker(
        settings=settings, security_protocol=protocol, client_settings=own, schema_registry=True
    ) as running:
        assert running.register_schema("t-value", '"string"') > 0
