"""Topics for both connectors to read, written with another client, librdkafka's producer.

`orders` has partitions of different lengths and an empty one; a record's timestamp encodes its partition and offset.
"""

from collections.abc import Mapping, Sequence

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = 1_700_000_000_000
STEP_MS = 1000
# The number of records in each partition.
ORDERS = (40, 25, 10, 0)
REFUNDS = (5,)
HEADERS: tuple[list[tuple[str, bytes | None]] | None, ...] = (
    None,
    [("origin", b"web")],
    [("origin", b"shop"), ("origin", b"again"), ("empty", b""), ("null", None), ("unicode-ä", b"\xff\x00")],
)
_TIMEOUT_S = 30
# The records are old.
_KEEP = {"retention.ms": "-1"}
# No transaction may time out while the tests run.
_LONG: Mapping[str, str | int] = {"transaction.timeout.ms": 900_000}

Headers = Sequence[tuple[str, bytes | None]]


def fill(bootstrap: str) -> None:
    create(bootstrap, "orders", partitions=len(ORDERS))
    create(bootstrap, "refunds", partitions=len(REFUNDS))
    for topic, sizes in (("orders", ORDERS), ("refunds", REFUNDS)):
        for partition, size in enumerate(sizes):
            send(bootstrap, topic, size, partition=partition)
    create(bootstrap, "appended", configs={"message.timestamp.type": "LogAppendTime"})
    send(bootstrap, "appended", 10)
    create(bootstrap, "nulls")
    _send_nulls(bootstrap)
    for codec in CODECS:
        create(bootstrap, f"codec-{codec}")
        send(bootstrap, f"codec-{codec}", 200, settings={"compression.type": codec, "linger.ms": 50})
    create(bootstrap, "transfers", partitions=2)
    _transact(bootstrap)


def create(bootstrap: str, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    # Its answers end with it.
    admin = _admin(bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1, config={**_KEEP, **(configs or {})})])[topic].result(_TIMEOUT_S)


def send(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    first: int = 0,
    settings: Mapping[str, str | int] | None = None,
) -> None:
    producer = _producer(bootstrap, **(settings or {}))
    for index in range(first, first + count):
        producer.produce(
            topic,
            b"%d-%d" % (partition, index),
            key=b"key-%d" % (index % 7),
            partition=partition,
            headers=list(HEADERS[index % len(HEADERS)] or ()),
            timestamp=FIRST_MS + partition * 100_000 + index * STEP_MS,
        )
    assert producer.flush(_TIMEOUT_S) == 0


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin, partition = _admin(bootstrap), ConfluentPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(_TIMEOUT_S)


def _send_nulls(bootstrap: str) -> None:
    """Send tombstones, records without a key, empty records, and one without key and value."""
    producer = _producer(bootstrap)
    for key, value in ((b"k", None), (None, b"v"), (b"", b""), (None, None), ("ä".encode(), b"\x00\xff")):
        producer.produce("nulls", value, key=key, timestamp=FIRST_MS)
    assert producer.flush(_TIMEOUT_S) == 0


def _transact(bootstrap: str) -> None:
    """Run transactions: committed, aborted, committed, and one at the end that stays open. So the offsets have gaps."""
    for index, commits in enumerate((True, False, True, None)):
        producer = _producer(bootstrap, **_LONG, **{"transactional.id": f"transfers-{index}"})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for number in range(6):
            producer.produce("transfers", b"%d-%d" % (index, number), partition=number % 2, timestamp=FIRST_MS)
        producer.flush(_TIMEOUT_S)
        if commits:
            producer.commit_transaction(_TIMEOUT_S)
        elif commits is False:
            producer.abort_transaction(_TIMEOUT_S)


def _producer(bootstrap: str, **settings: str | int) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
