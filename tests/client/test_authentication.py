"""Clients with TLS and SASL, against a gate that requires them: successful logins, rejected ones, and the errors."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import Admin, Consumer, NewTopic, Producer, sync
from rookery.client.errors import AuthenticationError, HandshakeError
from rookery.net import channel
from rookery.net.address import Address
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.fake_broker import FakeBroker
from tests.client.skipping import skip_time
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.gate import Gate, gated_broker

USERS = {"alice": "se=cr,et", "bob": "pässwörd"}
TIMEOUT_S = 60

Work = Callable[[Mapping[str, object]], Coroutine[None, None, None]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gated_broker(tmp_path_factory.mktemp("sasl") / "data", users=USERS) as gate:
        yield gate


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Gate]:
    context = certificates.server_context(ssl.CERT_OPTIONAL)
    with gated_broker(tmp_path_factory.mktemp("tls") / "data", tls=context) as gate:
        yield gate


def login(mechanism: str, user: str, password: str | None = None) -> dict[str, str]:
    known = USERS[user] if password is None else password
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'a.LoginModule required username="{user}" password="{known}";',
    }


def trusting(authority: Path, **more: str) -> dict[str, str]:
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
    return {"security.protocol": "SSL", **trusted, **{name.replace("_", "."): value for name, value in more.items()}}


async def round_trip(gate: Gate, security: Mapping[str, str], topic: str) -> list[bytes | None]:
    """Create a topic, write three values and read them, with one client each; return the values."""
    config = {"bootstrap.servers": gate.address, **security}
    async with asyncio.timeout(TIMEOUT_S):
        async with Admin(config) as admin:
            await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
        async with Producer[bytes, bytes](config) as producer:
            for number in range(3):
                await producer.send(topic, value=b"%d" % number)
            await producer.flush()
        async with Consumer[bytes, bytes]({**config, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found: list[bytes | None] = []
            while len(found) < 3:
                found += [record.value for record in await consumer.poll(timeout_s=1)]
            return found


def rejection(gate: Gate, security: Mapping[str, str]) -> AuthenticationError:
    """Return the error that an admin client raises. It does so immediately, long before its time-out."""

    async def describe() -> None:
        config = {"bootstrap.servers": gate.address, "default.api.timeout.ms": 3_600_000, **security}
        async with asyncio.timeout(TIMEOUT_S), Admin(config) as admin:
            await admin.describe_cluster()

    with pytest.raises(AuthenticationError) as caught:
        asyncio.run(describe())
    return caught.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", USERS)
def test_users_log_in_with_their_password(sasl: Gate, mechanism: str, user: str) -> None:
    logins, hang_ups = len(sasl.logins), len(sasl.hang_ups)
    found = asyncio.run(round_trip(sasl, login(mechanism, user), f"{mechanism}-{user}"))
    assert found == [b"0", b"1", b"2"]
    assert set(sasl.logins[logins:]) == {f"{mechanism} {user}"}
    assert not sasl.hang_ups[hang_ups:]


def test_a_token_logs_in(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c")
    security = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "a.LoginModule required;",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    with gated_broker(tmp_path / "data", check_token=lambda given: "carol" if given == "a.b.c" else None) as gate:
        assert asyncio.run(round_trip(gate, security, "tokens")) == [b"0", b"1", b"2"]
        assert set(gate.logins) == {"OAUTHBEARER carol"}
        token.write_text("a.b.d")
        assert "invalid_token" in str(rejection(gate, security))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_reported_immediately(sasl: Gate, mechanism: str) -> None:
    error = rejection(sasl, login(mechanism, "alice", "guess"))
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "sasl.jaas.config" in str(error)
    assert sasl.address in str(error)
    assert "guess" not in str(error)


def test_a_mechanism_that_the_broker_does_not_support(tmp_path: Path) -> None:
    with gated_broker(tmp_path / "data", users=USERS, mechanisms=["SCRAM-SHA-512"]) as gate:
        error = rejection(gate, login("PLAIN", "alice"))
    assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "sasl.mechanism to one of SCRAM-SHA-512" in str(error)


def test_a_broker_that_wants_no_login(tls: Gate, sasl: Gate) -> None:
    plain = Gate()
    plain.broker_address = sasl.broker_address
    with plain:
        assert "security.protocol" in str(rejection(plain, login("PLAIN", "alice")))


async def write(config: Mapping[str, object]) -> None:
    async with Producer[bytes, bytes]({**config, "max.block.ms": 3_600_000}) as producer:
        await producer.send("anything", value=b"")


async def write_in_a_transaction(config: Mapping[str, object]) -> None:
    async with Producer[bytes, bytes]({**config, "max.block.ms": 3_600_000, "transactional.id": "anybody"}) as producer:
        await producer.init_transactions()


async def read(config: Mapping[str, object]) -> None:
    async with Consumer[bytes, bytes]({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("anything", 0)])
        while True:
            await consumer.poll(timeout_s=1)


async def read_from_an_offset(config: Mapping[str, object]) -> None:
    """Read without looking up offsets: only the leader has to be found."""
    async with Consumer[bytes, bytes](config) as consumer:
        consumer.assign([TopicPartition("anything", 0)])
        consumer.seek(TopicPartition("anything", 0), 1)
        while True:
            await consumer.poll(timeout_s=1)


async def read_as_classic_member(config: Mapping[str, object]) -> None:
    await _read_as_member({**config, "group.protocol": "classic", "heartbeat.interval.ms": 200})


async def read_as_consumer_member(config: Mapping[str, object]) -> None:
    await _read_as_member({**config, "group.protocol": "consumer"})


async def _read_as_member(config: Mapping[str, object]) -> None:
    async with Consumer[bytes, bytes]({**config, "group.id": str(config["group.protocol"])}) as consumer:
        consumer.subscribe(["anything"])
        while True:
            await consumer.poll(timeout_s=1)


async def look_up(config: Mapping[str, object]) -> None:
    async with Consumer[bytes, bytes](config) as consumer:
        await consumer.end_offsets([TopicPartition("anything", 0)])


@pytest.mark.parametrize(
    "work",
    [
        write,
        write_in_a_transaction,
        read,
        read_from_an_offset,
        read_as_classic_member,
        read_as_consumer_member,
        look_up,
    ],
)
def test_every_operation_reports_a_wrong_password(sasl: Gate, work: Work) -> None:
    long_timeout = {"bootstrap.servers": sasl.address, "request.timeout.ms": 3_600_000}
    with pytest.raises(ApiError, match=r"sasl\.jaas\.config") as caught:
        asyncio.run(asyncio.wait_for(work({**long_timeout, **login("PLAIN", "alice", "guess")}), TIMEOUT_S))
    assert isinstance(caught.value, AuthenticationError) or work is write_in_a_transaction


@pytest.mark.parametrize("work", [read, read_as_classic_member, read_as_consumer_member])
def test_a_consumer_reports_that_its_password_is_no_longer_valid(tmp_path: Path, work: Work) -> None:
    with gated_broker(
        tmp_path / "data", "auto.create.topics.enable=true", users=USERS, session_lifetime_ms=1200
    ) as gate:
        config = {"bootstrap.servers": gate.address, **login("PLAIN", "alice")}

        async def change_password_while_reading() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(work(config))
                while len(gate.logins) < 2:
                    await asyncio.sleep(0.01)
                gate.users["alice"] = "another"

        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(asyncio.wait_for(change_password_while_reading(), TIMEOUT_S))
        assert caught.group_contains(AuthenticationError, match="Invalid username or password")


def test_a_round_trip_with_tls(tls: Gate, certificates: Certificates) -> None:
    assert asyncio.run(round_trip(tls, trusting(certificates.authority), "encrypted")) == [b"0", b"1", b"2"]


def test_the_synchronous_clients_transfer_megabytes_with_tls(tls: Gate, certificates: Certificates) -> None:
    """More than sockets and buffers hold, so that each side has to wait for the other."""
    config = {"bootstrap.servers": tls.address, **trusting(certificates.authority)}
    values = [bytes([number]) * 900_000 for number in range(24)]
    with sync.Producer[bytes, bytes](config) as producer:
        for value in values:
            producer.send("much", value, partition=0)
    with sync.Consumer[bytes, bytes]({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("much", 0)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for record in consumer.poll(timeout_s=1)]
    assert found == values


def test_clients_present_their_certificate(tls: Gate, certificates: Certificates) -> None:
    store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(certificates.client_keystore)}
    security = {**trusting(certificates.authority), **store, "ssl.keystore.password": PASSWORD}
    assert asyncio.run(round_trip(tls, security, "shown")) == [b"0", b"1", b"2"]
    assert "SSL client" in tls.logins


def test_tls_and_sasl_together(tmp_path: Path, certificates: Certificates) -> None:
    security = {**trusting(certificates.authority), **login("SCRAM-SHA-512", "alice"), "security.protocol": "SASL_SSL"}
    with gated_broker(tmp_path / "data", users=USERS, tls=certificates.server_context()) as gate:
        assert asyncio.run(round_trip(gate, security, "both")) == [b"0", b"1", b"2"]
        assert set(gate.logins) == {"SCRAM-SHA-512 alice"}


def test_a_certificate_of_an_unknown_authority_is_not_trusted(tls: Gate, certificates: Certificates) -> None:
    error = rejection(tls, trusting(certificates.stranger))
    assert "is not trusted" in str(error)
    assert "ssl.truststore.location" in str(error)
    assert "SASL" not in str(error)


def test_a_broker_of_another_name(tmp_path: Path, certificates: Certificates) -> None:
    """The certificate is for localhost and 127.0.0.1."""
    with gated_broker(tmp_path / "data", tls=certificates.server_context(), host="127.0.0.2") as gate:
        error = rejection(gate, trusting(certificates.authority))
        assert "mismatch" in str(error)
        assert "ssl.endpoint.identification.algorithm" in str(error)
        unchecked = trusting(certificates.authority, ssl_endpoint_identification_algorithm="")
        assert asyncio.run(round_trip(gate, unchecked, "misnamed")) == [b"0", b"1", b"2"]


def test_other_brokers_are_used_if_one_is_not_trusted(tls: Gate, certificates: Certificates) -> None:
    with Gate(tls=certificates.server_context(), host="127.0.0.2") as misnamed:
        both = {"bootstrap.servers": f"{misnamed.address},{tls.address}"}
        assert asyncio.run(_describe({**trusting(certificates.authority), **both}))
        dead = {"bootstrap.servers": f"{misnamed.address},127.0.0.1:1"}
        with pytest.raises(HandshakeError, match="is not trusted"):
            asyncio.run(_describe({**trusting(certificates.authority), **dead}))


def test_the_error_of_a_broker_that_requires_a_certificate_names_the_setting(
    tmp_path: Path, certificates: Certificates
) -> None:
    context = certificates.server_context(ssl.CERT_REQUIRED)
    with (
        gated_broker(tmp_path / "data", tls=context) as gate,
        pytest.raises(ApiError, match=r"ssl\.keystore\.location"),
    ):
        asyncio.run(_describe({"bootstrap.servers": gate.address, **trusting(certificates.authority)}))


def test_a_listener_without_tls(sasl: Gate, certificates: Certificates) -> None:
    config = {"bootstrap.servers": sasl.broker_address, **trusting(certificates.authority)}
    quick = {"default.api.timeout.ms": 5000, "request.timeout.ms": 5000}
    with pytest.raises(ApiError, match=r"security\.protocol"):
        asyncio.run(_describe({**config, **quick}))


@pytest.mark.parametrize(
    ("mechanism", "jaas", "words"),
    [
        ("OAUTHBEARER", "M required;", "unsecuredLoginStringClaim_sub"),
        ("OAUTHBEARER", 'M required unsecuredLoginStringClaim_sub="a" extension_auth="b";', "extension"),
        ("PLAIN", f'M required username="alice" password="{chr(0xD800)}";', "Unicode"),
    ],
)
def test_settings_that_cannot_work_are_reported_when_a_client_is_constructed(
    mechanism: str, jaas: str, words: str
) -> None:
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    with pytest.raises(ConfigError, match=words):
        asyncio.run(_describe({"bootstrap.servers": "127.0.0.1:1", **security}))


def test_a_token_endpoint_that_is_no_url_is_reported_when_a_client_is_constructed() -> None:
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "M required;",
        "sasl.oauthbearer.token.endpoint.url": "login/token",
    }
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url must be https:"):
        asyncio.run(_describe({"bootstrap.servers": "127.0.0.1:1", **security}))


def test_the_client_closes_a_connection_whose_login_was_rejected() -> None:
    """Even if the broker keeps it open."""

    async def attempt_login() -> None:
        rejected = Message(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAINER"])
        async with asyncio.timeout(TIMEOUT_S), FakeBroker({ApiKey.SASL_HANDSHAKE: lambda _, __: rejected}) as broker:
            admin = Admin({"bootstrap.servers": str(broker.address), **login("PLAIN", "alice")})
            with pytest.raises(AuthenticationError, match="PLAINER"):
                await admin.__aenter__()
            while broker.connection_count:
                await asyncio.sleep(0.01)
            await admin.close()

    asyncio.run(attempt_login())


def test_a_broker_that_is_down_is_not_reported_as_one_without_tls(certificates: Certificates) -> None:
    """If a name has several addresses, asyncio raises an OSError without an errno."""
    config = {"bootstrap.servers": "localhost:1", **trusting(certificates.authority)}
    with pytest.raises(ApiError, match="cannot connect to localhost:1"):
        asyncio.run(_describe(config))


def test_closing_a_client_ends_its_request_for_a_token(tmp_path: Path) -> None:
    async def time_out_and_close() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            security = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": 'M required clientId="me" clientSecret="secret";',
                "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{mute.getsockname()[1]}/token",
            }
            admin = Admin({"bootstrap.servers": gate.address, **security})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(admin.__aenter__(), 0.3)
            await admin.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with gated_broker(tmp_path / "data", users=USERS) as gate:
        asyncio.run(time_out_and_close())


def test_files_are_read_when_a_client_is_constructed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        asyncio.run(_describe({"bootstrap.servers": "127.0.0.1:1", **trusting(tmp_path / "nowhere.pem")}))


@pytest.mark.parametrize(("protocol", "acks"), [("SASL_SSL", "all"), ("SASL_PLAINTEXT", "0")])
def test_a_session_that_ends_is_renewed_and_nothing_is_lost(
    tmp_path: Path, certificates: Certificates, protocol: str, acks: str
) -> None:
    """The gate closes a connection that is used after its session ended, or sends another request during a login."""
    context = certificates.server_context() if protocol == "SASL_SSL" else None
    with gated_broker(tmp_path / "data", users=USERS, tls=context, session_lifetime_ms=1200) as gate:
        security = {**trusting(certificates.authority), **login("SCRAM-SHA-256", "alice")}
        config = {"bootstrap.servers": gate.address, **security, "security.protocol": protocol}
        count = asyncio.run(_produce_until(gate, {**config, "acks": acks}, logins=6))
        assert not gate.hang_ups
        assert asyncio.run(_values(config, count)) == [b"%d" % number for number in range(count)]


def test_an_idle_connection_does_not_log_in_again(tmp_path: Path) -> None:
    with gated_broker(tmp_path / "data", users=USERS, session_lifetime_ms=10_000) as gate:
        config = {"bootstrap.servers": gate.address, **login("PLAIN", "alice")}

        async def pause() -> None:
            async with Admin(config) as admin:
                await admin.describe_cluster()
                before = len(gate.logins)
                skip_time(10)
                # The gate's clock was not moved, and it rejects a second login within one second.
                await asyncio.sleep(1.1)
                assert len(gate.logins) == before
                await admin.describe_cluster()
                assert len(gate.logins) == before + 1

        asyncio.run(pause())
        assert not gate.hang_ups


def test_a_failed_open_does_not_wait_for_the_tls_shutdown(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer completes the handshake and then sends nothing; `open` takes no longer than its time-out."""
    monkeypatch.setattr(channel, "_TLS_SHUTDOWN_TIMEOUT_S", 3600.0)
    context = ssl.create_default_context(cafile=str(certificates.authority))

    async def open_until_timeout(port: int) -> None:
        address = Address("localhost", port)
        opening = asyncio.create_task(channel.Channel.open(address, client_id="", timeout_s=30, tls=context))
        while not has_request.is_set():
            await asyncio.sleep(0.01)
        skip_time(30)
        await opening

    with socket.create_server(("127.0.0.1", 0)) as server:
        peers: list[ssl.SSLSocket] = []
        has_request = threading.Event()

        def accept_and_stay_silent() -> None:
            peers.append(certificates.server_context().wrap_socket(server.accept()[0], server_side=True))
            peers[0].recv(1)
            has_request.set()

        thread = threading.Thread(target=accept_and_stay_silent)
        thread.start()
        with pytest.raises(ApiError, match="within 30 s"):
            asyncio.run(asyncio.wait_for(open_until_timeout(server.getsockname()[1]), TIMEOUT_S))
        thread.join()
        peers[0].close()


