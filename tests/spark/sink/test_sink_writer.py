"""Tasks of the sink, called without Spark: columns, digests, transactional ids, deliveries and error messages."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from rookery.base.errors import ErrorCode
from rookery.client.admin import ONGOING
from rookery.client.sync import Admin, Consumer
from rookery.spark.failures import SourceError
from rookery.spark.formats.ddl import parse_type
from rookery.spark.option_table import OptionError
from rookery.spark.options import parse_write_options
from rookery.spark.sink import digests
from rookery.spark.sink.batch_writer import BatchWriter
from rookery.spark.sink.commit_protocol import SinkError
from rookery.spark.sink.names import decisions_id, named_write, task_id, tasks_name, tasks_pattern
from rookery.spark.sink.stream_writer import StreamWriter
from rookery.spark.sink.task_writer import TaskIdentity, TaskIds, TaskMessage
from rookery.testing.embedded import EmbeddedBroker

VALUE = "value string"


@pytest.fixture(autouse=True)
def _clean(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    broker.faults.clear()


def writer(broker: EmbeddedBroker, schema: str, **options: str) -> BatchWriter:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    return BatchWriter(parse_write_options(given, streaming=False), schema_of(schema), overwrite=False)


def schema_of(text: str) -> StructType:
    """Parse a schema without a session, which Spark's own parser needs."""
    parsed = parse_type(text)
    assert isinstance(parsed, StructType)
    return parsed


def values(*rows: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.string())})


def write(made: BatchWriter, *batches: pa.RecordBatch) -> TaskMessage:
    message = made.write(iter(batches))
    assert isinstance(message, TaskMessage)
    return message


def read(broker: EmbeddedBroker, topic: str) -> list[dict[str, object]]:
    config = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer[bytes, bytes](config) as consumer:
        return list(consumer.read_arrow(topic).to_pylist())


# Columns


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        ("key string", "t", "required column 'value' not found; there are: key"),
        ("value int", "t", "column 'value': int. Expected: string or binary; or set the option valueFormat"),
        ("key double, value string", "t", "column 'key': double"),
        (VALUE, None, "the option topic is required when no column 'topic' is present"),
        ("topic int, value string", None, "column 'topic': int. Expected: string"),
        ("partition bigint, value string", "t", "column 'partition': bigint. Expected: int"),
        ("headers string, value string", "t", r"Expected: array<struct<key:string,value:binary>>"),
        ("headers array<struct<key: string, value: string>>, value string", "t", "column 'headers'"),
        ("timestamp string, value string", "t", "column 'timestamp': string. Expected: timestamp"),
    ],
)
def test_columns_that_cannot_be_written(broker: EmbeddedBroker, schema: str, topic: str | None, message: str) -> None:
    options = {} if topic is None else {"topic": topic}
    with pytest.raises(OptionError, match=re.escape(message)):
        writer(broker, schema, **options)


def test_overwriting_is_refused(broker: EmbeddedBroker) -> None:
    options = parse_write_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}, streaming=False)
    with pytest.raises(OptionError, match="save mode overwrite"):
        BatchWriter(options, schema_of(VALUE), overwrite=True)


def test_a_stream_cannot_have_a_txn_app_id(broker: EmbeddedBroker) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "txnAppId": "a"}
    with pytest.raises(OptionError, match="a stream is identified by its checkpoint"):
        StreamWriter(parse_write_options(options, streaming=True), schema_of(VALUE))


