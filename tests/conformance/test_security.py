"""TLS and SASL of Rookery's client with Apache Kafka: successful logins, errors of failed ones, renewed sessions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rookery.client import Admin, NewTopic, Producer, sync
from rookery.client.errors import AuthenticationError
from tests.conformance.scene import Scene, numbers, play, read, until
from tests.conformance.secure_kafka import (
    MECHANISMS,
    MISNAMED,
    MUTUAL,
    OAUTH,
    PLAIN,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SESSION_MS,
    SHORT,
    SSL,
    SecureKafka,
    Settings,
    start_secure,
    trusting,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.java

WAYS = [
    *((listener, "") for listener in (SSL, MUTUAL, MISNAMED)),
    *((listener, mechanism) for listener in (SASL_PLAINTEXT, SASL_SSL) for mechanism in MECHANISMS),
]
COUNT = 20
SESSIONS = 3
# Kafka counts the lifetime of a token in whole seconds, and rejects a second login within a second.
TOKEN_S = 3
# Shorter than the time-outs of clients for a broker that is down. A reset may arrive before the TLS alert: then the
# client tries again.
SOON_S = 30
WRONG = "wrong password"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with start_secure(tmp_path_factory.mktemp("secure")) as running:
        yield running


def scene_of(kafka: SecureKafka, topic: str, listener: str, mechanism: str) -> Scene:
    return Scene(kafka.addresses[listener], topic, kafka.settings(listener, mechanism))


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_clients_connect(kafka: SecureKafka, topic: str, listener: str, mechanism: str) -> None:
    scene = scene_of(kafka, topic, listener, mechanism)

    async def work() -> None:
        await scene.create(2)
        await scene.fill(COUNT)
        async with scene.member() as consumer:
            consumer.subscribe([topic])
            assert numbers(await read(consumer, COUNT)) == list(range(COUNT))
            await consumer.commit()
        async with scene.admin() as admin:
            offsets = await admin.committed_offsets(scene.group)
            assert offsets[scene.partition()].offset == COUNT

    play(work())


@pytest.mark.parametrize(("listener", "mechanism"), [(MUTUAL, ""), (SASL_SSL, PLAIN), (SASL_SSL, OAUTH)])
def test_synchronous_clients_connect(kafka: SecureKafka, topic: str, listener: str, mechanism: str) -> None:
    """The test uses a transaction, whose coordinator has a separate connection."""
    common = {"bootstrap.servers": kafka.addresses[listener], **kafka.settings(listener, mechanism)}
    with sync.Admin(common) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=1)])[0].check()
    with sync.Producer[bytes, bytes]({**common, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
        producer.commit_transaction()
    reading = {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with sync.Consumer[bytes, bytes]({**common, **reading}) as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []

        def has_all() -> bool:
            found.extend(record.value for record in consumer.poll(0.5))
            return len(found) >= COUNT

        eventually(has_all, "the transaction's records")
    assert found == [b"%d" % number for number in range(COUNT)]


async def administer(scene: Scene) -> None:
    async with scene.admin() as admin:
        await admin.describe_cluster()


async def produce(scene: Scene) -> None:
    async with scene.producer() as producer:
        await (await producer.send(scene.topic, b"1"))


async def consume(scene: Scene) -> None:
    async with scene.consumer() as consumer:
        consumer.assign([scene.partition()])
        while True:
            await consumer.poll(1.0)


async def seek(scene: Scene) -> None:
    async with scene.consumer() as consumer:
        consumer.assign([scene.partition()])
        consumer.seek(scene.partition(), 1)
        while True:
            await consumer.poll(1.0)


async def ask(scene: Scene) -> None:
    async with scene.consumer() as consumer:
        await consumer.end_offsets([scene.partition()])


async def join(scene: Scene) -> None:
    async with scene.member() as consumer:
        consumer.subscribe([scene.topic])
        while True:
            await consumer.poll(1.0)


def with_wrong_audience(kafka: SecureKafka) -> Settings:
    path = kafka.tokens.keys_path.with_name("token")
    path.write_text(kafka.tokens.token(audience="others"))
    return {**kafka.settings(SASL_SSL, OAUTH), "sasl.oauthbearer.token.endpoint.url": path.as_uri()}


def with_wrong_password(listener: str, mechanism: str) -> Callable[[SecureKafka], Settings]:
    return lambda kafka: kafka.settings(listener, mechanism, password=WRONG)


# The listener, the client's settings, and the expected error message.
FAILURES: dict[str, tuple[str, Callable[[SecureKafka], Settings], str]] = {
    "password-plain": (
        SASL_SSL,
        with_wrong_password(SASL_SSL, PLAIN),
        r"[Ii]nvalid username or password.*sasl\.jaas\.config",
    ),
    "password-scram": (
        SASL_PLAINTEXT,
        with_wrong_password(SASL_PLAINTEXT, SCRAM_512),
        r"invalid credentials.*sasl\.jaas\.config",
    ),
    "secret": (SASL_SSL, with_wrong_password(SASL_SSL, OAUTH), "unknown client"),
    "audience": (SASL_SSL, with_wrong_audience, r"invalid_token.*sasl\.jaas\.config"),
    "mechanism": (SHORT, lambda kafka: kafka.settings(SHORT, SCRAM_256), r"SCRAM-SHA-256.*sasl\.mechanism.*PLAIN"),
    "no-login-wanted": (SSL, lambda kafka: kafka.settings(SASL_SSL, PLAIN), r"security\.protocol"),
    "untrusted-broker": (
        SSL,
        lambda kafka: {**kafka.settings(SSL), **trusting(kafka.certificates.stranger)},
        r"not trusted.*ssl\.truststore\.location",
    ),
    "host-name": (
        MISNAMED,
        lambda kafka: kafka.settings(SSL),
        r"127\.0\.0\.2.*ssl\.endpoint\.identification\.algorithm",
    ),
    "no-certificate": (MUTUAL, lambda kafka: kafka.settings(SSL), r"ssl\.keystore\.location"),
}


@pytest.mark.parametrize("attempt", [administer, produce, consume, seek, ask, join])
@pytest.mark.parametrize("name", FAILURES)
def test_failed_logins_have_clear_errors(
    kafka: SecureKafka, topic: str, name: str, attempt: Callable[[Scene], Awaitable[None]]
) -> None:
    listener, settings, says = FAILURES[name]
    scene = Scene(kafka.addresses[listener], topic, settings(kafka))

    async def work() -> None:
        with pytest.raises(AuthenticationError, match=says) as failed:
            async with asyncio.timeout(SOON_S):
                await attempt(scene)
        assert not failed.value.code.retriable
        assert WRONG not in str(failed.value)

    play(work())


def connections_made(client: Producer[Any, Any] | Admin) -> float:
    return sum(value for name, value in client.metrics().items() if name.name == "connection-creation-total")


@pytest.mark.parametrize(("listener", "mechanism"), [(SHORT, PLAIN), (SHORT, SCRAM_512), (SASL_SSL, OAUTH)])
def test_sessions_are_renewed_while_records_flow(
    kafka: SecureKafka, topic: str, monkeypatch: pytest.MonkeyPatch, listener: str, mechanism: str
) -> None:
    """Kafka closes a connection at its next request when the session or the token has expired."""
    monkeypatch.setattr(kafka.tokens, "lifetime_s", TOKEN_S)
    scene = scene_of(kafka, topic, listener, mechanism)

    async def work() -> None:
        await scene.create()
        loop = asyncio.get_running_loop()
        async with scene.producer(enable_idempotence=True, batch_size=200) as producer:
            futures = [await producer.send(topic, b"0")]
            await futures[0]
            made, given = connections_made(producer), kafka.tokens.given
            end_s = loop.time() + SESSIONS * SESSION_MS / 1000
            while loop.time() < end_s:
                futures.append(await producer.send(topic, b"%d" % len(futures)))
                if len(futures) % 100 == 0:
                    await futures[-50]
            await producer.flush()
            assert connections_made(producer) == made
            assert mechanism != OAUTH or kafka.tokens.given > given + 1
        count = len(futures)
        assert [future.result().offset for future in futures] == list(range(count))
        async with scene.consumer() as consumer:
            consumer.assign([scene.partition()])
            assert numbers(await read(consumer, count)) == list(range(count))

    play(work())


async def keep_producing(scene: Scene, is_known: asyncio.Event) -> None:
    async with scene.producer() as producer:
        while True:
            await (await producer.send(scene.topic, b"1"))
            is_known.set()


async def keep_reading(scene: Scene, is_known: asyncio.Event) -> None:
    async with scene.consumer() as consumer:
        consumer.assign([scene.partition()])
        while True:
            if await consumer.poll(1.0):
                is_known.set()


async def stay_in_group(scene: Scene, is_known: asyncio.Event, protocol: str = "classic") -> None:
    async with scene.member(group_protocol=protocol) as consumer:
        consumer.subscribe([scene.topic])
        while True:
            if await consumer.poll(1.0):
                is_known.set()


async def stay_in_newer_group(scene: Scene, is_known: asyncio.Event) -> None:
    await stay_in_group(scene, is_known, "consumer")


@pytest.mark.parametrize("keep_on", [keep_producing, keep_reading, stay_in_group, stay_in_newer_group])
def test_clients_of_a_removed_user_fail(
    kafka: SecureKafka, topic: str, keep_on: Callable[[Scene, asyncio.Event], Awaitable[None]]
) -> None:
    """They fail at the end of their session."""
    kafka.add_user(topic)
    scene = Scene(kafka.addresses[SHORT], topic, kafka.settings(SHORT, SCRAM_512, user=topic))

    async def is_welcome() -> bool:
        try:
            await administer(scene)
        except AuthenticationError:
            return False
        return True

    async def work() -> None:
        await until(is_welcome)
        await scene.create()
        await scene.fill(COUNT)
        is_known = asyncio.Event()
        going_on = asyncio.ensure_future(keep_on(scene, is_known))
        await is_known.wait()
        await asyncio.to_thread(kafka.remove_user, topic)
        with pytest.raises(AuthenticationError, match=r"sasl\.jaas\.config"):
            async with asyncio.timeout(SOON_S):
                await going_on

    play(work())
