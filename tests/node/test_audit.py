"""The audit log of a running broker: what is in it, what is not, and who may read it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.base.config_access import AUTHORIZER, STANDARD_AUTHORIZER, SUPER_USERS
from rookery.base.errors import ConfigError, ErrorCode
from rookery.node.settings import Settings
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import iterate_headers
from rookery.records.record import decode_records
from rookery.testing import EmbeddedBroker
from tests.support import access_requests as make
from tests.support.access_cases import ADMIN, USER, outcome, parse_acls
from tests.support.secured import plain_settings
from tests.support.waiting import eventually
from tests.support.wire import WireClient

LISTENER = "SASL_PLAINTEXT"
PASSWORD = "top-secret-password"
SETTINGS = {
    AUTHORIZER: STANDARD_AUTHORIZER,
    SUPER_USERS: f"User:{ADMIN}",
    "delegation.token.secret.key": "top-secret-key",
    **plain_settings(LISTENER, {ADMIN: PASSWORD, USER: PASSWORD}),
}


def log_in(address: str, user: str, password: str = PASSWORD) -> tuple[WireClient, ErrorCode]:
    client = WireClient(address)
    client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    response = client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{password}".encode())
    return client, ErrorCode(response.error_code)


@contextmanager
def audited(settings: Mapping[str, str]) -> Iterator[tuple[WireClient, WireClient, str]]:
    """Run a broker; yields connections of the super user and of the other user, and the address."""
    with EmbeddedBroker(settings={**SETTINGS, **settings}, security_protocol=LISTENER) as broker:
        address = broker.bootstrap_servers
        (admin, _), (user, _) = log_in(address, ADMIN), log_in(address, USER)
        yield admin, user, address
        admin.socket.close()
        user.socket.close()


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_type(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line["data"] for line in read(path) if line["type"] == f"rookery.audit/{kind}"]


def change_something(admin: WireClient) -> None:
    admin.call(ApiKey.CREATE_ACLS, 3, **make.new_acls(make.ACL_OF_BOB))
    admin.call(ApiKey.DELETE_ACLS, 3, **make.deleted_acls("User:bob"))
    configs = [
        Message(name="retention.ms", config_operation=0, value="1000"),
        Message(name="ssl.keystore.password", config_operation=0, value="top-secret-value"),
    ]
    admin.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[Message(resource_type=2, resource_name="absent", configs=configs)],
        validate_only=False,
    )
    upsertion = Message(name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"s" * 32)
    admin.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[upsertion])
    admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, **make.CHANGED_QUOTAS)
    admin.call(ApiKey.CREATE_DELEGATION_TOKEN, 3, **make.token_of(ADMIN))


def test_decisions_logins_and_changes_are_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with audited({"rookery.audit.sink": "file", "rookery.audit.file": str(path)}) as (admin, user, address):
        user.call(ApiKey.METADATA, 12, **make.metadata("mine"))
        log_in(address, USER, "wrong-password")[0].socket.close()
        change_something(admin)
    (denied,) = of_type(path, "authorization")
    assert denied["methodName"] == "kafka.Metadata"
    assert denied["authenticationInfo"] == {"principal": f"User:{USER}"}
    assert denied["authorizationInfo"] == {
        "granted": False,
        "operation": "DESCRIBE",
        "resourceType": "TOPIC",
        "resourceName": "mine",
        "patternType": "LITERAL",
        "rule": "DefaultDeny",
    }
    logins = of_type(path, "authentication")
    assert [(each["result"]["status"], each["authenticationInfo"]["principal"]) for each in logins] == [
        ("SUCCESS", f"User:{ADMIN}"),
        ("SUCCESS", f"User:{USER}"),
        ("FAILURE", ""),
    ]
    changes = of_type(path, "change")
    assert [(each["change"], each["error"]) for each in changes] == [
        ("CreateAcl", None),
        ("DeleteAcl", None),
        ("AlterConfigs", "INVALID_CONFIG"),
        ("UpsertScramUser", None),
        ("AlterClientQuotas", None),
        ("CreateDelegationToken", None),
    ]
    assert changes[0]["acl"]["principal"] == "User:bob"
    assert changes[2]["configs"][0] == {"name": "retention.ms", "operation": "SET", "value": "1000"}
    text = path.read_text()
    for secret in ("top-secret", "wrong-password", "ssss", "salt"):
        assert secret not in text


def test_allowed_decisions_are_lines_if_wanted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {"rookery.audit.sink": "file", "rookery.audit.file": str(path), "rookery.audit.decisions": "all"}
    with audited(settings) as (admin, _, _):
        for _ in range(5):
            admin.call(ApiKey.METADATA, 12, **make.metadata("mine"))
    allowed = [each for each in of_type(path, "authorization") if each["methodName"] == "kafka.Metadata"]
    assert [each["authorizationInfo"]["rule"] for each in allowed] == ["SuperUser"]


def test_a_change_that_was_refused_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {"rookery.audit.sink": "file", "rookery.audit.file": str(path), "rookery.audit.decisions": "none"}
    with audited(settings) as (_, user, _):
        user.call(ApiKey.CREATE_ACLS, 3, **make.new_acls(make.ACL_OF_BOB))
    (change,) = of_type(path, "change")
    assert change["error"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert change["authenticationInfo"] == {"principal": f"User:{USER}"}
    assert of_type(path, "authorization") == []


def test_files_are_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {
        "rookery.audit.sink": "file",
        "rookery.audit.file": str(path),
        "rookery.audit.file.max.bytes": "10",
        "rookery.audit.file.count": "2",
        "rookery.audit.interval.ms": "0",
    }
    with audited(settings) as (_, user, _):
        for number in range(4):
            user.call(ApiKey.METADATA, 12, **make.metadata(f"topic-{number}"))
            wanted = f"topic-{number}"
            eventually(lambda wanted=wanted: path.exists() and wanted in path.read_text(), "a line")  # type: ignore[misc]  # a default argument
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1"]
    assert "topic-2" in (tmp_path / "audit.log.1").read_text()


def fetched(client: WireClient) -> Message:
    return client.call(ApiKey.FETCH, 12, **make.fetch([make.fetched(topic="__audit_log")], max_bytes=1_000_000))


def test_a_topic_that_only_super_users_read(tmp_path: Path) -> None:
    with audited({"rookery.audit.sink": "topic"}) as (admin, user, _):
        admin.call(ApiKey.CREATE_ACLS, 3, **make.new_acls(*parse_acls("ALL topic *, ALL cluster")))
        user.call(ApiKey.METADATA, 12, **make.metadata("mine"))
        user.call(ApiKey.JOIN_GROUP, 7, **make.JOIN)

        def lines() -> list[dict[str, Any]]:
            data = fetched(admin).responses[0].partitions[0].records or b""
            batches = [data[start : start + 12 + header.batch_length] for start, header in iterate_headers(data)]
            return [json.loads(record.value or b"") for batch in batches for record in decode_records(batch)]

        eventually(lambda: any(line["type"] == "rookery.audit/authorization" for line in lines()), "the denied group")
        assert outcome(fetched(user), {}) == "__audit_log NO_TOPIC, ok"
        assert outcome(user.call(ApiKey.PRODUCE, 9, **make.produce("__audit_log")), {}) == "__audit_log NO_TOPIC"
        deletion = make.deleted(make.named("__audit_log"))
        assert outcome(user.call(ApiKey.DELETE_TOPICS, 6, **deletion), {}) == "__audit_log NO_TOPIC"
        everything = outcome(user.call(ApiKey.METADATA, 12, **make.ALL_TOPICS), {})
        assert "__audit_log" not in everything


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rookery.audit.sink=file", "rookery.audit.sink=file needs rookery.audit.file"),
        ("rookery.audit.sink=topic", "rookery.audit.sink=topic needs an authorizer"),
        ("rookery.audit.sink=syslog", "Invalid value syslog"),
        (
            f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@h:1\ncontroller.listener.names=C\n"
            f"listeners=C://h:1\nlistener.security.protocol.map=C:PLAINTEXT\n"
            f"rookery.audit.sink=topic\n{AUTHORIZER}={STANDARD_AUTHORIZER}",
            "works on brokers only",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{text}\nlog.dirs={tmp_path / 'data'}\n")
    with pytest.raises(ConfigError, match=complaint):
        Settings.load(path)
