"""The delivery reports of confluent-kafka for topics that check schema ids.

Most tests write the registry's log themselves. Apache Kafka has no such topics, so the broker is always Rookery.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from rookery.testing import EmbeddedBroker
from tests.conformance.clients import TIMEOUT_S, confluent_consumer, confluent_read
from tests.support.broker import start_broker

SCHEMAS = "_schemas"
CHECKED = {"confluent.value.schema.validation": "true"}


@pytest.fixture(scope="module")
def checking_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_broker(tmp_path_factory.mktemp("broker") / "data", "transaction.state.log.num.partitions=1") as broker:
        create(broker.address, SCHEMAS, {"cleanup.policy": "compact"})
        yield broker.address


def create(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, config=configs)])[topic].result(TIMEOUT_S)


def register(bootstrap: str, subject: str, schema_id: int) -> None:
    """Write a schema to the log like a registry; its version is the id."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": schema_id, "magic": 1}
    value = {"subject": subject, "version": schema_id, "id": schema_id, "schema": f'"{schema_id}"', "deleted": False}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(SCHEMAS, msgspec.json.encode(value), msgspec.json.encode(key))
    assert producer.flush(TIMEOUT_S) == 0


def framed(schema_id: int, text: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text


def new_id() -> int:
    """Return an id that no other test registers."""
    return uuid.uuid4().int % 2**31


class Reporter:
    """A producer, and the codes and offsets of its delivery reports in order."""

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        named = {name.replace("_", "."): setting for name, setting in settings.items()}
        config: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 0, "message.timeout.ms": 20_000, **named}
        self.producer = confluent_kafka.Producer(config)
        self.codes: list[int] = []
        self.offsets: list[int | None] = []
        self._topic = topic

    def send(self, *values: bytes | None) -> list[int]:
        """Send values and wait for their reports; returns the codes of all reports."""
        for value in values:
            self.producer.produce(self._topic, value, partition=0, on_delivery=self._report)
        assert self.producer.flush(TIMEOUT_S) == 0
        return self.codes

    def _report(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        self.codes.append(0 if error is None else error.code())
        self.offsets.append(message.offset())


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = confluent_consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [message.value() for message in confluent_read(consumer, count)]
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1] == count
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_with_and_without_a_registered_id(
    checking_bootstrap: str, topic: str, idempotent: bool, codec: str
) -> None:
    create(checking_bootstrap, topic, CHECKED)
    known_id, unknown_id = new_id(), new_id()
    register(checking_bootstrap, f"{topic}-value", known_id)
    reporter = Reporter(checking_bootstrap, topic, enable_idempotence=idempotent, compression_type=codec)
    good = framed(known_id, b"good" * 100)
    for value, expected in (
        (good, 0),
        (b"no schema" * 100, KafkaError.INVALID_RECORD),
        (None, 0),
        (framed(unknown_id, b"bad" * 100), KafkaError.INVALID_RECORD),
        (good, 0),
    ):
        assert reporter.send(value)[-1] == expected
    assert read(checking_bootstrap, topic, 3) == [good, None, good]


def test_a_batch_with_one_bad_record_is_not_stored(checking_bootstrap: str, topic: str) -> None:
    create(checking_bootstrap, topic, CHECKED)
    known_id = new_id()
    register(checking_bootstrap, f"{topic}-value", known_id)
    # Only `flush` sends, without lingering: the three records are one batch, however slow this process is. The first
    # record fetches the metadata: records that wait for it are sent one by one, perhaps in several batches.
    reporter = Reporter(checking_bootstrap, topic, linger_ms=900_000, message_timeout_ms=900_001)
    assert reporter.send(framed(known_id)) == [0]
    assert reporter.send(framed(known_id), b"bad", framed(known_id))[1:] == [KafkaError.INVALID_RECORD] * 3
    assert reporter.send(framed(known_id))[-1] == 0
    assert reporter.offsets[-1] == 1


def test_new_ids_do_not_change_the_order(checking_bootstrap: str, topic: str) -> None:
    create(checking_bootstrap, topic, CHECKED)
    reporter = Reporter(checking_bootstrap, topic, enable_idempotence=True, batch_num_messages=1)
    values: list[bytes | None] = []
    for _ in range(20):
        schema_id = new_id()
        register(checking_bootstrap, f"{topic}-value", schema_id)
        portion = [framed(schema_id, b"%d" % (len(values) + number)) for number in range(20)]
        reporter.send(*portion)
        values += portion
    assert reporter.codes == [0] * 400
    assert read(checking_bootstrap, topic, 400) == values


def test_a_transaction_with_a_bad_record_can_be_aborted(checking_bootstrap: str, topic: str) -> None:
    create(checking_bootstrap, topic, CHECKED)
    known_id = new_id()
    register(checking_bootstrap, f"{topic}-value", known_id)
    reporter = Reporter(checking_bootstrap, topic, transactional_id=topic)
    reporter.producer.init_transactions(TIMEOUT_S)
    reporter.producer.begin_transaction()
    assert reporter.send(framed(known_id)) == [0]
    assert reporter.send(b"bad")[-1] == KafkaError.INVALID_RECORD
    with pytest.raises(KafkaException) as caught:
        reporter.producer.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].txn_requires_abort()
    reporter.producer.abort_transaction(TIMEOUT_S)
    # librdkafka leaves a gap in its sequence numbers for the record, with Apache Kafka too: use another producer.
    reporter = Reporter(checking_bootstrap, topic, transactional_id=topic)
    reporter.producer.init_transactions(TIMEOUT_S)
    reporter.producer.begin_transaction()
    assert reporter.send(framed(known_id, b"again")) == [0]
    reporter.producer.commit_transaction(TIMEOUT_S)
    consumer = confluent_consumer(checking_bootstrap, isolation_level="read_committed")
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in confluent_read(consumer, 1)] == [framed(known_id, b"again")]
    consumer.close()


def test_without_the_schemas_producers_retry(tmp_path: Path, topic: str) -> None:
    nowhere = "schema.registry.kafkastore.bootstrap.servers=127.0.0.1:1"
    with start_broker(tmp_path / "data", nowhere) as broker:
        create(broker.address, topic, CHECKED)
        hasty = Reporter(broker.address, topic, message_timeout_ms=3000)
        assert hasty.send(framed(1)) == [KafkaError._MSG_TIMED_OUT]
        reporter = Reporter(broker.address, topic)
        assert reporter.send(b"bad")[-1] == KafkaError.INVALID_RECORD
        assert reporter.send(None)[-1] == 0
        assert reporter.offsets[-1] == 0


def test_the_serializers_of_the_registry(topic: str) -> None:
    text = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'
    with EmbeddedBroker(schema_registry=True) as broker:
        create(broker.bootstrap_servers, topic, CHECKED)
        registry = SchemaRegistryClient({"url": broker.schema_registry_url})
        value = AvroSerializer(registry, text)({"item": "tea"}, SerializationContext(topic, MessageField.VALUE))
        reporter = Reporter(broker.bootstrap_servers, topic)
        assert reporter.send(value, None) == [0, 0]
        registry.delete_subject(f"{topic}-value")
        # An unknown id makes the broker read the log up to the deletion.
        reporter.send(framed(value[4] + 1))
        assert reporter.send(value)[-2:] == [KafkaError.INVALID_RECORD] * 2
