"""confluent-kafka (librdkafka): producing, fetching, offsets, watermarks."""

import time
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import TIMEOUT_S, Confluent, confluent_consumer, confluent_read
from tests.conformance.samples import FIRST_TIMESTAMP_MS, TIMESTAMP_STEP_MS, make_samples

CLIENT = Confluent()


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, config=settings)])[topic].result(TIMEOUT_S)


def produce_one(bootstrap: str, topic: str, value: bytes, **settings: object) -> confluent_kafka.Message:
    """Produce one record to partition 0 and return its delivery report, which may be an error."""
    reports: list[confluent_kafka.Message] = []
    config = {name.replace("_", "."): setting for name, setting in settings.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000, **config})
    producer.produce(topic, value, partition=0, on_delivery=lambda _, message: reports.append(message))
    assert producer.flush(TIMEOUT_S) == 0
    return reports[0]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, topic: str, acks: str) -> None:
    create(bootstrap, topic)
    report = produce_one(bootstrap, topic, b"value", acks=acks)
    assert report.error() is None
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in confluent_read(consumer, 1)] == [b"value"]
    consumer.close()


def test_idempotent_producer(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1}
    )
    for index in range(500):
        producer.produce(topic, str(index), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert [sample.value for sample in CLIENT.consume(bootstrap, topic, 500)] == [b"%d" % index for index in range(500)]


@pytest.mark.parametrize("idempotent", [False, True])
def test_delivery_reports_distinguish_good_and_bad_records_of_a_batch(
    bootstrap: str, topic: str, idempotent: bool
) -> None:
    create(bootstrap, topic, cleanup_policy="compact")
    # One batch: nothing is sent before all records are in the queue.
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 1000, "enable.idempotence": idempotent}
    )
    errors: dict[bytes | None, int] = {}
    for index in range(6):
        producer.produce(
            topic,
            b"%d" % index,
            key=None if index in (1, 3, 4) else b"key",
            partition=0,
            on_delivery=lambda error, message: errors.update({message.value(): error.code() if error else 0}),
        )
    assert producer.flush(TIMEOUT_S) == 0
    bad, good = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert [errors[b"%d" % index] for index in range(6)] == [good, bad, good, bad, bad, good]


def test_keys_choose_partitions(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 4)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    places: dict[bytes | None, set[int | None]] = {}
    for index in range(200):
        producer.produce(
            topic,
            b"v",
            f"key-{index % 20}",
            on_delivery=lambda _, message: places.setdefault(message.key(), set()).add(message.partition()),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert all(len(partitions) == 1 for partitions in places.values())
    assert set.union(*places.values()) == {0, 1, 2, 3}


def test_a_message_that_is_too_large_is_rejected_and_the_next_is_not(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, max_message_bytes="2000")
    error = produce_one(bootstrap, topic, bytes(5000)).error()
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce_one(bootstrap, topic, bytes(500)).error() is None


def test_a_keyless_record_on_a_compacted_topic_is_rejected(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, cleanup_policy="compact")
    error = produce_one(bootstrap, topic, b"no key").error()
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD


def test_log_append_time(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, message_timestamp_type="LogAppendTime")
    CLIENT.produce(bootstrap, topic, make_samples(3))
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    for message in confluent_read(consumer, 3):
        kind, timestamp_ms = message.timestamp()
        assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
        assert abs(timestamp_ms - time.time() * 1000) < 60_000
    consumer.close()


def test_a_timestamp_too_far_ahead_is_rejected(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, message_timestamp_after_max_ms="1000")
    errors: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    tomorrow_ms = int(time.time() * 1000) + 86_400_000
    producer.produce(topic, b"v", timestamp=tomorrow_ms, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_the_topic_may_choose_the_codec(bootstrap: str, topic: str, codec: str) -> None:
    create(bootstrap, topic, compression_type=codec)
    samples = make_samples(50)
    CLIENT.produce(bootstrap, topic, samples, codec="lz4" if codec != "lz4" else "none")
    assert CLIENT.consume(bootstrap, topic, 50) == samples


@pytest.mark.parametrize("fetch_bytes", [1, 500, 5_000, 1_000_000])
def test_fetch_sizes(bootstrap: str, topic: str, fetch_bytes: int) -> None:
    samples = make_samples(60, value_size=2_000)
    for start in range(0, 60, 10):
        CLIENT.produce(bootstrap, topic, samples[start : start + 10])
    consumer = confluent_consumer(
        bootstrap, fetch_message_max_bytes=fetch_bytes, fetch_max_bytes=100_000, message_max_bytes=100_000
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in confluent_read(consumer, 60)] == [sample.value for sample in samples]
    consumer.close()


def test_a_value_of_ten_megabytes(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, max_message_bytes="12000000")
    value = bytes(range(256)) * 40_960
    assert produce_one(bootstrap, topic, value, message_max_bytes=12_000_000).error() is None
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert confluent_read(consumer, 1)[0].value() == value
    consumer.close()


def test_a_long_poll_ends_with_the_record(bootstrap: str, topic: str) -> None:
    """The consumer waits at the end of the log; a new record ends its wait long before the time-out."""
    create(bootstrap, topic)
    consumer = confluent_consumer(bootstrap, fetch_wait_max_ms=20_000, socket_timeout_ms=60_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(confluent_read, consumer, 1)
        started = time.monotonic()
        produce_one(bootstrap, topic, b"wake up")
        assert reading.result(TIMEOUT_S)[0].value() == b"wake up"
        assert time.monotonic() - started < 15
    consumer.close()


def test_seek_and_watermarks(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(100))
    consumer = confluent_consumer(bootstrap)
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, TIMEOUT_S) == (0, 100)
    for start in (90, 0, 50, 99):
        consumer.assign([TopicPartition(topic, 0, start)])
        assert confluent_read(consumer, 1)[0].offset() == start
    consumer.seek(TopicPartition(topic, 0, 25))
    assert confluent_read(consumer, 2)[1].offset() == 26
    consumer.close()


def test_reading_from_the_end(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(100))
    consumer = confluent_consumer(bootstrap, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
    # The client reports when it has reached the end.
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    produce_one(bootstrap, topic, b"at the end")
    assert confluent_read(consumer, 1)[0].offset() == 100
    consumer.close()


def test_an_offset_out_of_range_is_reported(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(5))
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(50), codec="zstd")
    consumer = confluent_consumer(bootstrap)

    def offset_at(timestamp_ms: int) -> int:
        found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], TIMEOUT_S)[0]
        assert found.error is None
        return found.offset

    assert offset_at(0) == 0
    for index in (0, 1, 17, 49):
        assert offset_at(FIRST_TIMESTAMP_MS + index * TIMESTAMP_STEP_MS) == index
        assert offset_at(FIRST_TIMESTAMP_MS + index * TIMESTAMP_STEP_MS - 1) == index
    assert offset_at(FIRST_TIMESTAMP_MS + 50 * TIMESTAMP_STEP_MS) == confluent_kafka.OFFSET_END
    consumer.close()


def test_auto_creation(bootstrap: str, topic: str) -> None:
    assert produce_one(bootstrap, topic, b"v").error() is None
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    assert metadata.error is None
    assert sorted(metadata.partitions) == [0]
    assert metadata.partitions[0].isrs == metadata.partitions[0].replicas == [metadata.partitions[0].leader]


def test_no_auto_creation_for_a_consumer_that_disables_it(bootstrap: str, topic: str) -> None:
    consumer = confluent_consumer(bootstrap)
    with pytest.raises(KafkaException) as caught:
        consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    assert caught.value.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}
    consumer.close()