def test_a_failed_renewal_is_reported_with_its_reason(tmp_path: Path) -> None:
    with gated_broker(tmp_path / "data", users=USERS, session_lifetime_ms=1200) as gate:
        config = {"bootstrap.servers": gate.address, **login("PLAIN", "alice")}

        async def describe_until_rejected() -> None:
            async with Admin(config) as admin:
                await admin.describe_cluster()
                gate.users["alice"] = "another"
                while True:
                    await admin.describe_cluster()

        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            asyncio.run(asyncio.wait_for(describe_until_rejected(), TIMEOUT_S))


@pytest.mark.parametrize("group", [{}, {"group.id": "g"}, {"group.id": "g", "group.protocol": "consumer"}])
def test_a_consumer_retries_a_rejected_password_only_when_polled(tmp_path: Path, group: dict[str, str]) -> None:
    """Repeated attempts with a wrong password lock the account; once the password is right, the consumer reads."""
    with gated_broker(tmp_path / "data", users=USERS) as gate:
        alice = login("PLAIN", "alice")
        asyncio.run(round_trip(gate, alice, "numbers"))
        config = {"bootstrap.servers": gate.address, "auto.offset.reset": "earliest", **alice, **group}

        async def read() -> None:
            gate.users["alice"] = "another"
            async with Consumer[bytes, bytes](config) as consumer:
                if group:
                    consumer.subscribe(["numbers"])
                else:
                    consumer.assign([TopicPartition("numbers", 0)])
                for _ in range(2):
                    with pytest.raises(AuthenticationError):
                        await _poll_on(consumer)
                # Let attempts that are under way end. Several pauses, because a slow machine may stall during one.
                for _ in range(5):
                    await asyncio.sleep(0.2)
                rejected = len(gate.hang_ups)
                await asyncio.sleep(2.5)
                assert len(gate.hang_ups) == rejected
                gate.users["alice"] = USERS["alice"]
                found = 0
                while found < 3:
                    with suppress(AuthenticationError):
                        found += len(await consumer.poll(timeout_s=1))

        asyncio.run(asyncio.wait_for(read(), TIMEOUT_S))


