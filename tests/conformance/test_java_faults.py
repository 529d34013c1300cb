"""Apache Kafka's verifiable producer and consumer on three Rookery brokers that are killed, suspended and stopped."""

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.java_tools import tool_command
from tests.faults.producers import TIMEOUT_S, read_partition
from tests.faults.test_cluster import PARTITIONS, TOPIC, Nemesis, three_brokers
from tests.support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]
PER_SECOND: Final = 300


class VerifiableClient:
    """A tool that prints an event in each line, and ends with SIGTERM."""

    def __init__(self, tool: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        command = tool_command(tool, *arguments)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, name=tool)
        self._reader.start()

    def values(self, name: str) -> list[int]:
        """Return the values of the events with this name."""
        return [int(event["value"]) for event in list(self.events) if event["name"] == name]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._reader.join(TIMEOUT_S)
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.events.extend(json.loads(line) for line in lines if line.startswith("{"))


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])], ids=["short", "long"]
)
def test_nothing_that_java_clients_were_promised_is_lost(tmp_path: Path, rounds: int) -> None:
    # Without this file the verifiable producer does not retry.
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    with three_brokers(tmp_path) as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(TIMEOUT_S)
        nemesis = Nemesis(cluster, TOPIC, PARTITIONS, seed=17)
        where = ("--bootstrap-server", bootstrap, "--topic", TOPIC)
        consumer = VerifiableClient(
            "verifiable-consumer", *where, *("--group-id", "readers", "--reset-policy", "earliest", "--verbose")
        )
        producer = VerifiableClient(
            "verifiable-producer", *where, *("--throughput", str(PER_SECOND), "--command-config", str(config))
        )
        try:
            for _ in range(rounds):
                _wait_for_more(producer)
                nemesis.strike()
            _wait_for_more(producer)
            producer.stop()
            acknowledged = set(producer.values("producer_send_success"))
            eventually(
                lambda: acknowledged <= set(consumer.values("record_data")),
                "the consumer has read all that was acknowledged",
                timeout_s=TIMEOUT_S,
            )
        finally:
            producer.stop()
            consumer.stop()
        stored = [
            [int(record.value) for record in read_partition(bootstrap, TOPIC, each)] for each in range(PARTITIONS)
        ]
    assert producer.values("producer_send_error") == []
    assert acknowledged <= {value for values in stored for value in values}
    for values in stored:
        assert values == sorted(set(values)), "in order, no record twice"


def _wait_for_more(producer: VerifiableClient) -> None:
    goal = len(producer.events) + PER_SECOND
    eventually(lambda: len(producer.events) >= goal, "the producer goes on", timeout_s=TIMEOUT_S)
