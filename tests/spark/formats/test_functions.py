"""`from_registry` and `to_registry` in queries, with a real registry."""

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql.functions import col, expr, struct

from rookery.serdes import AvroDeserializer, AvroSerializer, RegistryClient
from rookery.spark import from_registry, to_registry
from rookery.spark.formats import FormatError
from rookery.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "long"}]}
NEW = OLD | {"fields": [*OLD["fields"], {"name": "at", "type": ["null", "string"], "default": None}]}


def test_columns_there_and_back(spark: "SparkSession", broker: EmbeddedBroker, topic: str) -> None:
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


def test_errors_are_told_or_kept(spark: "SparkSession", broker: EmbeddedBroker, topic: str) -> None:
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


def test_mistakes_are_told_on_the_driver(broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(FormatError, match=f"{topic}-value"):
        from_registry("data", url=broker.schema_registry_url, topic=topic)
    with pytest.raises(FormatError, match="no format xml"):
        from_registry("data", format="xml")
    with pytest.raises(FormatError, match=r"schema\.registry\.url"):
        from_registry("data", schema="long")
    with pytest.raises(FormatError, match="topic or the subject"):
        to_registry("data", url=broker.schema_registry_url)
    with pytest.raises(FormatError, match="dead letters"):
        from_registry("data", url=broker.schema_registry_url, schema="long", on_error="dead-letter")  # type: ignore[arg-type]
