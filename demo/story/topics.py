"""The topics of the demo: writes the activity of the website, and reads the output of the pipeline."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset

from demo.story.activity import NEWER_VIEW, USER, VIEW, Act
from demo.story.expectation import Counts, Enriched
from rookery.client.sync import Admin, Consumer, NewTopic, Producer, TopicPartition
from rookery.serdes import AvroSerializer, RegistryClient, Schema

VIEWS: Final = "page-views"
USERS: Final = "users"
COUNTS: Final = "views-per-minute"
DEAD_LETTERS: Final = f"{VIEWS}.dlq"
PARTITIONS: Final = 2


def create(address: str, registry: str) -> None:
    """Create topics and schemas, the newer one before its first record, since the pipeline reads with the latest."""
    with RegistryClient(registry) as client:
        for schema in (VIEW, NEWER_VIEW):
            client.register(f"{VIEWS}-value", Schema(json.dumps(schema)))
    with Admin({"bootstrap.servers": address}) as admin:
        admin.create_topics(
            [
                NewTopic(VIEWS, PARTITIONS),
                NewTopic(USERS, 1, configs={"cleanup.policy": "compact"}),
                NewTopic(COUNTS, PARTITIONS),
                NewTopic(DEAD_LETTERS, 1),
            ]
        )


class Website:
    """Writes acts: users and views as Avro, and malformed records unchanged."""

    def __init__(self, address: str, registry: str) -> None:
        self._client = RegistryClient(registry)
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        self._user = AvroSerializer(self._client, json.dumps(USER))
        self._views = {
            False: AvroSerializer(self._client, json.dumps(VIEW)),
            True: AvroSerializer(self._client, json.dumps(NEWER_VIEW)),
        }

    def play(self, act: Act) -> None:
        for name, person in act.users.items():
            self._producer.send(USERS, self._user(USERS, person), key=name.encode())
        self._producer.flush()
        gap = max(1, len(act.views) // (len(act.malformed) + 1))
        malformed = iter(act.malformed)
        for number, view in enumerate(act.views):
            self._producer.send(VIEWS, self._views[view.is_newer](VIEWS, view.fields()), key=view.user.encode())
            if number % gap == gap - 1 and (bad := next(malformed, None)) is not None:
                self._producer.send(VIEWS, bad)
        for bad in malformed:
            self._producer.send(VIEWS, bad)
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()
        self._client.close()


def read(address: str, topic: str) -> Iterable[tuple[bytes | None, bytes | None]]:
    """Return keys and values of all committed records."""
    settings = {"bootstrap.servers": address, "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        table = consumer.read_arrow(topic)
    return zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)


def read_counts(address: str) -> tuple[Counts, int]:
    """Return the counts of the output topic, and its number of records, one for each window and country."""
    rows: list[dict[str, Any]] = [json.loads(value or b"null") for _, value in read(address, COUNTS)]
    counts: Counts = Counter()
    for row in rows:
        counts[(datetime.fromisoformat(row["minute"]), row["country"])] += row["views"]
    return counts, len(rows)


def read_enriched(directory: Path) -> Counter[Enriched]:
    rows = pyarrow.dataset.dataset(_files(directory), format="parquet").to_table().to_pylist()
    return Counter((row["view"], row["page"], row["country"], row["referrer"]) for row in rows)


def _files(directory: Path) -> list[str]:
    """Return the files that Spark's log of the sink lists; other files were left by the killed process."""
    lines = [line for log in (directory / "_spark_metadata").iterdir() if log.suffix != ".crc" for line in log.open()]
    names = {json.loads(line)["path"].removeprefix("file://") for line in lines if line.startswith("{")}
    return sorted(names)


def read_dead_letters(address: str) -> Counter[bytes]:
    return Counter(value or b"" for _, value in read(address, DEAD_LETTERS))


def committed_lags(address: str, group: str) -> dict[str, int] | None:
    """Return the lag of a group by partition; None if it has committed nothing yet."""
    with Consumer({"bootstrap.servers": address, "group.id": group}) as consumer:
        partitions = [TopicPartition(VIEWS, index) for index in range(PARTITIONS)]
        committed = consumer.committed(partitions)
        if any(committed.get(tp) is None for tp in partitions):
            return None
        ends = consumer.end_offsets(partitions)
        return {str(tp): ends[tp] - committed[tp].offset for tp in partitions}
