"""Logins and certificates over time: users that change, sessions that end, certificates that are renewed or wrong."""

import asyncio
import shutil
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from rookery.client import Producer, sync
from rookery.client.admin import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from rookery.client.errors import AuthenticationError
from rookery.node import tls_contexts
from rookery.testing import EmbeddedBroker
from tests.support import secured
from tests.support.certificates import Certificates, make_certificates, make_identity
from tests.support.secured import SCRAM_256, SCRAM_512, SECRET, USER, client_settings, tls_settings
from tests.support.waiting import eventually

SCRAM = (SCRAM_256, SCRAM_512)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[EmbeddedBroker]:
    settings = {**tls_settings(certificates), "sasl.enabled.mechanisms": ",".join(SCRAM)}
    clients = client_settings("SASL_SSL", certificates, SCRAM_512)
    with EmbeddedBroker(
        settings=settings, security_protocol="SASL_SSL", client_settings=clients, users={USER: SECRET}
    ) as running:
        yield running


def scram_client(broker: EmbeddedBroker, certificates: Certificates, user: str, password: str) -> dict[str, Any]:
    login = client_settings("SASL_SSL", certificates, SCRAM_256, user, password)
    return {"bootstrap.servers": broker.bootstrap_servers, **login}


def test_a_user_that_is_changed_and_removed(broker: EmbeddedBroker, certificates: Certificates) -> None:
    admin_settings = scram_client(broker, certificates, USER, SECRET)
    with sync.Admin(admin_settings) as admin:
        for password in ("first", "second"):
            upsertion = ScramUpsertion(user="bob", mechanism=ScramMechanism.SCRAM_SHA_256, password=password)
            admin.alter_scram_users(upsertions=[upsertion])
            with sync.Admin(scram_client(broker, certificates, "bob", password)) as other:
                other.list_topics()
        text = "due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        wrong = scram_client(broker, certificates, "bob", "first")
        with pytest.raises(AuthenticationError, match=text), sync.Admin(wrong):
            pass
        admin.alter_scram_users(deletions=[ScramDeletion(user="bob", mechanism=ScramMechanism.SCRAM_SHA_256)])
        removed = scram_client(broker, certificates, "bob", "second")
        with pytest.raises(AuthenticationError, match=text), sync.Admin(removed):
            pass


def test_clients_log_in_again_during_traffic(certificates: Certificates) -> None:
    """Sessions of a second: the client repeats its login between its requests, and nothing is lost."""
    settings = {
        **tls_settings(certificates),
        "sasl.enabled.mechanisms": SCRAM_512,
        "listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms": "1500",
    }
    clients = client_settings("SASL_SSL", certificates, SCRAM_512)
    with EmbeddedBroker(
        settings=settings, security_protocol="SASL_SSL", client_settings=clients, users={USER: SECRET}
    ) as running:

        async def produce() -> int:
            count = 0
            async with Producer({"bootstrap.servers": running.bootstrap_servers, **clients, "acks": "all"}) as producer:
                end_s = asyncio.get_running_loop().time() + 5
                while asyncio.get_running_loop().time() < end_s:
                    await (await producer.send("t", str(count).encode()))
                    count += 1
            return count

        foreign = confluent_kafka.Producer(
            {
                "bootstrap.servers": running.bootstrap_servers,
                **secured.confluent_settings("SASL_SSL", certificates, SCRAM_512),
            }
        )
        count = asyncio.run(produce())
        assert [record.value for record in running.records("t")] == [str(n).encode() for n in range(count)]
        foreign.produce("u", b"x")
        assert foreign.flush(30) == 0


def served_certificate(broker: EmbeddedBroker) -> str:
    return ssl.get_server_certificate(("127.0.0.1", broker.port))


