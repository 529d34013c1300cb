"""Spark with either connector: Rookery's, or Spark's with Spark's Avro functions.

Every load has its own session, on two cores, otherwise with Spark's defaults. Each measured query has run before on the
same data, so that the JVM has compiled it. Rows go to Spark's `noop` sink, which takes every column of every row.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions

from bench import avro_events
from bench.load import Measurements, await_go, run_action
from bench.results import ROOKERY
from bench.spark_jars import spark_jars
from rookery.client.sync import Producer
from rookery.serdes import RegistryClient, Schema
from rookery.spark.formats import plan_decoder
from rookery.spark.options import FormatOptions
from rookery.spark.session import start_session
from rookery.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORES = 2
_WARM_UPS = 2
# The same settings as in the rows of the other clients.
_PRODUCER = {"kafka.batch.size": "500000", "kafka.linger.ms": "5", "kafka.acks": "all"}
_FILL_ROWS = 100_000
_DECODED_ROWS = 20_000


def read(*, connector: str, bootstrap: str, topic: str, records: int, passes: int) -> Measurements:
    spark = _session(connector)
    frame = _reader(spark, connector, bootstrap, topic)
    _check_count(frame, records)
    return _measured(records, passes, lambda: _drain(frame))


def read_avro(*, connector: str, bootstrap: str, topic: str, records: int, passes: int) -> Measurements:
    """Read values in Confluent's framing: Spark's from_avro gets the bytes after the first five."""
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedBroker(mode="process", schema_registry=True)).schema_registry_url
        schema_id = _register(url)
        _fill(bootstrap, topic, records, schema_id)
        spark = _session(connector)
        if connector == ROOKERY:
            formats = {"valueFormat": "avro", "valueSubject": avro_events.SUBJECT, "schema.registry.url": url}
            frame = _reader(spark, connector, bootstrap, topic, formats)
        else:
            from pyspark.sql.avro.functions import from_avro

            body = functions.expr("substring(value, 6, length(value) - 5)")
            frame = _reader(spark, connector, bootstrap, topic)
            frame = frame.withColumn("value", from_avro(body, avro_events.SCHEMA))
        _check_count(frame, records)
        (last,) = frame.select(functions.max("value.number")).collect()
        assert last[0] == avro_events.DISTINCT - 1, last
        return _measured(records, passes, lambda: _drain(frame))


def write(
    *, connector: str, bootstrap: str, topic: str, records: int, record_bytes: int, options: Mapping[str, str]
) -> Measurements:
    spark = _session(connector)
    value = functions.expr(f"cast(rpad(cast(id as string), {record_bytes}, 'abcdefgh') as binary)")

    def save(count: int) -> None:
        rows = spark.range(0, count, 1, _CORES).select(value.alias("value"))
        writer = rows.write.format(connector).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        writer.options(**_PRODUCER).options(**options).mode("append").save()

    for _ in range(_WARM_UPS):
        save(records)
    await_go()
    started_s = time.perf_counter()
    save(records)
    return {"records": records, "elapsed_s": time.perf_counter() - started_s, "written": (_WARM_UPS + 1) * records}


def decode_avro(*, records: int, passes: int) -> Measurements:
    """Decode a column in memory, on one core."""
    with EmbeddedBroker(mode="process", schema_registry=True) as broker:
        schema_id = _register(broker.schema_registry_url)
        options = FormatOptions(
            format="avro",
            schema=None,
            subject=avro_events.SUBJECT,
            version="latest",
            message=None,
            detailed=False,
            registry={"schema.registry.url": broker.schema_registry_url},
            on_error="fail",
        )
        decoder = plan_decoder(options, topics=["events"], is_key=False)
        column = pa.array(islice(cycle(avro_events.framed(schema_id)), _DECODED_ROWS), pa.binary())
        decoder.decode(column, "events")
        await_go()
        started_s, rows = time.process_time(), 0
        for _ in range(passes * max(1, records // _DECODED_ROWS)):
            decoded = decoder.decode(column, "events")
            assert not decoded.errors
            rows += len(decoded.values)
        return {"records": rows, "cpu_s": time.process_time() - started_s}


def _session(connector: str) -> "SparkSession":
    settings = {"spark.driver.memory": "2g"}
    if connector != ROOKERY:
        settings["spark.jars"] = spark_jars()
    return start_session("bench", master=f"local[{_CORES}]", settings=settings)


def _reader(
    spark: "SparkSession", connector: str, bootstrap: str, topic: str, options: Mapping[str, str] | None = None
) -> "DataFrame":
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**(options or {})).load()


def _check_count(frame: "DataFrame", records: int) -> None:
    found = frame.count()
    if found != records:
        raise RuntimeError(f"{found} rows instead of {records}")


def _drain(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _measured(records: int, passes: int, work: Callable[[], None]) -> Measurements:
    for _ in range(_WARM_UPS):
        work()
    await_go()
    started_s = time.perf_counter()
    for _ in range(passes):
        work()
    return {"records": passes * records, "elapsed_s": time.perf_counter() - started_s}


def _register(url: str) -> int:
    return RegistryClient(url).register(avro_events.SUBJECT, Schema(avro_events.SCHEMA, "AVRO"))


def _fill(bootstrap: str, topic: str, records: int, schema_id: int) -> None:
    values = cycle(avro_events.framed(schema_id))
    config: dict[str, Any] = {"bootstrap.servers": bootstrap}
    with Producer(config) as producer:
        while records:
            count = min(records, _FILL_ROWS)
            rows = pa.record_batch({"value": pa.array(islice(values, count), pa.binary())})
            producer.send_arrow(rows, topic).result()
            records -= count


if __name__ == "__main__":
    run_action({"read": read, "read_avro": read_avro, "write": write, "decode_avro": decode_avro})
