"""Apache Kafka's tools for ACLs, SCRAM users, quotas and tokens with the broker, and its readers with our files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rookery.cli.commands import app
from rookery.testing import EmbeddedBroker
from tests.conformance.java_tools import run_tool
from tests.support.broker import BrokerProcess, start_broker
from tests.support.secured import PLAIN, SCRAM_256, jaas, plain_settings

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

SETTINGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "delegation.token.secret.key=secret",
)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Run a broker with an authorizer, whose super user is the anonymous client."""
    with start_broker(tmp_path / "data", *SETTINGS) as broker:
        yield broker


def acls(broker: BrokerProcess, *arguments: str, fails: bool = False) -> str:
    return run_tool("acls", "--bootstrap-server", broker.address, *arguments, fails=fails)


def configs(broker: BrokerProcess, action: str, *arguments: str, fails: bool = False) -> str:
    return run_tool("configs", "--bootstrap-server", broker.address, action, *arguments, fails=fails)


def metadata_records(tmp_path: Path) -> str:
    log = tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    return run_tool("dump-log", "--cluster-metadata-decoder", "--files", str(log))


def test_acls(guarded: BrokerProcess, tmp_path: Path) -> None:
    acls(guarded, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    acls(
        guarded,
        *("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read"),
        *("--topic", "ord", "--resource-pattern-type", "prefixed"),
    )
    listed = acls(guarded, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed
    assert "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)" in listed
    assert "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=DENY)" in listed
    acls(guarded, "--remove", "--force", "--topic", "orders")
    listed = acls(guarded, "--list")
    assert "User:alice" not in listed
    assert "User:bob" in listed
    guarded.stop()
    dumped = metadata_records(tmp_path)
    entries = re.findall(r'"type":"ACCESS_CONTROL_ENTRY_RECORD","version":0,"data":(\{.*?\})', dumped)
    assert len(entries) == 4
    assert '"resourceName":"ord","patternType":4,"principal":"User:bob","host":"10.0.0.1","operation":3' in entries[-1]
    assert dumped.count("REMOVE_ACCESS_CONTROL_ENTRY_RECORD") == 3


def test_acls_without_an_authorizer(tmp_path: Path) -> None:
    with start_broker(tmp_path / "data") as broker:
        assert "No Authorizer is configured" in acls(broker, "--list", fails=True)


def test_users_and_quotas(guarded: BrokerProcess, tmp_path: Path) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    configs(guarded, "--alter", *alice, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    configs(guarded, "--alter", *alice, "--add-config", "producer_byte_rate=1024")
    described = configs(guarded, "--describe", *alice)
    assert "producer_byte_rate=1024.0" in described
    assert "SCRAM-SHA-256=iterations=8192" in described
    default_client = (*alice, "--entity-type", "clients", "--entity-default")
    configs(guarded, "--alter", *default_client, "--add-config", "request_percentage=12.5")
    assert "request_percentage=12.5" in configs(guarded, "--describe", *default_client)
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    configs(guarded, "--alter", *address, "--add-config", "connection_creation_rate=7")
    assert "connection_creation_rate=7" in configs(guarded, "--describe", *address)
    configs(guarded, "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    configs(guarded, "--alter", *alice, "--delete-config", "producer_byte_rate")
    described = configs(guarded, "--describe", *alice)
    assert "producer_byte_rate" not in described
    assert "SCRAM" not in described
    guarded.stop()
    dumped = metadata_records(tmp_path)
    for record in ("USER_SCRAM_CREDENTIAL_RECORD", "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", "CLIENT_QUOTA_RECORD"):
        assert record in dumped
    assert '{"entityType":"client-id","entityName":null}' in dumped
    assert "secret" not in dumped


def test_tokens_need_a_login(guarded: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    refused = run_tool(
        "delegation-tokens",
        *("--bootstrap-server", guarded.address, "--command-config", str(tmp_path / "client.properties")),
        *("--create", "--max-life-time-period", "-1"),
        fails=True,
    )
    assert "DelegationTokenDisabledException" not in refused
    assert "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels" in refused


def test_tokens(tmp_path: Path) -> None:
    """A token that Kafka's tool creates is a login, until it ends."""
    protocol, login = "SASL_PLAINTEXT", jaas(PLAIN, username="alice", password="secret")
    settings = {
        **plain_settings(protocol, {"alice": "secret"}),
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM_256}",
        "delegation.token.secret.key": "key",
    }
    client = {"security.protocol": protocol, "sasl.mechanism": PLAIN, "sasl.jaas.config": login}
    with EmbeddedBroker(settings=settings, security_protocol=protocol, client_settings=client) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers, "--command-config")
        alice, token = tmp_path / "alice.properties", tmp_path / "token.properties"
        _write_client(alice, PLAIN, login)

        def tokens(*arguments: str) -> str:
            return run_tool("delegation-tokens", *server, str(alice), *arguments)

        created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:carol")
        row = next(line.split() for line in created.splitlines() if "User:alice" in line)
        token_id, hmac = row[0], row[1]
        assert token_id in tokens("--describe", "--owner-principal", "User:alice")
        _write_client(token, SCRAM_256, jaas(SCRAM_256, username=token_id, password=hmac, tokenauth="true"))
        run_tool("topics", *server, str(token), "--list")
        assert "Completed renew operation" in tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
        assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        refused = run_tool("topics", *server, str(token), "--list", fails=True)
        assert "Authentication failed" in refused


def _write_client(path: Path, mechanism: str, login: str) -> None:
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n")


def test_the_first_users_in_the_bootstrap_records(tmp_path: Path) -> None:
    """`kafka-storage format` and `rookery format` write the same record, salt and iterations given."""
    salt = "c2FsdHNhbHRzYWx0"
    user = f'SCRAM-SHA-512=[name="alice",iterations=5000,salt="{salt}",password="secret"]'
    dumps = []
    for name in ("theirs", "ours"):
        data, config = tmp_path / name, tmp_path / f"{name}.properties"
        config.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={data}\n"
        )
        arguments = ("format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config), "--standalone", "--add-scram", user)
        if name == "theirs":
            run_tool("storage", *arguments)
        else:
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, done.output
        dumped = run_tool("dump-log", "--cluster-metadata-decoder", "--files", str(data / "bootstrap.checkpoint"))
        (record,) = re.findall(r'"type":"USER_SCRAM_CREDENTIAL_RECORD".*', dumped)
        dumps.append(record)
    assert dumps[0] == dumps[1]