def test_certificates_are_renewed_during_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_contexts, "_CHECK_INTERVAL_MS", 50)
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = make_certificates(tmp_path / "old"), make_certificates(tmp_path / "new")
    key, trusted = tmp_path / "key.pem", tmp_path / "trusted.pem"
    shutil.copy(old.broker, key)
    trusted.write_bytes(old.authority.read_bytes() + new.authority.read_bytes())
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
    clients = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    with EmbeddedBroker(settings=settings, security_protocol="SSL", client_settings=clients) as running:
        common = {"bootstrap.servers": running.bootstrap_servers, "security.protocol": "SSL", **clients}
        with sync.Producer(common) as producer:
            producer.send("t", b"before").result(30)
            before = served_certificate(running)
            # A file that cannot be used changes nothing.
            key.write_text("damaged")
            producer.send("t", b"between").result(30)
            assert served_certificate(running) == before
            shutil.copy(new.broker, key)
            eventually(lambda: served_certificate(running) != before, "the new certificate")
            producer.send("t", b"after").result(30)
        assert len(running.records("t")) == 3
        # Another file, by a change of the configuration.
        renewed = served_certificate(running)
        resource = ConfigResource(ResourceType.BROKER, "1")
        with sync.Admin(common) as admin:
            change = ConfigChange("listener.name.ssl.ssl.keystore.location", ConfigOperation.SET, str(old.broker))
            admin.alter_configs({resource: [change]})
        eventually(lambda: served_certificate(running) != renewed, "the certificate of the other file")
        assert served_certificate(running) == before


@pytest.mark.parametrize(
    ("lifetime", "identification", "expected"),
    [
        (timedelta(days=1), "https", r"Hostname mismatch|IP address mismatch"),
        (timedelta(hours=-1), "", "certificate has expired"),
    ],
)
def test_clients_reject_a_wrong_certificate(
    tmp_path: Path, lifetime: timedelta, identification: str, expected: str
) -> None:
    trusted, key = make_identity(tmp_path, "broker", names=("broker.example.com",), lifetime=lifetime)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
    with EmbeddedBroker(settings=settings, security_protocol="SSL") as running:
        common = {
            "bootstrap.servers": running.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "ssl.endpoint.identification.algorithm": identification,
        }
        with pytest.raises(AuthenticationError, match=expected), sync.Admin(common):
            pass


def test_open_connections_of_a_removed_user_end_with_their_session(certificates: Certificates) -> None:
    settings = {
        **tls_settings(certificates),
        "sasl.enabled.mechanisms": ",".join(SCRAM),
        "listener.name.sasl_ssl.connections.max.reauth.ms": "1500",
    }
    clients = client_settings("SASL_SSL", certificates, SCRAM_512)
    with EmbeddedBroker(
        settings=settings, security_protocol="SASL_SSL", client_settings=clients, users={USER: SECRET, "bob": "bobs"}
    ) as running:
        admin = sync.Admin(scram_client(running, certificates, USER, SECRET))
        producer = sync.Producer(scram_client(running, certificates, "bob", "bobs"))

        def is_refused() -> bool:
            try:
                producer.send("t", b"x").result(30)
            except AuthenticationError as error:
                return "invalid credentials" in str(error)
            return False

        with admin, producer:
            assert not is_refused()
            deletion = ScramDeletion(user="bob", mechanism=ScramMechanism.SCRAM_SHA_256)
            for outcome in admin.alter_scram_users(deletions=[deletion]):
                outcome.check()
            eventually(is_refused, "the session of the removed user ends")
            # Others go on.
            admin.list_topics()


def test_a_broker_rejects_expired_and_foreign_certificates(tmp_path: Path, certificates: Certificates) -> None:
    _, foreign = make_identity(tmp_path, "foreign")
    authority, expired = make_identity(tmp_path, "expired", lifetime=timedelta(hours=-1))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(certificates.authority.read_bytes() + authority.read_bytes())
    settings = {
        **tls_settings(certificates),
        "ssl.truststore.location": str(trusted),
        "ssl.client.auth": "required",
    }
    with EmbeddedBroker(settings=settings, security_protocol="SSL") as running:
        for key, is_accepted in ((certificates.client, True), (foreign, False), (expired, False), (None, False)):
            common = {
                "bootstrap.servers": running.bootstrap_servers,
                **client_settings("SSL", certificates),
                **({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)} if key else {}),
                "default.api.timeout.ms": 3000,
                "request.timeout.ms": 3000,
            }
            if is_accepted:
                with sync.Admin(common) as admin:
                    admin.list_topics()
            else:
                with pytest.raises(Exception, match=r"TLS handshake|NETWORK"), sync.Admin(common) as admin:
                    admin.list_topics()
