"""`from_registry` and `to_registry` in queries, with a real registry."""

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql.functions import col, expr, struct

from rookery.serdes import AvroDeserializer, AvroSerializer, RegistryClient
from rookery.spark import compat, from_registry, functions, to_registry
from rookery.spark.compat import Feature, SparkVersion, has
from rookery.spark.formats import FormatError
from rookery.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "long"}]}
NEW = OLD | {"fields": [*OLD["fields"], {"name": "at", "type": ["null", "string"], "default": None}]}


needs_functions = pytest.mark.skipif(
    not has(Feature.ARROW_COLUMN_FUNCTIONS), reason="this version of Spark has no functions of columns in Arrow"
)


@needs_functions
def test_columns_survive_a_round_trip(spark: "SparkSession", broker: EmbeddedBroker, topic: str) -> None:
    url = broker.schema_registry_url
    rows = spark.range(5).select(
        struct(
            "id",
            expr("IF(id = 2, NULL, CAST(id AS STRING))").alias("text"),
            expr("timestamp_millis(id * 1000)").alias("at"),
            expr("array(named_struct('price', CAST(id AS DECIMAL(9,2))))").alias("lines"),
        ).alias("value")
    )
    encoded = rows.select("value", to_registry("value", url=url, topic=topic).alias("data")).cache()
    data = [bytes(each.data) for each in encoded.collect()]
    decoded = encoded.select("value", from_registry(col("data"), url=url, topic=topic).alias("again"))
    assert all(each.value == each.again for each in decoded.collect())
    with RegistryClient(url) as registry:
        assert AvroDeserializer(registry)(topic, data[2])["text"] is None


@needs_functions
def test_errors_fail_the_query_or_are_in_the_column(spark: "SparkSession", broker: EmbeddedBroker, topic: str) -> None:
    url = broker.schema_registry_url
    with RegistryClient(url) as registry:
        old = AvroSerializer(registry, json.dumps(OLD))(topic, {"id": 1})
        new = AvroSerializer(registry, json.dumps(NEW))(topic, {"id": 2, "at": "now"})
        old_id, new_id = (each.id for each in registry.list_schemas(prefix=topic))
    assert old is not None
    assert new is not None
    frame = spark.createDataFrame([(old,), (new,), (new[:-1],), (b"x",), (None,)], "data BINARY")

    def read(**options: Any) -> list[Any]:
        return [each[0] for each in frame.select(from_registry("data", url=url, topic=topic, **options)).collect()]

    assert read(on_error="null") == [(1, None), (2, "now"), None, None, None]
    detailed = read(details=True)
    assert [each.value for each in detailed] == [(1, None), (2, "now"), None, None, None]
    assert [each.schema_id for each in detailed] == [old_id, new_id, new_id, None, None]
    assert [each.error and each.error.partition(":")[0] for each in detailed] == [
        None,
        None,
        "InvalidDataError",
        "WireFormatError",
        None,
    ]
    assert read(on_error="null", version=1)[:2] == [(1,), (2,)]
    with pytest.raises(PythonException, match="rows cannot be decoded"):
        read()


def test_invalid_arguments_are_errors_on_the_driver(broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(FormatError, match=f"{topic}-value"):
        from_registry("data", url=broker.schema_registry_url, topic=topic)
    with pytest.raises(FormatError, match="unknown format xml"):
        from_registry("data", format="xml")
    with pytest.raises(FormatError, match=r"schema\.registry\.url"):
        from_registry("data", schema="long")
    with pytest.raises(FormatError, match="topic or the subject"):
        to_registry("data", url=broker.schema_registry_url)
    with pytest.raises(FormatError, match="dead letters"):
        from_registry("data", url=broker.schema_registry_url, schema="long", on_error="dead-letter")  # type: ignore[arg-type]


def test_column_functions_are_errors_where_spark_lacks_them(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "installed_version", lambda: SparkVersion(4, 0))
    with pytest.raises(FormatError, match=r"needs Spark 4\.1, and this is Spark 4\.0\. The options keyFormat and"):
        to_registry("value", url=broker.schema_registry_url, topic="t")


@pytest.mark.parametrize("version", [SparkVersion(4, 0), SparkVersion(4, 1)])
def test_encode_columns_works_with_every_version_of_spark(
    spark: "SparkSession", broker: EmbeddedBroker, topic: str, version: SparkVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipelines use encode_columns. In Spark 4.0, which has no column functions with Arrow, it maps whole batches."""
    if version > compat.installed_version():
        pytest.skip("this version of Spark is older")
    monkeypatch.setattr(compat, "installed_version", lambda: version)
    plan = functools.partial(
        functions.plan_encoding,
        settings={"schema.registry.url": broker.schema_registry_url},
        topic=topic,
        subject=None,
        schema=None,
        message=None,
    )
    rows = spark.range(3).select(
        expr("cast(id as string)").alias("key"),
        struct("id", expr("timestamp_millis(id * 1000)").alias("at"), expr("id * 0.5BD").alias("half")).alias("value"),
        expr("array(named_struct('key', 'h', 'value', cast('v' as binary)))").alias("headers"),
        expr("timestamp_millis(id)").alias("timestamp"),
    )
    encodings = {"key": plan(format="string", is_key=True), "value": plan(format="avro", is_key=False)}
    encoded = functions.encode_columns(rows, encodings)
    assert encoded.columns == rows.columns
    assert functions.encode_columns(rows, {}) is rows
    found = sorted(encoded.collect(), key=lambda row: row.timestamp)
    assert [(bytes(row.key), row.headers[0].key, row.timestamp.microsecond) for row in found] == [
        (b"%d" % number, "h", number * 1000) for number in range(3)
    ]
    with RegistryClient(broker.schema_registry_url) as registry:
        values = [AvroDeserializer(registry)(topic, bytes(row.value)) for row in found]
    assert [(value["id"], value["at"].second, float(value["half"])) for value in values] == [
        (0, 0, 0.0),
        (1, 1, 0.5),
        (2, 2, 1.0),
    ]
