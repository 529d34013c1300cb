"""Securing a running cluster as docs/securing.md says, with a client that writes all the time."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from typer.testing import CliRunner, Result

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.base.properties import properties_text
from rookery.cli.commands import app
from rookery.client.sync import Admin
from rookery.node.local_cluster import format_members, make_members, member_settings
from rookery.security.client_settings import ClientLogin, java_settings, librdkafka_settings, scram_jaas
from rookery.security.scram_credentials import ScramMechanism
from tests.support.broker import BrokerProcess, free_port, start_node
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def rookery(*arguments: object, config: Path | None = None) -> Result:
    environment = {} if config is None else {"ROOKERY_COMMAND_CONFIG": str(config)}
    result = CliRunner(env=environment).invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


class Nodes:
    """Three nodes with both roles on this machine, and their settings."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        ports = [(free_port(), free_port()) for _ in range(3)]
        self._members = make_members(directory, "127.0.0.1", ports)
        self._stack = stack
        self.secured_ports = [free_port() for _ in ports]
        self.settings = [member_settings(member, self._members) for member in self._members]
        self.processes: list[BrokerProcess] = []
        format_members(OsFiles(), self._members, self.settings, now_ms=SystemClock().now_ms())

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{member.port}" for member in self._members]

    @property
    def secured_addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.secured_ports]

    def start(self) -> None:
        """Start all at once: none serves before a majority runs."""
        started: list[BrokerProcess] = []

        def start(index: int) -> None:
            started.append(self._start(index))

        threads = [threading.Thread(target=start, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(started) == 3
        order = [str(member.directory) for member in self._members]
        self.processes = sorted(started, key=lambda node: order.index(str(node.log_path.parent)))

    def stop(self) -> None:
        for node in self.processes:
            node.process.terminate()
        for node in self.processes:
            assert node.stop() == 0

    def change(self, index: int, changes: dict[str, str]) -> None:
        self.settings[index] |= changes

    def listeners(self, *, plaintext: bool) -> list[dict[str, str]]:
        """Return the listeners of each node, with a secured one."""
        found = []
        for member, port in zip(self._members, self.secured_ports, strict=True):
            client = [f"SASL_SSL://127.0.0.1:{port}"]
            if plaintext:
                client.append(f"PLAINTEXT://127.0.0.1:{member.port}")
            between = f"CONTROLLER://127.0.0.1:{member.controller_port}"
            found.append({"listeners": ",".join([*client, between]), "advertised.listeners": ",".join(client)})
        return found

    def roll(self, admin: dict[str, Any]) -> None:
        """Restart one node after another; each waits until all replicas are in sync again."""
        for index in range(3):
            assert self.processes[index].stop() == 0
            self.processes[index] = self._start(index)
            wait_until_whole(admin)

    def _start(self, index: int) -> BrokerProcess:
        config = self._members[index].directory / "server.properties"
        config.write_text(properties_text(self.settings[index]))
        return self._stack.enter_context(start_node(config))


def wait_until_whole(settings: dict[str, Any]) -> None:
    with Admin(settings) as admin:
        eventually(lambda: _is_whole(admin), "all replicas in sync")


def _is_whole(admin: Admin) -> bool:
    if len(admin.describe_cluster().brokers) < 3:
        return False
    (orders,) = admin.describe_topics(["orders"])
    return all(len(partition.in_sync_replicas) == 3 for partition in orders.partitions)


@contextmanager
def traffic(settings: dict[str, Any]) -> Iterator[list[KafkaError | None]]:
    """Write records all the time; yields their outcomes, which are complete after the context."""
    outcomes: list[KafkaError | None] = []
    ended = threading.Event()
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "message.timeout.ms": 120_000})

    def write() -> None:
        while not ended.wait(0.01):
            producer.produce("orders", b"an order", on_delivery=lambda error, _: outcomes.append(error))
            producer.poll(0)
        assert producer.flush(120) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield outcomes
    finally:
        ended.set()
        thread.join()


def test_a_running_cluster_is_secured_without_downtime(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = Nodes(tmp_path / "cluster", stack)
        nodes.start()
        plain = {"bootstrap.servers": ",".join(nodes.addresses)}
        rookery("topics", "create", "orders", "-p", "3", "-b", nodes.addresses[0])
        files = tmp_path / "files"
        rookery("secure", "init", files, "--nodes", ",".join(nodes.secured_addresses))
        passwords = {
            user: json.loads(rookery("users", "create", user, "--generate", "--json", "-b", nodes.addresses[0]).stdout)[
                "password"
            ]
            for user in ("admin", "broker")
        }
        login = ClientLogin(
            bootstrap_servers=",".join(nodes.secured_addresses),
            user="admin",
            password=passwords["admin"],
            mechanism=ScramMechanism.SCRAM_SHA_512,
            protocol="SASL_SSL",
            trusted_file=str(files / "clients" / "ca.crt"),
        )
        admin_file = tmp_path / "admin.properties"
        admin_file.write_text(properties_text(java_settings(login)))

        with traffic(plain) as old_clients:
            _add_listeners(nodes, files, passwords["broker"])
            nodes.roll(plain)
            for index in range(3):
                nodes.change(index, {"inter.broker.listener.name": "SASL_SSL"})
            nodes.roll(java_settings(login))
            for index in range(3):
                nodes.change(
                    index,
                    {
                        "authorizer.class.name": AUTHORIZER,
                        "super.users": "User:admin;User:broker;User:ANONYMOUS",
                        "allow.everyone.if.no.acl.found": "true",
                    },
                )
            nodes.roll(java_settings(login))
            created = rookery("keys", "create", "app", "--produce", "orders", "--json", config=admin_file)
            key = json.loads(created.stdout)["settings"]["librdkafka"]
            eventually(lambda: len(old_clients) > 10, "records of the old client")
        assert [error for error in old_clients if error is not None] == []

        with traffic(key) as new_clients:
            for index, listeners in enumerate(nodes.listeners(plaintext=False)):
                nodes.change(index, {**listeners, "allow.everyone.if.no.acl.found": "false"})
            nodes.roll(java_settings(login))
        assert [error for error in new_clients if error is not None] == []
        assert new_clients

        _secure_controllers(nodes)
        written = len(old_clients) + len(new_clients)
        wait_until_whole(java_settings(login))
        assert _count(librdkafka_settings(login)) == written


def _add_listeners(nodes: Nodes, files: Path, password: str) -> None:
    for index, listeners in enumerate(nodes.listeners(plaintext=True)):
        directory = files / f"node-{index + 1}"
        nodes.change(
            index,
            {
                **listeners,
                "inter.broker.listener.name": "PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(directory / "node.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(directory / "ca.crt"),
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram_jaas("broker", password),
            },
        )


def _secure_controllers(nodes: Nodes) -> None:
    for index in range(3):
        nodes.change(
            index,
            {
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
                "listener.name.controller.ssl.client.auth": "required",
                "listener.name.controller.ssl.principal.mapping.rules": "RULE:^CN=(node-[0-9]+)$/$1/,DEFAULT",
                "super.users": "User:admin;User:broker;User:node-1;User:node-2;User:node-3",
            },
        )
    nodes.stop()
    nodes.start()


def _count(settings: dict[str, Any]) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**settings, "group.id": "counts"})
    try:
        ranges = [consumer.get_watermark_offsets(TopicPartition("orders", index), timeout=30) for index in range(3)]
        return sum(end - start for start, end in ranges)
    finally:
        consumer.close()
