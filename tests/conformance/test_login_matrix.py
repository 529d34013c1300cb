"""Every client with every mechanism over every protocol, at one broker of Rookery: a record there and back.

The broker has an authorizer, so that a client whose principal is not the expected one can do nothing.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from rookery.client import sync
from rookery.client.admin import ScramMechanism, ScramUpsertion
from tests.conformance.java_tools import run_tool
from tests.conformance.secure_kafka import ALLOWED_URLS
from tests.node.test_bearer_tokens import MODULE, Provider
from tests.support.broker import free_port, start_node
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.secured import (
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    SECRET,
    USER,
    client_settings,
    confluent_settings,
    jaas,
    python_settings,
    tls_settings,
)

OAUTH = "OAUTHBEARER"
SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
WAYS = [(SSL, ""), *((protocol, each) for protocol in PROTOCOLS[1:] for each in (PLAIN, SCRAM_256, SCRAM_512, OAUTH))]
VALUE = b"there and back"
_TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


class Secured(NamedTuple):
    """A running broker with a listener for each protocol, and all that clients need."""

    addresses: dict[str, str]
    certificates: Certificates
    provider: Provider


def _properties(directory: Path, addresses: dict[str, str], certificates: Certificates, provider: Provider) -> str:
    settings = {
        "node.id": "1",
        "log.dirs": str(directory / "data"),
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        **tls_settings(certificates),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
        "inter.broker.listener.name": SASL_PLAINTEXT,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "sasl.enabled.mechanisms": ",".join((PLAIN, SCRAM_256, SCRAM_512, OAUTH)),
        "sasl.oauthbearer.expected.audience": "brokers",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The name in the client's certificate, and the user of all logins.
        "super.users": f"User:client;User:{USER}",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    for name in (SASL_PLAINTEXT.lower(), SASL_SSL.lower()):
        users = jaas(PLAIN, username=USER, password=SECRET, **{f"user_{USER}": SECRET})
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = users
        url = f"listener.name.{name}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
        settings[url] = provider.keys_file.as_uri()
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    certificates, provider = make_certificates(directory), Provider(directory)
    provider.token_file.write_text(provider.token(sub=USER, exp=int(time.time()) + 3600))
    addresses = {protocol: f"127.0.0.1:{free_port()}" for protocol in PROTOCOLS}
    config = directory / "server.properties"
    config.write_text(_properties(directory, addresses, certificates, provider))
    with start_node(config):
        plain = {"bootstrap.servers": addresses[SASL_PLAINTEXT], **client_settings(SASL_PLAINTEXT, certificates)}
        with sync.Admin(plain) as admin:
            for mechanism in ScramMechanism:
                upsertion = ScramUpsertion(user=USER, mechanism=mechanism, password=SECRET)
                for outcome in admin.alter_scram_users(upsertions=[upsertion]):
                    outcome.check()
        yield Secured(addresses, certificates, provider)


def own_settings(secured: Secured, protocol: str, mechanism: str) -> dict[str, str]:
    """Return the settings of our client, which are those of Java's, too."""
    certificates = secured.certificates
    common = {"bootstrap.servers": secured.addresses[protocol]}
    if mechanism != OAUTH:
        common |= client_settings(protocol, certificates, mechanism or PLAIN)
    else:
        common |= {key: value for key, value in client_settings(protocol, certificates).items() if "sasl." not in key}
        common |= {
            "sasl.mechanism": OAUTH,
            "sasl.jaas.config": f"{MODULE};",
            "sasl.oauthbearer.token.endpoint.url": secured.provider.token_file.as_uri(),
        }
    if protocol == SSL:
        common |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(certificates.client_keystore),
            "ssl.keystore.password": PASSWORD,
        }
    return common