async def _poll_on(consumer: Consumer[bytes, bytes]) -> None:
    while True:
        await consumer.poll(timeout_s=1)


async def _describe(config: Mapping[str, object]) -> object:
    async with asyncio.timeout(TIMEOUT_S), Admin(config) as admin:
        return await admin.describe_cluster()


async def _produce_until(gate: Gate, config: Mapping[str, object], *, logins: int) -> int:
    """Write numbers without a pause until the gate has seen `logins` logins; return how many were written."""
    async with asyncio.timeout(TIMEOUT_S):
        async with Admin({name: value for name, value in config.items() if name != "acks"}) as admin:
            await admin.create_topics([NewTopic(name="numbers", partitions=1, replication_factor=1)])
        async with Producer[bytes, bytes]({**config, "linger.ms": 0}) as producer:
            count = 0
            while len(gate.logins) < logins:
                await producer.send("numbers", value=b"%d" % count)
                count += 1
                await asyncio.sleep(0)
            await producer.flush()
    return count


async def _values(config: Mapping[str, object], count: int) -> list[bytes | None]:
    async with asyncio.timeout(TIMEOUT_S):
        async with Consumer[bytes, bytes]({**config, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("numbers", 0)])
            found: list[bytes | None] = []
            while len(found) < count:
                found += [record.value for record in await consumer.poll(timeout_s=1)]
            return found
