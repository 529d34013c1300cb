"""All calls of confluent-kafka's schema registry client.

`ROOKERY_CONFORMANCE_REGISTRY=http://host:port` runs the same tests against another registry.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

from rookery.testing import EmbeddedBroker
from tests.registry.rest.http_server import serve
from tests.registry.rest.memory import Rest
from tests.registry.rest.samples import (
    CUSTOMER,
    CUSTOMER_INCOMPATIBLE,
    CUSTOMER_SPACED,
    CUSTOMER_WITH_EMAIL,
    NAME,
    record,
)


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    if url := os.environ.get("ROOKERY_CONFORMANCE_REGISTRY"):
        yield url
        return
    with EmbeddedBroker(schema_registry=True) as broker:
        yield broker.schema_registry_url


@pytest.fixture(scope="module")
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client


@pytest.fixture
def subject() -> str:
    """Return a subject with characters that must be escaped in a URL."""
    return f"customers/in #1-{uuid.uuid4().hex[:8]}"


def _error_codes(failed: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return failed.value.http_status_code, failed.value.error_code


def test_register_and_read(client: SchemaRegistryClient, subject: str) -> None:
    first = client.register_schema(subject, Schema(CUSTOMER))
    assert client.register_schema(subject, Schema(CUSTOMER_SPACED, "AVRO")) == first
    second = client.register_schema_full_response(subject, Schema(CUSTOMER_WITH_EMAIL), normalize_schemas=True)
    assert second.schema_id is not None
    assert client.get_versions(subject) == [1, 2]
    client.clear_caches()
    assert client.get_schema(first).schema_str == CUSTOMER
    assert client.get_schema(first, subject_name=subject, fmt="resolved").schema_str == CUSTOMER
    version = client.get_version(subject, 1)
    assert (version.subject, version.version, version.schema_id) == (subject, 1, first)
    latest = client.get_latest_version(subject)
    assert (latest.version, latest.schema_id) == (2, second.schema_id)
    assert client.get_version(subject, "latest").version == 2
    found = client.lookup_schema(subject, Schema(CUSTOMER_SPACED), normalize_schemas=True)
    assert (found.version, found.schema_id) == (1, first)


def test_lists(client: SchemaRegistryClient, subject: str) -> None:
    schema_id = client.register_schema(subject, Schema(record(f"R{uuid.uuid4().hex}", NAME)))
    other = client.register_schema(f"{subject}-2", client.get_schema(schema_id))
    assert other == schema_id
    assert client.get_subjects(subject_prefix=subject) == [subject, f"{subject}-2"]
    assert client.get_subjects(subject_prefix=subject, offset=1, limit=1) == [f"{subject}-2"]
    assert subject in client.get_subjects()
    assert client.get_subjects_by_schema_id(schema_id) == [subject, f"{subject}-2"]
    versions = [(each.subject, each.version) for each in client.get_schema_versions(schema_id)]
    assert versions == [(subject, 1), (f"{subject}-2", 1)]
    assert "." in client.get_contexts()
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]


def test_references(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, Schema(CUSTOMER))
    order = record("Order", {"name": "customer", "type": "Customer"})
    references = [SchemaReference("Customer", subject, 1)]
    schema_id = client.register_schema(f"{subject}-order", Schema(order, "AVRO", references))
    assert client.get_referenced_by(subject, 1) == [schema_id]
    read = client.get_version(f"{subject}-order", 1).schema
    assert read is not None
    assert read.references == references


def test_metadata(client: SchemaRegistryClient, subject: str) -> None:
    properties = Metadata(None, MetadataProperties({"team": "crows"}), None)
    client.register_schema(subject, Schema(CUSTOMER, "AVRO", metadata=properties))
    assert client.get_latest_with_metadata(subject, {"team": "crows"}).version == 1
    with pytest.raises(SchemaRegistryError) as failed:
        client.get_latest_with_metadata(subject, {"team": "rooks"})
    assert _error_codes(failed) == (404, 40403)


def test_compatibility(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, Schema(CUSTOMER))
    assert client.test_compatibility(subject, Schema(CUSTOMER_WITH_EMAIL))
    assert not client.test_compatibility(subject, Schema(CUSTOMER_INCOMPATIBLE), version=1, verbose=True)
    assert not client.test_compatibility_all_versions(subject, Schema(CUSTOMER_INCOMPATIBLE))
    with pytest.raises(SchemaRegistryError) as failed:
        client.register_schema(subject, Schema(CUSTOMER_INCOMPATIBLE))
    assert _error_codes(failed) == (409, 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in failed.value.error_message


def test_config(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility(subject, "FULL_TRANSITIVE")
    assert client.get_compatibility(subject) == "FULL_TRANSITIVE"
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE, compatibility_group="major"))
    config = client.get_config(subject)
    assert (config.compatibility_level, config.compatibility_group) == (ConfigCompatibilityLevel.NONE, "major")
    assert client.delete_config(subject).compatibility_level == ConfigCompatibilityLevel.NONE
    with pytest.raises(SchemaRegistryError) as failed:
        client.get_config(subject)
    assert _error_codes(failed) == (404, 40408)
    with pytest.raises(SchemaRegistryError) as failed:
        client.set_compatibility(subject, "MOSTLY")
    assert _error_codes(failed) == (422, 42203)


def test_mode(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_global_mode() == "READWRITE"
    assert client.update_global_mode("READWRITE") == "READWRITE"
    assert client.update_mode(subject, "READONLY", force=True) == "READONLY"
    assert client.get_mode(subject) == "READONLY"
    with pytest.raises(SchemaRegistryError) as failed:
        client.register_schema(subject, Schema(CUSTOMER))
    assert _error_codes(failed) == (422, 42205)
    assert client.delete_mode(subject) == "READONLY"
    client.register_schema(subject, Schema(CUSTOMER))


def test_delete(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, Schema(CUSTOMER))
    client.register_schema(subject, Schema(CUSTOMER_WITH_EMAIL))
    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]
    assert client.get_versions(subject, deleted=True) == [1, 2]
    assert client.get_version(subject, 1, deleted=True).version == 1
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert client.delete_subject(subject) == [2]
    assert subject in client.get_subjects(deleted=True)
    assert client.delete_subject(subject, permanent=True) == [2]
    with pytest.raises(SchemaRegistryError) as failed:
        client.get_versions(subject, deleted=True)
    assert _error_codes(failed) == (404, 40401)


def test_missing_subjects_and_versions(client: SchemaRegistryClient, subject: str) -> None:
    with pytest.raises(SchemaRegistryError) as failed:
        client.get_latest_version(subject)
    assert _error_codes(failed) == (404, 40401)
    with pytest.raises(SchemaRegistryError) as failed:
        client.get_schema(2**31 - 1)
    assert _error_codes(failed) == (404, 40403)
    with pytest.raises(SchemaRegistryError) as failed:
        client.register_schema(subject, Schema('{"type": "unknown"}'))
    assert _error_codes(failed) == (422, 42201)


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("JSON", '{"type":"object","properties":{"name":{"type":"string"}}}'),
        ("PROTOBUF", 'syntax = "proto3";\n\nmessage Customer {\n  string name = 1;\n}\n'),
    ],
)
def test_other_types(client: SchemaRegistryClient, subject: str, schema_type: str, text: str) -> None:
    schema_id = client.register_schema(subject, Schema(text, schema_type))
    client.clear_caches()
    read = client.get_schema(schema_id)
    assert (read.schema_type, read.schema_str) == (schema_type, text)


def test_contexts(client: SchemaRegistryClient, registry_url: str, subject: str) -> None:
    qualified = f":.sales:{subject}"
    schema_id = client.register_schema(qualified, Schema(CUSTOMER))
    assert ".sales" in client.get_contexts()
    with SchemaRegistryClient({"url": f"{registry_url}/contexts/.sales"}) as inside:
        assert inside.get_schema(schema_id).schema_str == CUSTOMER
        assert inside.get_latest_version(subject).subject == qualified


def test_passwords(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("alice: secret,admin\n")
    rest = Rest(
        authentication_method="BASIC",
        authentication_roles="admin",
        authentication_credentials_file=str(credentials),
    )
    with serve(rest.app) as url:
        with SchemaRegistryClient({"url": url, "basic.auth.user.info": "alice:secret"}) as client:
            assert client.register_schema("customers", Schema(CUSTOMER)) == 1
        with SchemaRegistryClient({"url": url}) as client, pytest.raises(SchemaRegistryError) as failed:
            client.get_subjects()
        assert _error_codes(failed) == (401, 401)
