"""ACLs and SCRAM users from the admin clients of confluent-kafka and kafka-python."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.conformance.clients import TIMEOUT_S
from tests.support.broker import start_broker

SETTINGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker with an authorizer, whose super user is the anonymous client; yields its address."""
    with start_broker(tmp_path_factory.mktemp("guarded") / "data", *SETTINGS) as broker:
        yield broker.address


@pytest.fixture
def confluent(guarded: str) -> Any:
    return AdminClient({"bootstrap.servers": guarded})


@pytest.fixture
def python(guarded: str) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=guarded)
    yield client
    client.close()


def binding(name: str, principal: str, operation: AclOperation = AclOperation.READ, **changes: Any) -> AclBinding:
    fields = {
        "restype": ResourceType.TOPIC,
        "resource_pattern_type": ResourcePatternType.LITERAL,
        "host": "*",
        "permission_type": AclPermissionType.ALLOW,
        **changes,
    }
    return AclBinding(name=name, principal=principal, operation=operation, **fields)


def every(**changes: Any) -> AclBindingFilter:
    fields = {
        "restype": ResourceType.ANY,
        "name": None,
        "resource_pattern_type": ResourcePatternType.ANY,
        "principal": None,
        "host": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
        **changes,
    }
    return AclBindingFilter(**fields)


def test_acls_with_confluent_kafka(confluent: Any) -> None:
    acls = [
        binding("orders", "User:alice"),
        binding("ord", "User:alice", AclOperation.WRITE, resource_pattern_type=ResourcePatternType.PREFIXED),
        binding("group", "User:alice", restype=ResourceType.GROUP),
        binding("kafka-cluster", "User:alice", AclOperation.ALTER, restype=ResourceType.BROKER),
        binding("payments", "User:alice", AclOperation.ALL, host="10.0.0.1", permission_type=AclPermissionType.DENY),
    ]
    for future in confluent.create_acls(acls).values():
        assert future.result(TIMEOUT_S) is None
    mine = every(principal="User:alice")
    assert sorted(confluent.describe_acls(mine).result(TIMEOUT_S)) == sorted(acls)
    covering = every(
        restype=ResourceType.TOPIC,
        name="orders",
        resource_pattern_type=ResourcePatternType.MATCH,
        principal="User:alice",
    )
    assert sorted(confluent.describe_acls(covering).result(TIMEOUT_S)) == sorted(acls[:2])
    denials = every(permission_type=AclPermissionType.DENY, principal="User:alice")
    assert confluent.delete_acls([denials])[denials].result(TIMEOUT_S) == [acls[4]]
    assert sorted(confluent.delete_acls([mine])[mine].result(TIMEOUT_S)) == sorted(acls[:4])
    assert confluent.describe_acls(mine).result(TIMEOUT_S) == []


def test_invalid_acls_with_confluent_kafka(confluent: Any) -> None:
    (future,) = confluent.create_acls([binding("orders", "alice")]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "Could not parse principal from `alice`" in caught.value.args[0].str()


def test_acls_without_an_authorizer(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.create_acls([binding("orders", "User:alice")]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED
    # librdkafka takes the error of a description for an empty list.
    python = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    with pytest.raises(kafka.errors.SecurityDisabledError):
        python.describe_acls(python_filter())
    python.close()


def python_filter() -> Any:
    return kafka.admin.ACLFilter(
        principal="User:bob",
        host=None,
        operation=kafka.admin.ACLOperation.ANY,
        permission_type=kafka.admin.ACLPermissionType.ANY,
        resource_pattern=kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.TOPIC, "orders", kafka.admin.ACLResourcePatternType.MATCH
        ),
    )


def test_acls_with_kafka_python(python: Any) -> None:
    acl = kafka.admin.ACL(
        principal="User:bob",
        host="*",
        operation=kafka.admin.ACLOperation.READ,
        permission_type=kafka.admin.ACLPermissionType.ALLOW,
        resource_pattern=kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, "orders"),
    )
    created = python.create_acls([acl])
    assert (created["succeeded"], created["failed"]) == ([acl], [])
    mine = python_filter()
    assert python.describe_acls(mine) == ([acl], kafka.errors.NoError)
    ((_, deleted, error),) = python.delete_acls([mine])
    assert (deleted, error) == ([acl], kafka.errors.NoError)
    assert python.describe_acls(mine) == ([], kafka.errors.NoError)


def test_scram_users_with_confluent_kafka(confluent: Any) -> None:
    sha_256 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    futures = confluent.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("alice", sha_256, b"secret", b"salt"),
            UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"secret"),
            UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_256),
        ]
    )
    assert futures["alice"].result(TIMEOUT_S) is None
    assert futures["bob"].result(TIMEOUT_S) is None
    with pytest.raises(KafkaException) as caught:
        futures["dave"].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    described = confluent.describe_user_scram_credentials(["alice"])["alice"].result(TIMEOUT_S)
    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    assert {"alice", "bob"} <= set(confluent.describe_user_scram_credentials().result(TIMEOUT_S))
    removed = confluent.alter_user_scram_credentials(
        [
            UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256),
            UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512),
        ]
    )
    for future in removed.values():
        future.result(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        confluent.describe_user_scram_credentials(["alice"])["alice"].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_scram_users_with_kafka_python(python: Any) -> None:
    mechanism = kafka.admin.ScramMechanism.SCRAM_SHA_512
    outcomes = python.alter_user_scram_credentials(
        [
            kafka.admin.UserScramCredentialUpsertion("erin", mechanism, "secret"),
            kafka.admin.UserScramCredentialUpsertion("frank", mechanism, "secret", iterations=100),
        ]
    )
    assert outcomes == {"erin": None, "frank": "Too few iterations"}
    described = python.describe_user_scram_credentials(["erin", "frank"])
    assert described["erin"]["credential_infos"] == [{"mechanism": mechanism, "iterations": 4096}]
    assert described["frank"]["error"] == "Attempt to describe a user credential that does not exist: frank"
    assert python.alter_user_scram_credentials([kafka.admin.UserScramCredentialDeletion("erin", mechanism)]) == {
        "erin": None
    }


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    for attempt in ("first start", "second start"):
        with start_broker(tmp_path / "data", *SETTINGS) as broker:
            admin: Any = AdminClient({"bootstrap.servers": broker.address})
            acl = binding("orders", "User:alice")
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            if attempt == "first start":
                admin.create_acls([acl])[acl].result(TIMEOUT_S)
                upsertion = UserScramCredentialUpsertion("alice", info, b"secret")
                admin.alter_user_scram_credentials([upsertion])["alice"].result(TIMEOUT_S)
            assert admin.describe_acls(every()).result(TIMEOUT_S) == [acl]
            assert list(admin.describe_user_scram_credentials().result(TIMEOUT_S)) == ["alice"]
