"""Pipelines between topics of a real broker: joins, dead letters, transactions, lag."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from rookery.base.clock import SystemClock
from rookery.client.sync import Admin, Consumer, Producer
from rookery.dead_letters.standard import Failure, read_failure
from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.checks import check_pipeline
from rookery.pipelines.lag import LagLookup
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.pins import write_pins
from rookery.pipelines.platform import create_topics
from rookery.pipelines.progress import Figures
from rookery.pipelines.runner import Runner
from rookery.pipelines.spec import Pipeline
from rookery.serdes import AvroDeserializer, RegistryClient
from rookery.testing.embedded import EmbeddedBroker
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Spark starts many processes, and other tests may do so at the same time.
TIMEOUT_S = 240.0


class Running:
    """A pipeline that runs in its own thread."""

    def __init__(self, spark: "SparkSession", text: str, directory: Path) -> None:
        self.figures: dict[str, Figures] = {}
        self._stop = Event()
        pipeline = parse_pipeline(dedent(text), directory / "p.yaml", {})
        flows = check_pipeline(spark, pipeline)
        create_topics(pipeline)
        self._lags = LagLookup(pipeline.platform, SystemClock())
        self._runner = Runner(pipeline, flows, lags=self._lags, clock=SystemClock())
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        with self._lags:
            self._runner.run(self._stop, self._on_figures)

    def _on_figures(self, figures: Sequence[Figures]) -> None:
        self.figures = {each.flow: each for each in figures}

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def wait(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until `condition` holds; fail if the pipeline ends before."""
        eventually(
            lambda: not self._thread.is_alive() or condition(),
            lambda: f"{what()}; {self.figures}",
            timeout_s=TIMEOUT_S,
        )
        assert self._thread.is_alive(), self.figures

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def produce(broker: EmbeddedBroker, topic: str, *records: tuple[str, Any]) -> None:
    """Produce keys and values; a value that is no string is written as JSON."""
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for key, value in records:
            text = value if isinstance(value, str | None) else json.dumps(value)
            producer.send(topic, None if text is None else text.encode(), key=key.encode())
        producer.flush()


def committed(broker: EmbeddedBroker, topic: str) -> "pa.RecordBatch":
    config = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer[bytes, bytes](config) as consumer:
        return consumer.read_arrow(topic)


def values(broker: EmbeddedBroker, topic: str) -> list[dict[str, Any]]:
    found = committed(broker, topic).column("value").to_pylist()
    with RegistryClient(broker.schema_registry_url) as registry:
        decode = AvroDeserializer(registry)
        return sorted((decode(topic, value) for value in found), key=str)


def failures(broker: EmbeddedBroker, topic: str) -> dict[bytes, Failure]:
    """Return the failures of dead letters by their values."""
    rows = committed(broker, topic).select(["value", "headers"]).to_pylist()
    found = {
        row["value"]: read_failure([(header["key"], header["value"]) for header in row["headers"]]) for row in rows
    }
    assert len(found) == len(rows), "each dead letter is written once"
    return {value: failure for value, failure in found.items() if failure is not None}


def offset_of(failure: Failure) -> int | None:
    return None if failure.origin is None else failure.origin.offset


def kill_in_the_first_write(pipeline: Pipeline) -> None:
    """Create the file that Spark leaves if it is killed in the very first write of a query."""
    for sink in pipeline.sinks:
        offsets = Path(pipeline.checkpoint_of(sink.name)) / "offsets"
        offsets.mkdir(parents=True)
        (offsets / ".0.93c0ec86-1cba-4133-aa3f-469148893327.tmp").touch()


def run_once(spark: "SparkSession", text: str, directory: Path) -> Figures:
    """Run the pipeline until it has read all available records; return the figures of its last flow."""
    seen: list[Figures] = []
    pipeline = parse_pipeline(text, directory / "p.yaml", {})
    flows = check_pipeline(spark, pipeline)
    create_topics(pipeline)
    write_pins(pipeline, CheckpointFiles(spark))
    with LagLookup(pipeline.platform, SystemClock()) as lags:
        Runner(pipeline, flows, lags=lags, clock=SystemClock()).run(Event(), seen.extend)
    return seen[-1]


