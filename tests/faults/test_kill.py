"""Producers write while the broker is repeatedly killed with SIGKILL and restarted on the same port and directory.

Afterwards every acknowledged record is stored, in the order of its producer, and no record is stored twice: recovery
truncates only torn batches, and rebuilds the producers' state, without which a retry would be stored a second time. A
compacted topic may lose records, but never the last value of a key.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.producers import (
    STEADY_PRODUCERS,
    TIMEOUT_S,
    SteadyProducer,
    Stored,
    index_of,
    read_partition,
    wait_for_acknowledgements,
)
from tests.support.broker import start_broker

TOPIC = "survivors"
ACKNOWLEDGED_BETWEEN_KILLS = 300
SHORT_AND_LONG = pytest.mark.parametrize(
    "kills", [4, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(1_200)])], ids=["short", "long"]
)


@contextmanager
def killed_under_load(
    data_dir: Path, *settings: str, kills: int, topic: NewTopic, keys: int = 1_000, client: str = "confluent"
) -> Iterator[tuple[str, list[SteadyProducer]]]:
    """Kill a broker a number of times; yields its address and the producers that wrote to it meanwhile."""
    broker = start_broker(data_dir, *settings)
    make = STEADY_PRODUCERS[client]
    producers: list[SteadyProducer] = []
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        for name in ("first", "second"):
            producers.append(make(broker.address, TOPIC, name, partitions=topic.num_partitions, keys=keys))
        for _ in range(kills):
            wait_for_acknowledgements(producers, ACKNOWLEDGED_BETWEEN_KILLS)
            broker.kill()
            broker = start_broker(data_dir, *settings, port=broker.port)
        wait_for_acknowledgements(producers, ACKNOWLEDGED_BETWEEN_KILLS)
        for producer in producers:
            producer.stop()
            assert producer.failures == []
        yield broker.address, producers
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
    finally:
        for producer in producers:
            producer.stop()
        if broker.process.poll() is None:
            broker.kill()


@SHORT_AND_LONG
@pytest.mark.parametrize("client", STEADY_PRODUCERS)
def test_acknowledged_records_survive_sigkill(tmp_path: Path, client: str, kills: int) -> None:
    topic = NewTopic(TOPIC, 3, config={"segment.bytes": "1048576"})
    with killed_under_load(tmp_path / "data", kills=kills, topic=topic, client=client) as (address, producers):
        found = [list(read_partition(address, TOPIC, partition)) for partition in range(3)]
    for producer in producers:
        lost = set(producer.acknowledged) - {record for records in found for record in records}
        assert not lost, f"{len(lost)} acknowledged records are gone: {sorted(lost)[:3]}"
        for records in found:
            indexes = [index_of(record) for record in written_by(producer, records)]
            assert indexes == sorted(set(indexes)), "in order, no record twice"


@SHORT_AND_LONG
def test_compaction_survives_sigkill(tmp_path: Path, kills: int) -> None:
    """The cleaner runs continuously, so that some kills hit it while it replaces segments."""
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    topic = NewTopic(TOPIC, 1, config=config)
    settings = ("log.cleaner.backoff.ms=10", "log.flush.interval.ms=10", "log.flush.scheduler.interval.ms=10")
    with killed_under_load(tmp_path / "data", *settings, kills=kills, topic=topic, keys=20) as (address, producers):
        found = list(read_partition(address, TOPIC, 0))
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert len(found) < sum(len(producer.acknowledged) for producer in producers), "something was cleaned"
    for producer in producers:
        latest = {record.key: record for record in written_by(producer, found)}
        expected = {record.key: record for record in sorted(producer.acknowledged)}
        assert latest == expected


def written_by(producer: SteadyProducer, records: list[Stored]) -> list[Stored]:
    return [record for record in records if record.value.startswith(producer.name.encode() + b":")]
