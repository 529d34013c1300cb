"""The topics of rows: created before a run and deleted afterwards."""

import contextlib
import time
import uuid
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient, NewTopic

from bench.model import Broker
from bench.probe import Probe, await_ready, serves_partitions

_TOPICS_PER_REQUEST = 250
_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.01
# Log only errors: the client logs every connection that it closes.
_LOG_LEVEL = 3


@contextlib.contextmanager
def topic(broker: Broker, partitions: int) -> Iterator[str]:
    """Create a topic with a leader in every partition, and delete it at the end."""
    with topics(broker, 1, partitions=partitions) as names:
        yield names[0]


@contextlib.contextmanager
def topics(broker: Broker, count: int, *, partitions: int) -> Iterator[list[str]]:
    """Create topics with a leader in every partition, and delete them at the end."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-{index:04}" for index in range(count)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": _LOG_LEVEL})
    try:
        for chunk in _chunks(names):
            new = [NewTopic(name, partitions, 1) for name in chunk]
            for created in admin.create_topics(new, request_timeout=_TIMEOUT_S).values():
                created.result()
        await_ready(broker.port, serves_partitions(dict.fromkeys(names, partitions)))
        yield names
    finally:
        for chunk in _chunks(names):
            for deleted in admin.delete_topics(chunk, request_timeout=_TIMEOUT_S).values():
                deleted.exception()


def count_records(broker: Broker, name: str, partitions: int) -> int:
    """Return the number of records in all partitions of a topic."""
    with Probe(broker.port) as probe:
        return sum(probe.end_offset(name, partition) for partition in range(partitions))


def await_count(broker: Broker, name: str, partitions: int, expected: int) -> None:
    """Wait until a topic has `expected` records and markers: Kafka confirms a commit before the markers are written."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (found := count_records(broker, name, partitions)) != expected:
        if found > expected or time.monotonic() > deadline:
            raise RuntimeError(f"the topic holds {found} records and markers instead of {expected}")
        time.sleep(_POLL_INTERVAL_S)


def partitions_text(count: int) -> str:
    """For titles."""
    return "1 partition" if count == 1 else f"{count} partitions"


def _chunks(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        yield names[start : start + _TOPICS_PER_REQUEST]