PIPELINE = """
name: {topic}
platform: {{bootstrap.servers: "{servers}", schema.registry.url: "{registry}"}}
trigger: continuous
on_error: dead-letter
dead_letters: {{topic: {topic}-lost}}
sources:
  views:
    topic: {topic}-views
    value_format: json
    value_schema: "id int, user string, amount string, at timestamp"
    watermark: {{column: at, delay: 1 minute}}
  clicks:
    topic: {topic}-clicks
    value_format: json
    value_schema: "view int, clicked timestamp"
    watermark: {{column: clicked, delay: 1 minute}}
  users: {{topic: {topic}-users, table: true, key_format: string, value_format: json, value_schema: "name string"}}
transforms:
  - {{name: typed, from: views, steps: [cast: {{amount: int}}]}}
  - name: joined
    sql: |
      SELECT typed.id, users.name, typed.amount
      FROM typed
      LEFT JOIN users ON users._key = typed.user
      JOIN clicks ON clicks.view = typed.id AND clicks.clicked BETWEEN typed.at AND typed.at + INTERVAL 1 MINUTE
sinks:
  - {{topic: {topic}-out, from: joined, key: id, value_format: avro}}
"""


def click(view: int, second: int = 5) -> dict[str, Any]:
    return {"view": view, "clicked": f"2026-03-01T12:00:{second:02}Z"}


def viewed(view: int, user: str, amount: str = "7") -> dict[str, Any]:
    return {"id": view, "user": user, "amount": amount, "at": "2026-03-01T12:00:00Z"}


