"""Three brokers in processes of their own, under foreign clients, while they are killed, suspended and stopped.

With three replicas and `min.insync.replicas=2`, no single failure may lose a record that was acknowledged with
acks=all, store one twice, or tear a transaction. Each round hits one random broker, which leads some partitions,
follows in others, coordinates groups and transactions, and may be the active controller.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing import EmbeddedCluster
from tests.conformance.transactors import AioKafkaTransactor
from tests.faults.bank_building import MIXED
from tests.faults.producers import (
    TIMEOUT_S,
    SteadyAiokafka,
    SteadyConfluent,
    SteadyProducer,
    SteadyRookery,
    index_of,
    read_partition,
    wait_for_acknowledgements,
)
from tests.faults.steady_transactions import SteadyTransactions
from tests.faults.test_bank import SETTINGS, run_bank
from tests.faults.test_kill import written_by

TOPIC: Final = "survivors"
PARTITIONS: Final = 3
ACKNOWLEDGED_BETWEEN_FAULTS: Final = 300
COMMITTED_BETWEEN_FAULTS: Final = 10
# Longer than a fetch time-out of the quorum, and shorter than a broker's lease.
PAUSE_S: Final = 3.0
CLUSTER_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    **dict(setting.split("=") for setting in SETTINGS),
}


class Nemesis:
    """Hits one random broker at a time, which is well again when `strike` returns."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, partitions: int, *, seed: int) -> None:
        self._cluster = cluster
        self._places = [(topic, index) for index in range(partitions)]
        self._random = random.Random(seed)
        self._faults: list[Callable[[int], None]] = [self._kill, self._suspend, self._stop]
        self._next = 0

    def strike(self) -> None:
        fault = self._faults[self._next % len(self._faults)]
        self._next += 1
        node = self._random.choice(self._cluster.nodes)
        fault(node)
        # With two replicas down at once, writes would have to wait, and nothing more would be tested.
        for topic, partition in self._places:
            self._cluster.in_sync_replicas(topic, partition, at_least=3, timeout_s=TIMEOUT_S)

    def _kill(self, node: int) -> None:
        self._cluster.restart(node, clean=False)

    def _suspend(self, node: int) -> None:
        self._cluster.pause(node)
        time.sleep(PAUSE_S)
        self._cluster.resume(node)

    def _stop(self, node: int) -> None:
        self._cluster.restart(node, clean=True)


@contextmanager
def three_brokers(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, mode="process", settings=CLUSTER_SETTINGS, data_dir=tmp_path / "data") as cluster:
        yield cluster
    logs = {path: path.read_text() for path in (tmp_path / "data").glob("**/broker.log")}
    assert len(logs) == 3
    for path, text in logs.items():
        assert "Traceback" not in text, f"{path.parent.name}: {text}"


LONG: Final = [pytest.mark.long, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize(
    ("make", "rounds"),
    [
        pytest.param(SteadyConfluent, 3, id="confluent-short"),
        pytest.param(SteadyRookery, 3, id="rookery-short"),
        pytest.param(SteadyConfluent, 30, marks=LONG, id="confluent-long"),
        pytest.param(SteadyRookery, 30, marks=LONG, id="rookery-long"),
        pytest.param(SteadyAiokafka, 30, marks=LONG, id="aiokafka-long"),
    ],
)
@pytest.mark.timeout(600)
def test_acknowledged_records_survive(tmp_path: Path, make: type[SteadyProducer], rounds: int) -> None:
    with three_brokers(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(TIMEOUT_S)
        nemesis, producers = Nemesis(cluster, TOPIC, PARTITIONS, seed=7), list[SteadyProducer]()
        try:
            for name in ("first", "second"):
                producers.append(make(cluster.bootstrap_servers, TOPIC, name, partitions=PARTITIONS, keys=1_000))
            for _ in range(rounds):
                wait_for_acknowledgements(producers, ACKNOWLEDGED_BETWEEN_FAULTS)
                nemesis.strike()
            wait_for_acknowledgements(producers, ACKNOWLEDGED_BETWEEN_FAULTS)
        finally:
            for producer in producers:
                producer.stop()
        found = [list(read_partition(cluster.bootstrap_servers, TOPIC, index)) for index in range(PARTITIONS)]
    for producer in producers:
        assert producer.failures == []
        lost = set(producer.acknowledged) - {record for records in found for record in records}
        assert not lost, f"{len(lost)} acknowledged records are gone: {sorted(lost)[:3]}"
        for records in found:
            indexes = [index_of(record) for record in written_by(producer, records)]
            assert indexes == sorted(set(indexes)), "in order, no record twice"


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])], ids=["short", "long"]
)
@pytest.mark.timeout(600)
def test_a_bank_survives(tmp_path: Path, rounds: int) -> None:
    with three_brokers(tmp_path) as cluster:
        nemesis = Nemesis(cluster, "__transaction_state", 1, seed=11)
        run_bank(cluster.bootstrap_servers, tmp_path / "staff", nemesis.strike, rounds=rounds, clients=MIXED)


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=LONG)], ids=["short", "long"])
@pytest.mark.timeout(600)
def test_transactions_of_aiokafka_stay_whole(tmp_path: Path, rounds: int) -> None:
    with three_brokers(tmp_path) as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(TIMEOUT_S)
        nemesis = Nemesis(cluster, TOPIC, PARTITIONS, seed=13)
        writer = SteadyTransactions(lambda: AioKafkaTransactor(bootstrap, "writer"), TOPIC, partitions=PARTITIONS)
        try:
            for _ in range(rounds):
                writer.wait(COMMITTED_BETWEEN_FAULTS)
                nemesis.strike()
            writer.wait(COMMITTED_BETWEEN_FAULTS)
        finally:
            writer.stop()
        writer.check(bootstrap)
