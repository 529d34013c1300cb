"""The two brokers that Rookery's client must work with, Rookery and Apache Kafka, each in its own process."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from bench.systems import ApacheKafka
from tests.support.broker import start_broker

ROOT = Path(__file__).resolve().parent.parent.parent
JARS = Path(os.environ.get("ROOKERY_BENCH_JARS", ROOT / ".cache" / "java"))
BOTH = ("rookery", pytest.param("kafka", marks=pytest.mark.java))
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "86400000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def start(name: str, directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Run a broker with `SETTINGS` and `more`; yields its bootstrap address."""
    settings = {**SETTINGS, **more}
    if name == "rookery":
        with start_broker(directory / "data", *(f"{key}={value}" for key, value in settings.items())) as broker:
            yield broker.address
        return
    kafka = ApacheKafka(JARS).start(directory, settings)
    try:
        yield kafka.bootstrap
    finally:
        kafka.stop()