@pytest.mark.timeout(600)
def test_joins_dead_letters_and_lag(spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """A stream is joined with a stream and with a table that changes; each bad record becomes one dead letter in the
    topic that the pipeline names."""
    for name in ("views", "clicks", "users"):
        broker.create_topic(f"{topic}-{name}")
    produce(broker, f"{topic}-users", ("u1", {"name": "Ann"}), ("u2", {"name": "Bob"}))
    text = PIPELINE.format(topic=topic, servers=broker.bootstrap_servers, registry=broker.schema_registry_url)
    out = f"{topic}-out"
    with Running(spark, text, tmp_path) as running:
        produce(broker, f"{topic}-views", ("a", viewed(1, "u1")), ("b", viewed(2, "u3")), ("c", "no json"))
        produce(broker, f"{topic}-clicks", ("a", click(1)), ("b", click(2)), ("x", click(9)))
        running.wait(lambda: len(values(broker, out)) == 2, lambda: f"two rows: {values(broker, out)}")
        produce(broker, f"{topic}-users", ("u1", {"name": "Anna"}), ("u2", None), ("u3", {"name": "Cid"}))
        produce(broker, f"{topic}-views", ("d", viewed(3, "u1")), ("e", viewed(4, "u2")), ("f", viewed(5, "u3")))
        produce(broker, f"{topic}-views", ("g", viewed(6, "u1", amount="much")))
        produce(broker, f"{topic}-clicks", *((str(each), click(each)) for each in (3, 4, 5, 6)))
        running.wait(lambda: len(values(broker, out)) == 5, lambda: f"five rows: {values(broker, out)}")
        running.wait(lambda: running.figures["dead-letters"].dead_letters == 2, lambda: "two dead letters")
    assert [(row["id"], row.get("name"), row["amount"]) for row in values(broker, out)] == [
        (1, "Ann", 7),
        (2, None, 7),
        (3, "Anna", 7),
        (4, None, 7),
        (5, "Cid", 7),
    ]
    letters = failures(broker, f"{topic}-lost")
    bad_json, bad_amount = letters[b"no json"], letters[json.dumps(viewed(6, "u1", amount="much")).encode()]
    assert (bad_json.stage, bad_json.pipeline, offset_of(bad_json)) == ("VALUE_CONVERTER", topic, 2)
    assert (bad_amount.stage, bad_amount.error_class) == ("TRANSFORMATION", "CastError")
    assert bad_amount.message == "amount is not a valid int"
    written, lost = running.figures[out], running.figures["dead-letters"]
    assert (written.state, written.dead_letters, written.rows_in, written.rows_out) == ("stopped", 0, 14, 5)
    assert (lost.state, lost.dead_letters, lost.rows_in, lost.rows_out) == ("stopped", 2, 19, 0)
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        lags = {str(each.partition): each.lag for each in admin.lags(f"{topic}.{out}")}
    assert lags == {f"{topic}-clicks-0": 0, f"{topic}-views-0": 0}


DELETES = """
name: {topic}
platform: {{bootstrap.servers: "{servers}", schema.registry.url: "{registry}"}}
trigger: available-now
on_error: null
sources: {{users: {{topic: {topic}-users, value_format: json, value_schema: "id int, name string"}}}}
transforms:
  - {{name: marked, from: users, steps: [{{cast: {{id: bigint}}}}, {{set: {{source: "'x'"}}}}]}}
  - {{name: chosen, sql: "SELECT _key, id, id = 1 AS _tombstone FROM users WHERE NOT _tombstone"}}
sinks:
  - {{topic: {topic}-json, from: marked}}
  - {{topic: {topic}-avro, from: users, value_format: avro, value_schema: '{schema}'}}
  - {{topic: {topic}-chosen, from: chosen}}
"""


def test_deletes_stay_deletes(spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """A record without a value is written without one, whatever steps add; an undecodable one is no delete."""
    broker.create_topic(f"{topic}-users")
    produce(broker, f"{topic}-users", ("a", {"id": 1, "name": "Ann"}), ("b", None), ("c", "no json"), ("d", {"id": 2}))
    fields = [{"name": "id", "type": ["int", "null"]}, {"name": "name", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "user", "fields": fields})
    servers, registry = broker.bootstrap_servers, broker.schema_registry_url
    run_once(spark, DELETES.format(topic=topic, servers=servers, registry=registry, schema=schema), tmp_path)

    def written(name: str) -> dict[bytes, bytes | None]:
        rows = committed(broker, f"{topic}-{name}")
        return dict(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))

    assert written("json") == {
        b"a": b'{"id":1,"name":"Ann","source":"x"}',
        b"b": None,
        b"c": b'{"source":"x"}',
        b"d": b'{"id":2,"source":"x"}',
    }
    assert {key: value is None for key, value in written("avro").items()} == {
        b"a": False,
        b"b": True,
        b"c": False,
        b"d": False,
    }
    assert written("chosen") == {b"a": None, b"c": b"{}", b"d": b'{"id":2}'}, "SQL can turn rows into deletes"


EDITED = """
name: {topic}
platform: {{bootstrap.servers: "{servers}"}}
trigger: available-now
on_error: {on_error}
sources: {{views: {{topic: {topic}-views, value_format: json, value_schema: "id int, amount string"}}}}
transforms: [{{name: typed, from: views, steps: [{step}]}}]
sinks: {sinks}
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_edited_pipeline_continues(
    spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """After sinks are reordered and casts and dead letters added, each row and dead letter is written once."""
    broker.create_topic(f"{topic}-views")
    one, two = f"{{topic: {topic}-one, from: typed}}", f"{{topic: {topic}-two, from: typed}}"
    edits = [
        ("fail", "drop: [amount]", f"[{one}]", "1"),
        ("dead-letter", "cast: {amount: int}", f"[{two}, {one}]", "much"),
        ("dead-letter", "cast: {amount: int}", f"[{one}, {two}]", "more"),
    ]
    for number, (on_error, step, sinks, amount) in enumerate(edits):
        produce(broker, f"{topic}-views", ("a", {"id": number, "amount": amount}), ("b", {"id": 10 + number}))
        text = EDITED.format(topic=topic, servers=broker.bootstrap_servers, on_error=on_error, step=step, sinks=sinks)
        run_once(spark, text, tmp_path)
    for name in ("one", "two"):
        found = [json.loads(value)["id"] for value in committed(broker, f"{topic}-{name}").column("value").to_pylist()]
        assert found == [0, 10, 11, 12], name
    assert [offset_of(failure) for failure in failures(broker, f"{topic}-views.dlq").values()] == [2, 4]


TOTALS = """
name: {topic}
platform: {{bootstrap.servers: "{servers}"}}
trigger: available-now
sources: {{views: {{topic: {topic}-views, value_format: json, value_schema: "user string"}}}}
transforms: [{{name: totals, sql: "SELECT user, count(*) AS views FROM views GROUP BY user"}}]
sinks: [{{topic: {topic}-totals, from: totals, key: user, output_mode: update}}]
"""


def test_totals_are_written_whenever_they_change(
    spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(f"{topic}-views")
    text = TOTALS.format(topic=topic, servers=broker.bootstrap_servers)
    kill_in_the_first_write(parse_pipeline(text, tmp_path / "p.yaml", {}))
    for users in ("aab", "bc"):
        produce(broker, f"{topic}-views", *(("", {"user": user}) for user in users))
        figures = run_once(spark, text, tmp_path)
    assert (figures.state, figures.rows_out) == ("finished", 2)
    rows = [json.loads(value) for value in committed(broker, f"{topic}-totals").column("value").to_pylist()]
    assert sorted((row["user"], row["views"]) for row in rows) == [("a", 2), ("b", 1), ("b", 2), ("c", 1)]
