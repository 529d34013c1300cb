"""`rookery users`, `acls`, `keys` and `quotas` against a broker with an authorizer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from rookery.testing import EmbeddedBroker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    for user in found(broker, "users", "list"):
        rookery(broker, "users", "delete", user["user"], "--yes")
    if found(broker, "acls", "list"):
        for user in {rule["principal"] for rule in found(broker, "acls", "list")}:
            rookery(broker, "acls", "delete", "--user", user, "--yes")


def rookery(broker: EmbeddedBroker, *arguments: str, stdin: str = "", exit_code: int = 0) -> Result:
    environment = {"ROOKERY_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    result = CliRunner(env=environment).invoke(app, arguments, input=stdin)
    assert result.exit_code == exit_code, result.output
    return result


def found(broker: EmbeddedBroker, *arguments: str) -> Any:
    return json.loads(rookery(broker, *arguments, "--json").stdout)


def test_users(broker: EmbeddedBroker, tmp_path: Path) -> None:
    made = found(broker, "users", "create", "alice", "--generate")
    assert len(made["password"]) == 32
    password = tmp_path / "password"
    password.write_text("very secret\n")
    rookery(
        broker,
        "users",
        "create",
        "bob",
        "--password-file",
        str(password),
        "--mechanism",
        "sha-256",
        "--iterations",
        "4096",
    )
    assert found(broker, "users", "list") == [
        {"user": "alice", "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]},
        {"user": "bob", "mechanisms": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]},
    ]
    exists = rookery(broker, "users", "create", "bob", "--password-file", "-", stdin="other", exit_code=1)
    assert "user bob exists already: rookery users create bob --replace" in exists.output
    replaced = rookery(broker, "users", "create", "bob", "--replace", "--password-file", "-", stdin="other")
    assert replaced.output == "set the password of user bob (SCRAM-SHA-512)\n"
    deleted = found(broker, "users", "delete", "bob", "--yes")
    assert deleted == [{"user": "bob", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "remaining_rules": 0}]


def test_mistakes_with_users(broker: EmbeddedBroker) -> None:
    rookery(broker, "users", "create", "alice", "--generate")
    unknown = rookery(broker, "users", "delete", "alise", "--yes", exit_code=1)
    assert "did you mean alice?" in unknown.output
    assert "there is no terminal" in rookery(broker, "users", "create", "carol", exit_code=1).output
    many = rookery(broker, "users", "create", "carol", "--password-file", "-", stdin="a\nb\n", exit_code=1)
    assert "on one line" in many.output
    assert "'User:carol' must be the bare name" in rookery(broker, "users", "create", "User:carol", exit_code=2).output
    low = rookery(broker, "users", "create", "carol", "--generate", "--iterations", "100", exit_code=2)
    assert "--iterations is 100: it must be from 4096 to 16384" in low.output
    wrong = rookery(broker, "users", "create", "carol", "--generate", "--mechanism", "md5", exit_code=2)
    assert "'md5' is not one of SCRAM-SHA-256, SCRAM-SHA-512" in wrong.output
    assert "add --yes" in rookery(broker, "users", "delete", "alice", exit_code=1).output


def test_rules_are_added_listed_and_deleted(broker: EmbeddedBroker) -> None:
    added = rookery(broker, "acls", "add", "-u", "alice", "-o", "read", "-o", "describe", "-t", "orders")
    assert added.stdout == "added: user alice may read topic orders\nadded: user alice may describe topic orders\n"
    rookery(broker, "acls", "add", "-u", "bob", "-o", "write", "-t", "or", "--prefix", "--host", "10.0.0.1")
    rookery(broker, "acls", "add", "-u", "*", "-o", "delete", "-t", "*", "--deny")
    covering = found(broker, "acls", "list", "--topic", "orders")
    assert len(covering) == 4
    assert {
        "principal": "User:bob",
        "permission": "ALLOW",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "or",
        "pattern": "PREFIXED",
        "host": "10.0.0.1",
    } in covering
    assert len(found(broker, "acls", "list", "--user", "alice", "--operation", "read")) == 1
    assert "prefixed" in rookery(broker, "acls", "list").stdout
    refused = rookery(broker, "acls", "delete", "--user", "alice", exit_code=1)
    assert "Delete these 2 rules?" in refused.output
    assert "user alice may read topic orders" in refused.output
    gone = rookery(broker, "acls", "delete", "--user", "alice", "--operation", "read", "--yes")
    assert gone.stdout == "deleted: user alice may read topic orders\n"
    nothing = rookery(broker, "acls", "delete", "--topic", "orders", "--operation", "write", "--yes", exit_code=1)
    assert "no rule has all of this" in nothing.output


def test_wrong_rules_are_refused_before_anything_is_sent(broker: EmbeddedBroker) -> None:
    for arguments, sentence in (
        (["add", "-u", "a", "-o", "raed", "-t", "x"], "did you mean read?"),
        (["add", "-u", "a", "-o", "write", "-g", "x"], "operation write has no meaning for a group"),
        (["add", "-u", "a", "-o", "read"], "name a resource"),
        (["add", "-u", "a", "-o", "read", "-t", "*", "--prefix"], "leave --prefix out"),
        (["delete", "--yes"], "name a user or a resource"),
        (["explain", "-u", "a", "-o", "read", "-t", "x", "-g", "y"], "name one resource, not 2"),
        (["preset", "prodcuer", "-u", "a"], "'prodcuer' must be one of producer"),
    ):
        assert sentence in rookery(broker, "acls", *arguments, exit_code=2).output.replace("\n", " ")
    assert found(broker, "acls", "list") == []


def test_a_preset_and_its_dry_run(broker: EmbeddedBroker) -> None:
    tried = rookery(broker, "acls", "preset", "consumer", "-u", "bob", "-t", "orders", "-g", "billing", "--dry-run")
    assert tried.stdout.splitlines() == [
        "would add: user bob may read topic orders",
        "would add: user bob may describe topic orders",
        "would add: user bob may read group billing",
    ]
    assert found(broker, "acls", "list") == []
    added = found(broker, "acls", "preset", "consumer", "-u", "bob", "-t", "orders", "-g", "billing")
    assert len(added) == 3 == len(found(broker, "acls", "list"))


def test_explain(broker: EmbeddedBroker) -> None:
    question = ("acls", "explain", "-u", "alice", "-o", "write", "-t", "orders")
    nothing = found(broker, *question)
    assert (nothing["allowed"], nothing["rule"], nothing["entry"]) == (False, "DefaultDeny", None)
    (change,) = nothing["changes"]
    assert change["command"] == "rookery acls add --user alice --operation write --topic orders"
    assert "DENIED: user alice may not write topic orders" in rookery(broker, *question).output
    rookery(broker, *change["command"].split()[1:])
    allowed = found(broker, *question)
    assert (allowed["allowed"], allowed["entry"]["operation"]) == (True, "WRITE")
    rookery(broker, "acls", "add", "-u", "*", "-o", "all", "-t", "or", "--prefix", "--deny")
    denied = rookery(broker, *question).output
    assert "because of the rule: every user must not do everything with topics that begin with or" in denied
    assert "rookery acls delete --user '*' --operation all --topic or --prefix --deny" in denied
    root = found(broker, "acls", "explain", "-u", "root", "-o", "write", "-t", "orders")
    assert (root["allowed"], root["setting"]) == (True, "super.users")


def test_keys(broker: EmbeddedBroker) -> None:
    made = found(broker, "keys", "create", "billing", "--consume", "orders", "--group", "billing")
    rdkafka = made["settings"]["librdkafka"]
    assert rdkafka["sasl.username"] == "billing"
    assert rdkafka["bootstrap.servers"] == broker.bootstrap_servers
    assert made["settings"]["java"] == made["settings"]["rookery"]
    rookery(broker, "users", "create", "alice", "--generate")
    assert found(broker, "keys", "list") == [
        {
            "key": "billing",
            "mechanisms": ["SCRAM-SHA-512"],
            "produce": [],
            "consume": ["orders"],
            "groups": ["billing"],
            "rules": 3,
        }
    ]
    again = rookery(broker, "keys", "create", "billing", "--produce", "orders", exit_code=1)
    assert "there is a user billing already" in again.output
    assert rookery(broker, "keys", "revoke", "billing", "--yes").output == "revoked key billing and deleted 3 rules\n"
    assert found(broker, "keys", "list") == found(broker, "acls", "list") == []


def test_a_key_does_not_inherit_rules(broker: EmbeddedBroker) -> None:
    rookery(broker, "acls", "add", "-u", "billing", "-o", "all", "-t", "*")
    refused = rookery(broker, "keys", "create", "billing", "--produce", "orders", exit_code=1)
    assert "an earlier user billing has left 1 rule" in refused.output
    assert found(broker, "users", "list") == []


def test_keys_as_files(broker: EmbeddedBroker) -> None:
    printed = rookery(broker, "keys", "create", "one", "--produce", "orders", "--format", "librdkafka").stdout
    settings = dict(line.split("=", 1) for line in printed.splitlines())
    assert settings["sasl.username"] == "one"
    everything = rookery(broker, "keys", "create", "two", "--produce", "orders")
    assert "# Java\n" in everything.stdout
    assert "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required" in everything.stdout
    assert "config = {\n" in everything.stdout
    assert "listener without login" in everything.stderr


def test_quotas(broker: EmbeddedBroker) -> None:
    done = rookery(broker, "quotas", "set", "--user", "alice", "--produce-rate", "10MB", "--consume-rate", "20000000")
    assert done.stdout.splitlines()[0] == "set producer_byte_rate of user alice: 10,000,000 bytes/s"
    rookery(broker, "quotas", "set", "--default-user", "--client-id", "batch", "--request-percentage", "50")
    rookery(broker, "quotas", "set", "--default-ip", "--connection-rate", "20")
    (alice,) = found(broker, "quotas", "list", "--user", "alice")
    assert alice == {
        "entity": [{"type": "user", "name": "alice", "default": False}],
        "quotas": {"producer_byte_rate": 10_000_000.0, "consumer_byte_rate": 20_000_000.0},
    }
    assert len(found(broker, "quotas", "list")) == 3
    assert "(default)" in rookery(broker, "quotas", "list").stdout
    missing = rookery(broker, "quotas", "delete", "--user", "alice", "--quota", "request_percentage", exit_code=1)
    assert "user alice has no quota request_percentage; it has" in missing.output
    rookery(broker, "quotas", "delete", "--user", "alice", "--quota", "producer_byte_rate")
    rookery(broker, "quotas", "delete", "--user", "alice")
    none = rookery(broker, "quotas", "delete", "--user", "alice", exit_code=1)
    assert "user alice has no quotas" in none.output
    assert (
        "does not apply to ip"
        in rookery(broker, "quotas", "set", "--ip", "10.0.0.1", "--produce-rate", "1", exit_code=2).output
    )
    rookery(broker, "quotas", "delete", "--default-user", "--client-id", "batch")
    rookery(broker, "quotas", "delete", "--default-ip")


def test_without_an_authorizer(rookery: EmbeddedBroker) -> None:
    options = ["--bootstrap-server", rookery.bootstrap_servers]
    result = CliRunner().invoke(app, ["acls", "list", *options])
    assert result.exit_code == 1
    assert "the brokers have no authorizer" in result.output
