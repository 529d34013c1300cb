"""The registry of a secured broker, with the broker's own users: confluent-kafka's client, our serdes, the command."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from typer.testing import CliRunner

from rookery.cli.commands import app
from rookery.client import sync
from rookery.client.admin import ScramDeletion, ScramMechanism, ScramUpsertion
from rookery.serdes.client import RegistryClient
from rookery.testing import EmbeddedBroker
from tests.registry.rest.samples import CUSTOMER, CUSTOMER_WITH_EMAIL
from tests.support.secured import SCRAM_256, SECRET, USER, jaas

READER = "bob"
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": SCRAM_256,
    "sasl.jaas.config": jaas(SCRAM_256, username=USER, password=SECRET),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "sasl.enabled.mechanisms": SCRAM_256,
        "super.users": f"User:{USER}",
        "schema.registry.authentication.method": "BASIC",
        "schema.registry.authorization.rules": f"User:{READER}=read:customers-*",
        **{f"schema.registry.kafkastore.{key}": value for key, value in ADMIN.items()},
    }
    with EmbeddedBroker(
        settings=settings,
        security_protocol="SASL_PLAINTEXT",
        client_settings=ADMIN,
        users={USER: SECRET, READER: "secret"},
        schema_registry=True,
    ) as running:
        yield running


def client(broker: EmbeddedBroker, user: str, password: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": broker.schema_registry_url, "basic.auth.user.info": f"{user}:{password}"})


def test_users_of_the_broker_have_their_roles(broker: EmbeddedBroker) -> None:
    subject = f"customers-{uuid.uuid4().hex[:8]}"
    with client(broker, USER, SECRET) as admin:
        schema_id = admin.register_schema(subject, Schema(CUSTOMER))
        admin.register_schema(f"hidden-{subject}", Schema(CUSTOMER))
        assert {subject, f"hidden-{subject}"} <= set(admin.get_subjects())
    with client(broker, READER, "secret") as reader:
        assert reader.get_schema(schema_id).schema_str == CUSTOMER
        assert reader.lookup_schema(subject, Schema(CUSTOMER)).schema_id == schema_id
        assert all(each.startswith("customers-") for each in reader.get_subjects())
        with pytest.raises(SchemaRegistryError) as denied:
            reader.delete_subject(subject)
        assert (denied.value.http_status_code, denied.value.error_code) == (403, 40301)
        with pytest.raises(SchemaRegistryError, match=f"needs the role write.*User:{READER}=write:{subject}"):
            reader.register_schema(subject, Schema(CUSTOMER_WITH_EMAIL))


@pytest.mark.parametrize(("user", "password"), [(READER, "wrong"), ("stranger", "secret"), ("", "")])
def test_others_are_challenged(broker: EmbeddedBroker, user: str, password: str) -> None:
    with client(broker, user, password) as other, pytest.raises(SchemaRegistryError) as failed:
        other.get_subjects()
    assert (failed.value.http_status_code, failed.value.error_code) == (401, 401)


def test_a_new_user_is_known_at_once(broker: EmbeddedBroker) -> None:
    user = f"new-{uuid.uuid4().hex[:8]}"
    mechanism = ScramMechanism.SCRAM_SHA_256
    with sync.Admin({"bootstrap.servers": broker.bootstrap_servers, **ADMIN}) as admin:
        admin.alter_scram_users(upsertions=[ScramUpsertion(user=user, mechanism=mechanism, password="first")])
        with client(broker, user, "first") as known:
            assert known.get_subjects() == []
        admin.alter_scram_users(deletions=[ScramDeletion(user=user, mechanism=mechanism)])
        # The outcome for "first" is remembered for a while; another password is not.
        with client(broker, user, "second") as deleted, pytest.raises(SchemaRegistryError, match="Unauthorized"):
            deleted.get_subjects()


def test_our_client_and_the_command(broker: EmbeddedBroker, tmp_path: Path) -> None:
    subject = f"customers-{uuid.uuid4().hex[:8]}"
    config = {"basic.auth.user.info": f"{USER}:{SECRET}"}
    with RegistryClient(broker.schema_registry_url, config) as ours:
        assert subject not in ours.list_subjects()
    schema, command_config = tmp_path / "customer.avsc", tmp_path / "client.properties"
    schema.write_text(CUSTOMER)
    escaped = SECRET.replace("\\", "\\\\")
    command_config.write_text(
        f"schema.registry.url={broker.schema_registry_url}\nschema.registry.basic.auth.user.info={USER}:{escaped}\n"
    )
    runner = CliRunner(env={"ROOKERY_COMMAND_CONFIG": str(command_config)})
    registered = runner.invoke(app, ["schemas", "register", subject, str(schema)])
    assert registered.exit_code == 0, registered.output
    read_only = ["-r", broker.schema_registry_url, "--set", f"basic.auth.user.info={READER}:secret"]
    refused = CliRunner().invoke(app, ["schemas", "delete", subject, "--yes", *read_only])
    assert refused.exit_code == 1
    assert "needs the role admin" in refused.output