def with_our_client(secured: Secured, protocol: str, mechanism: str, topic: str) -> bytes | None:
    common = own_settings(secured, protocol, mechanism)
    with sync.Producer(common) as producer:
        producer.send(topic, VALUE).result(30)
    consumer: sync.Consumer[Any, Any]
    with sync.Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while not (records := consumer.poll(1)):
            pass
        value: bytes | None = next(iter(records)).value
        return value


def with_confluent(secured: Secured, protocol: str, mechanism: str, topic: str) -> bytes | None:
    certificates = secured.certificates
    common = {
        "bootstrap.servers": secured.addresses[protocol],
        **confluent_settings(protocol, certificates, mechanism or PLAIN),
    }
    if mechanism == OAUTH:
        del common["sasl.username"], common["sasl.password"]
        common["oauth_cb"] = lambda _: (secured.provider.token_file.read_text(), time.time() + 3600)
    if protocol == SSL:
        common |= {
            "ssl.keystore.location": str(certificates.client_keystore),
            "ssl.keystore.password": PASSWORD,
        }
    producer = confluent_kafka.Producer(common)
    producer.produce(topic, VALUE)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def _python_settings(secured: Secured, protocol: str, mechanism: str, tokens: object) -> dict[str, Any]:
    common = python_settings(protocol, secured.certificates, mechanism or PLAIN)
    if mechanism == OAUTH:
        del common["sasl_plain_username"], common["sasl_plain_password"]
        common["sasl_oauth_token_provider"] = tokens
    return {"bootstrap_servers": secured.addresses[protocol], **common}


def with_kafka_python(secured: Secured, protocol: str, mechanism: str, topic: str) -> bytes | None:
    class Tokens(PythonTokenProvider):  # type: ignore[misc]  # it has no types
        def token(self) -> str:
            return secured.provider.token_file.read_text()

    common = _python_settings(secured, protocol, mechanism, Tokens())
    if protocol == SSL:
        common |= {"ssl_certfile": str(secured.certificates.client), "ssl_keyfile": str(secured.certificates.client)}
    producer = kafka.KafkaProducer(**common)
    producer.send(topic, VALUE).get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, group_id=None, auto_offset_reset="earliest", **common)
    value: bytes = next(iter(consumer)).value
    consumer.close()
    return value


def with_aiokafka(secured: Secured, protocol: str, mechanism: str, topic: str) -> bytes | None:
    class Tokens(AioTokenProvider):  # type: ignore[misc]  # it has no types
        async def token(self) -> str:
            return secured.provider.token_file.read_text()

    async def work() -> bytes:
        common = _python_settings(secured, protocol, mechanism, Tokens())
        if common.pop("ssl_cafile", None) is not None:
            context = ssl.create_default_context(cafile=secured.certificates.authority)
            if protocol == SSL:
                context.load_cert_chain(secured.certificates.client)
            common["ssl_context"] = context
        async with aiokafka.AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait(topic, VALUE)
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **common) as consumer:
            value: bytes = (await consumer.getone()).value
            return value

    return asyncio.run(work())


@pytest.mark.parametrize("client", [with_our_client, with_confluent, with_kafka_python, with_aiokafka])
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_python_clients(
    secured: Secured,
    topic: str,
    protocol: str,
    mechanism: str,
    client: Callable[[Secured, str, str, str], bytes | None],
) -> None:
    assert client(secured, protocol, mechanism, topic) == VALUE


@pytest.mark.java
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_java_tools(
    secured: Secured, topic: str, protocol: str, mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = own_settings(secured, protocol, mechanism)
    if mechanism == OAUTH:
        settings["sasl.login.callback.handler.class"] = _TOKEN_LOGIN
        url = settings["sasl.oauthbearer.token.endpoint.url"]
        monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-D{ALLOWED_URLS}={url}")
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items()))
    server = ("--bootstrap-server", secured.addresses[protocol])
    run_tool("console-producer", *server, "--topic", topic, "--command-config", str(config), text=VALUE.decode() + "\n")
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "1", "--command-config", str(config))
    assert VALUE.decode() in run_tool("console-consumer", *server, *reading)
