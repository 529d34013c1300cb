"""A secured cluster as a user makes it: `secure init`, the printed commands, keys, foreign clients with their files."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from rookery.client.sync import Consumer as RookeryConsumer
from rookery.client.sync import Producer as RookeryProducer
from tests.support.broker import BrokerProcess, free_port, start_node
from tests.support.waiting import eventually

TIMEOUT_S = 30


class Cluster:
    """One node, started with the commands that `secure init` has printed."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.made = made
        self.admin_file = made["clients"]["properties"]

    def run(self, *arguments: str, exit_code: int = 0, stdin: str = "") -> Result:
        environment = {"ROOKERY_COMMAND_CONFIG": self.admin_file}
        result = CliRunner(env=environment).invoke(app, arguments, input=stdin)
        assert result.exit_code == exit_code, result.output
        return result

    def key(self, name: str, *options: str) -> dict[str, dict[str, Any]]:
        settings: dict[str, dict[str, Any]] = json.loads(self.run("keys", "create", name, *options, "--json").stdout)[
            "settings"
        ]
        return settings


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secured") / "cluster"
    node = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, ["secure", "init", str(directory), "--nodes", node, "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    format_, start, *_ = [shlex.split(line) for line in made["next"]]
    assert CliRunner().invoke(app, format_[1:]).exit_code == 0
    assert start[:3] == ["rookery", "start", "--config"]
    running: BrokerProcess
    with start_node(Path(start[3])) as running:
        assert running.address == made["bootstrap_servers"]
        secured = Cluster(made)
        for topic in ("orders", "secrets"):
            secured.run("topics", "create", topic)
        yield secured


def send(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """Produce one record with librdkafka; return the error of its delivery."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": TIMEOUT_S * 1000})
    producer.produce(topic, b"an apple", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def read(settings: dict[str, Any], topic: str, group: str) -> bytes:
    """Consume one record with librdkafka. Raises KafkaException for an error of the broker."""
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        messages: list[Message] = []

        def poll() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error():
                raise KafkaException(message.error())
            messages.extend([message] if message is not None else [])
            return bool(messages)

        eventually(poll, f"a record of {topic}")
        value = messages[0].value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def test_a_key_produces_and_consumes_with_the_printed_settings_and_nothing_else(cluster: Cluster) -> None:
    producer = cluster.key("order-service", "--produce", "orders")
    consumer = cluster.key("billing", "--consume", "orders", "--group", "billing")
    assert send(producer["librdkafka"], "orders") is None
    assert read(consumer["librdkafka"], "orders", "billing") == b"an apple"

    denied = send(producer["librdkafka"], "secrets")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as other_group:
        read(consumer["librdkafka"], "orders", "another")
    assert other_group.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as other_topic:
        read(consumer["librdkafka"], "secrets", "billing")
    assert other_topic.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    visible = AdminClient(producer["librdkafka"]).list_topics(timeout=TIMEOUT_S).topics
    assert list(visible) == ["orders"]


def test_a_key_works_with_rookerys_own_client(cluster: Cluster) -> None:
    settings = cluster.key("report", "--produce", "ord", "--consume", "ord", "--group", "rep", "--prefix")["rookery"]
    with RookeryProducer(settings) as producer:
        producer.send("orders", b"a pear").result(TIMEOUT_S)
    with RookeryConsumer({**settings, "group.id": "report", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        values: list[bytes | None] = []

        def poll() -> bool:
            values.extend(record.value for record in consumer.poll(0.2))
            return b"a pear" in values

        eventually(poll, lambda: f"a pear instead of {values}")


def test_explain_agrees_with_the_broker(cluster: Cluster) -> None:
    cluster.key("explained", "--produce", "orders")
    for topic, operation, allowed in (
        ("orders", "write", True),
        ("orders", "read", False),
        ("secrets", "write", False),
    ):
        question = ("acls", "explain", "-u", "explained", "-o", operation, "-t", topic, "--json")
        assert json.loads(cluster.run(*question).stdout)["allowed"] is allowed
    admin = json.loads(cluster.run("acls", "explain", "-u", "admin", "-o", "delete", "-t", "orders", "--json").stdout)
    assert (admin["rule"], admin["settings_known"]) == ("SuperUser", True)


def test_a_revoked_key_cannot_log_in(cluster: Cluster) -> None:
    settings = cluster.key("short-lived", "--produce", "orders")["librdkafka"]
    assert send(settings, "orders") is None
    cluster.run("keys", "revoke", "short-lived", "--yes")
    errors: list[KafkaError] = []
    with_callback: dict[str, Any] = {**settings, "error_cb": errors.append}
    admin = AdminClient(with_callback)

    def refused() -> bool:
        admin.poll(0.2)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    eventually(refused, lambda: f"a refused login instead of {errors}")


def test_the_commands_of_a_user_without_rights_say_why(cluster: Cluster, tmp_path: Path) -> None:
    from rookery.base.properties import properties_text

    path = tmp_path / "limited.properties"
    path.write_text(properties_text(cluster.key("limited", "--produce", "orders")["java"]))
    limited = Cluster({**cluster.made, "clients": {"properties": str(path)}})
    refused = limited.run("users", "list", exit_code=1)
    assert "rookery acls explain says why" in refused.output
    assert "(CLUSTER_AUTHORIZATION_FAILED)" in refused.output


def test_a_client_without_login_is_not_served(cluster: Cluster) -> None:
    result = CliRunner().invoke(
        app, ["topics", "list", "--timeout", "2", "--bootstrap-server", cluster.made["bootstrap_servers"]]
    )
    assert result.exit_code == 1


def test_the_settings_for_librdkafka_work(cluster: Cluster) -> None:
    text = Path(cluster.made["clients"]["librdkafka"]).read_text()
    settings: dict[str, Any] = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert {"orders", "secrets"} <= set(AdminClient(settings).list_topics(timeout=TIMEOUT_S).topics)