def test_all_columns(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=3)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    # Retention would delete a record with an old timestamp.
    moment = datetime.now(UTC).replace(microsecond=678000)
    row = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k"], pa.binary()),
            pa.array(["v"], pa.string()),
            pa.array([topic], pa.string()),
            pa.array([2], pa.int32()),
            pa.array([[{"key": "h", "value": b"1"}]], headers),
            pa.array([moment], pa.timestamp("us", "UTC")),
            pa.array([99], pa.int64()),
        ],
        names=["key", "value", "topic", "partition", "headers", "timestamp", "offset"],
    )
    made = writer(
        broker,
        "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>, "
        "timestamp timestamp, offset bigint",
    )
    made.commit([write(made, row)])
    config = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer[bytes, bytes](config) as consumer:
        consumer.assign([(topic, 2)])
        (record,) = consumer.poll(10.0)
    assert (record.key, record.value, list(record.headers)) == (b"k", b"v", [("h", b"1")])
    assert record.timestamp_ms == int(moment.timestamp() * 1000)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_large_types(broker: EmbeddedBroker, topic: str, delivery: str) -> None:
    """The types that spark.sql.execution.arrow.useLargeVarTypes produces."""
    broker.create_topic(topic)
    headers = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    row = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k", None], pa.large_binary()),
            pa.array(["v", ""], pa.large_string()),
            pa.array([topic, topic], pa.large_string()),
            pa.array([[{"key": "h", "value": b"1"}], None], headers),
        ],
        names=["key", "value", "topic", "headers"],
    )
    schema = "key binary, value string, topic string, headers array<struct<key: string, value: binary>>"
    made = writer(broker, schema, delivery=delivery)
    made.commit([write(made, row)])
    assert [(each["key"], each["value"]) for each in read(broker, topic)] == [(b"k", b"v"), (None, b"")]


def test_the_option_topic_takes_precedence_and_without_it_every_row_needs_a_topic(
    broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic)
    rows = pa.RecordBatch.from_pydict({"topic": pa.array([None, "other"], pa.string()), "value": ["a", "b"]})
    made = writer(broker, "topic string, value string", topic=topic)
    made.commit([write(made, rows)])
    assert [row["value"] for row in read(broker, topic)] == [b"a", b"b"]
    with pytest.raises(SinkError, match=r"null topic present in the data. Use the option topic"):
        write(writer(broker, "topic string, value string"), rows)


# Deliveries


