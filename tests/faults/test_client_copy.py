"""Copiers copy a topic in transactions, while they and their broker are repeatedly killed.

Afterwards the copy equals the source: every record once, in the order of its partition. No record is lost between read
and write, none is copied by two copiers, and no record of an aborted transaction is visible.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from rookery.client import TopicPartition
from rookery.client.admin import NewTopic
from rookery.client.sync import Admin, Consumer, Producer
from tests.faults.bank import COMMITTED, read_journal
from tests.faults.copy_worker import GROUP, SOURCE, TARGET, Options
from tests.support.broker import BrokerProcess, start_broker
from tests.support.waiting import eventually

PARTITIONS = 3
COPIERS = ("ann", "bob")
BROKER = "the broker"
RECORDS_PER_KILL = 150
COMMITS_BETWEEN_KILLS = 4
DEADLINE_S = 100.0
SETTINGS = (
    "group.min.session.timeout.ms=500",
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.session.timeout.ms=500",
    "group.consumer.session.timeout.ms=2000",
    "group.consumer.min.heartbeat.interval.ms=50",
    "group.consumer.heartbeat.interval.ms=200",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)


class Copiers:
    """The processes, their journals and their standard error."""

    def __init__(self, bootstrap: str, directory: Path, *, seed: int, group_protocol: str) -> None:
        directory.mkdir(exist_ok=True)
        self._bootstrap = bootstrap
        self._directory = directory
        self._seed = seed
        self._group_protocol = group_protocol
        self._generations = dict.fromkeys(COPIERS, 0)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        options = Options(
            name=name,
            generation=self._generations[name],
            bootstrap=self._bootstrap,
            journal=str(self._journal(name)),
            seed=self._seed,
            group_protocol=self._group_protocol,
        )
        self._generations[name] += 1
        command = [sys.executable, "-m", "tests.faults.copy_worker", json.dumps(asdict(options))]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """Kill a copier with SIGKILL, at any point of its work."""
        self._processes[name].kill()
        assert self._processes[name].wait() == -signal.SIGKILL, self.logs()

    def stop(self) -> None:
        """Stop all copiers with SIGTERM: each ends its transaction first, and leaves the group."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            # A copier that was just started has no signal handler yet, and is ended by the signal.
            assert process.wait(DEADLINE_S) in (0, -signal.SIGTERM), self.logs()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def commits(self) -> int:
        return sum(event == COMMITTED for name in COPIERS for event, _ in read_journal(self._journal(name)))

    def await_commits(self, goal: int) -> None:
        eventually(lambda: self.commits() >= goal, self.logs, timeout_s=DEADLINE_S)

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-3_000:]}" for path in sorted(self._directory.iterdir())
        )

    def _journal(self, name: str) -> Path:
        return self._directory / f"{name}.journal"


def fill(bootstrap: str, count: int) -> None:
    with Producer[bytes, bytes]({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            producer.send(SOURCE, b"%d" % number, partition=number % PARTITIONS)


def await_copied(bootstrap: str, copiers: Copiers) -> None:
    """Wait until the group has reached the end of the source."""
    places = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
    with Consumer[bytes, bytes]({"bootstrap.servers": bootstrap, "group.id": GROUP}) as consumer:
        ends = consumer.end_offsets(places)

        def is_done() -> bool:
            return {tp: offset.offset for tp, offset in consumer.committed(places).items()} == ends

        eventually(is_done, copiers.logs, timeout_s=DEADLINE_S)


def read_all(bootstrap: str, topic: str) -> Iterator[list[bytes]]:
    """Yield the committed records of each partition."""
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    for index in range(PARTITIONS):
        place = TopicPartition(topic, index)
        with Consumer[bytes, bytes](settings) as consumer:
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            values: list[bytes] = []
            while consumer.position(place) < end:
                values += [record.value or b"" for record in consumer.poll(0.1)]
        yield values


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(2, marks=pytest.mark.timeout(300), id="short"),
        pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(1_800)], id="long"),
    ],
)
def test_a_copy_is_exact_after_kills(tmp_path: Path, rounds: int, group_protocol: str) -> None:
    """The broker and each copier are killed once per round, in random order."""
    seed = 7
    randomness = random.Random(seed)
    brokers = [start_broker(tmp_path / "data", *SETTINGS)]
    bootstrap = brokers[0].address
    victims = [victim for _ in range(rounds) for victim in randomness.sample([BROKER, *COPIERS], k=3)]
    try:
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(name=name, partitions=PARTITIONS) for name in (SOURCE, TARGET)])
        with closing(Copiers(bootstrap, tmp_path / "copiers", seed=seed, group_protocol=group_protocol)) as copiers:
            for name in COPIERS:
                copiers.start(name)
            for victim in victims:
                # Counted before the records are written: on a slow machine they are copied during the write.
                goal = copiers.commits() + COMMITS_BETWEEN_KILLS
                fill(bootstrap, RECORDS_PER_KILL)
                copiers.await_commits(goal)
                time.sleep(randomness.uniform(0.0, 0.05))
                if victim == BROKER:
                    restart(brokers, tmp_path / "data")
                else:
                    copiers.kill(victim)
                    copiers.start(victim)
            await_copied(bootstrap, copiers)
            copiers.stop()
            assert list(read_all(bootstrap, TARGET)) == list(read_all(bootstrap, SOURCE)), copiers.logs()
        assert brokers[-1].stop() == 0
        assert "Traceback" not in brokers[-1].log()
    finally:
        if brokers[-1].process.poll() is None:
            brokers[-1].kill()


def restart(brokers: list[BrokerProcess], data_dir: Path) -> None:
    brokers[-1].kill()
    brokers.append(start_broker(data_dir, *SETTINGS, port=brokers[0].port))