def test_rows_are_invisible_before_the_commit_and_after_an_abort(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    for ends_well in (False, True):
        made = writer(broker, VALUE, topic=topic)
        messages = [write(made, values("a"), values("b")), write(made, values("c")), None]
        assert read(broker, topic) == []
        (made.commit if ends_well else made.abort)(messages)
    assert sorted(row["value"] for row in read(broker, topic)) == [b"a", b"b", b"c"]  # type: ignore[type-var]


def test_a_task_without_rows_opens_no_transaction(broker: EmbeddedBroker, topic: str) -> None:
    made = writer(broker, VALUE, topic=topic)
    message = write(made, values())
    assert message.piece is None
    made.commit([message])
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert admin.list_transactions(id_pattern=tasks_pattern(made.task_identity().tasks)) == []


def test_a_named_write_takes_effect_once(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    for version, value in (("1", "first"), ("1", "again"), ("2", "second"), ("1", "late")):
        made = writer(broker, VALUE, topic=topic, txnAppId=f"app-{topic}", txnVersion=version)
        made.commit([write(made, values(value))])
    assert [row["value"] for row in read(broker, topic)] == [b"first", b"second"]


def test_a_task_that_fails_aborts_its_transaction(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    made = writer(broker, VALUE, topic=topic)

    def rows() -> Iterator[pa.RecordBatch]:
        yield values("a")
        raise RuntimeError("in the user's plan")

    with pytest.raises(RuntimeError, match="in the user's plan"):
        made.write(rows())
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        found = admin.list_transactions(states=[ONGOING], id_pattern=tasks_pattern(made.task_identity().tasks))
    assert found == []


def test_at_least_once_uses_no_transactions(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    made = writer(broker, VALUE, topic=topic, delivery="at-least-once")
    message = write(made, values("a", "b"))
    assert message.piece is None
    assert [row["value"] for row in read(broker, topic)] == [b"a", b"b"]
    made.commit([message])
    made.abort([message])
    assert len(read(broker, topic)) == 2


# Errors


def test_an_address_where_no_broker_responds(broker: EmbeddedBroker) -> None:
    quick = {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"}
    with pytest.raises(SourceError, match=r"127.0.0.1:1: check the option kafka.bootstrap.servers"):
        writer(broker, VALUE, topic="t", **{"kafka.bootstrap.servers": "127.0.0.1:1", **quick})


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_that_cannot_be_written_to(broker: EmbeddedBroker, topic: str, delivery: str) -> None:
    made = writer(broker, VALUE, topic="no such topic", delivery=delivery)
    with pytest.raises(SinkError, match="Check the option topic"):
        write(made, values("a"))


def test_a_partition_that_the_topic_does_not_have(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    made = writer(broker, "value string, partition int", topic=topic)
    row = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([7], pa.int32())], names=["value", "partition"])
    with pytest.raises(SinkError, match=r"none is 7\. Correct the column 'partition', or add partitions"):
        write(made, row)


@pytest.mark.parametrize("limit", [1_000, 10_000_000])
def test_a_record_that_is_too_large(broker: EmbeddedBroker, topic: str, limit: int) -> None:
    """Too large for the client's limit, and for the topic's."""
    broker.create_topic(topic)
    made = writer(broker, VALUE, topic=topic, **{"kafka.max.request.size": str(limit)})
    with pytest.raises(SinkError, match=r"option kafka\.max\.request\.size and the topic's max\.message\.bytes"):
        write(made, values("a" * 2_000_000))


def test_the_continuous_trigger_is_refused(broker: EmbeddedBroker) -> None:
    """The tasks of a continuous query never end, and send no message to the driver."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    made = StreamWriter(parse_write_options(options, streaming=True), schema_of(VALUE))
    with pytest.raises(SinkError, match="cannot be written with the continuous trigger"):
        made.commit([None], 0)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_rows_that_the_broker_rejects(broker: EmbeddedBroker, topic: str, delivery: str) -> None:
    broker.create_topic(topic)
    broker.faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    made = writer(broker, VALUE, topic=topic, delivery=delivery)
    with pytest.raises(SinkError, match=r"not allowed.*ledgerTopic"):
        write(made, values("a"))


def test_a_transaction_timeout_that_the_broker_does_not_allow(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    made = writer(broker, VALUE, topic=topic, **{"kafka.transaction.timeout.ms": "900001"})
    with pytest.raises(OptionError, match=r"kafka.transaction.timeout.ms: 900001 .*transaction.max.timeout.ms"):
        write(made, values("a"))


# Parts


def test_an_id_is_reused_only_in_a_later_batch_of_a_stream() -> None:
    ids = TaskIds()

    def take(batch: int, *, sink: str = "s", is_streaming: bool = True) -> str:
        return ids.take(TaskIdentity(sink=sink, batch=batch, partition=0, is_streaming=is_streaming)).rpartition("-")[2]

    assert [take(1), take(1), take(2), take(2), take(2), take(1)] == ["0", "1", "0", "1", "2", "3"]
    assert [take(1, sink="w", is_streaming=False), take(2, sink="w", is_streaming=False)] == ["0", "1"]


def test_the_pattern_matches_the_ids_of_one_sink() -> None:
    process = "0123456789abcdef"
    assert re.match(tasks_pattern("a.b"), task_id("a.b", process, 12))
    for other in (task_id("a", process, 1), task_id("a.b-c", process, 1), task_id("axb", process, 1)):
        assert not re.match(tasks_pattern("a.b"), other)
    assert not re.match(tasks_pattern("a.b"), decisions_id("a.b"))


def test_each_version_of_a_write_has_its_own_ids() -> None:
    process = "0123456789abcdef"
    sinks = [named_write(app, topic) for app, topic in (("a", None), ("a", "t"), ("a", "t-1"), ("a/t", None))]
    groups = [tasks_name(sink, version, is_streaming=False) for sink in sinks for version in (1, 11)]
    for group in groups:
        assert [other for other in groups if re.match(tasks_pattern(group), task_id(other, process, 1))] == [group]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_digest_depends_on_rows_and_their_order_but_not_on_batches(is_large: bool) -> None:
    text, binary = (pa.large_string(), pa.large_binary()) if is_large else (pa.string(), pa.binary())
    headers = (pa.large_list if is_large else pa.list_)(pa.struct([("key", text), ("value", binary)]))

    def batch(*rows: tuple[str | None, bytes | None, int | None]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([row[0] for row in rows], text),
                pa.array([row[1] for row in rows], binary),
                pa.array([row[2] for row in rows], pa.int32()),
                pa.array([[{"key": "h", "value": row[1]}] if row[2] else None for row in rows], headers),
                pa.nulls(len(rows)),
            ],
            names=["value", "key", "partition", "headers", "nothing"],
        )

    def digest(*batches: pa.RecordBatch) -> tuple[int, str]:
        made = digests.RowDigest()
        for each in batches:
            made.update(each)
        return made.row_count, made.text()

    rows = [("a", b"k", 1), (None, None, None), ("", b"", 0), ("bc", b"", 2)]
    whole = batch(*rows)
    # The same for normal and large types.
    assert digest(whole)[1].endswith("value:364b3fb7,value.length:db84fe37")
    assert digest(whole) == digest(batch(*rows[:1]), batch(*rows[1:])) == digest(whole.slice(0, 3), whole.slice(3))
    others = [rows[::-1], rows[:3], [("", None, None), *rows[1:]], [rows[0], ("", None, None), *rows[2:]]]
    assert digest(whole) not in [digest(batch(*other)) for other in others]
    assert digest(batch(("ab", None, None), ("c", None, None))) != digest(batch(("a", None, None), ("bc", None, None)))


# Formats


def test_a_column_is_encoded(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    rows = pa.RecordBatch.from_pydict({"value": [{"id": 1, "name": "a"}]})
    made = writer(broker, "value struct<id: bigint, name: string>", topic=topic, valueFormat="json")
    made.commit([write(made, rows)])
    assert [row["value"] for row in read(broker, topic)] == [b'{"id":1,"name":"a"}']


def test_each_topic_has_its_own_schemas(broker: EmbeddedBroker, topic: str) -> None:
    topics = [f"{topic}-{name}" for name in "ab"]
    for name in topics:
        broker.create_topic(name)
    rows = pa.RecordBatch.from_pydict(
        {"topic": [topics[0], topics[1], topics[0]], "value": [{"id": n} for n in range(3)]}
    )
    options = {"valueFormat": "avro", "schema.registry.url": broker.schema_registry_url}
    made = writer(broker, "topic string, value struct<id: bigint>", **options)
    made.commit([write(made, rows)])
    (first, third), (second,) = ([row["value"] for row in read(broker, name)] for name in topics)
    assert isinstance(first, bytes)
    assert [value[5:] for value in (first, second, third)] == [b"\x02\x00", b"\x02\x02", b"\x02\x04"]  # type: ignore[index]


def test_an_aborted_write_leaves_nothing_open(broker: EmbeddedBroker, topic: str) -> None:
    """The driver gets no message of a killed task; readers would wait for its transaction until its time-out."""
    broker.create_topic(topic)
    made = writer(broker, VALUE, topic=topic)
    write(made, values("of a task that was killed before it sent its message"))
    made.abort([None, None])
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert admin.list_transactions(states=[ONGOING], id_pattern=tasks_pattern(made.task_identity().tasks)) == []
    write_and_commit = writer(broker, VALUE, topic=topic)
    write_and_commit.commit([write(write_and_commit, values("seen"))])
    assert [row["value"] for row in read(broker, topic)] == [b"seen"]
