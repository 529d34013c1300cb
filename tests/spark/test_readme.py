"""Runs the README's example for Spark without changes."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.serdes import RegistryClient, Schema
from rookery.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = Path(__file__).resolve().parent.parent.parent / "README.md"
VIEW = '{"type": "record", "name": "View", "fields": [{"name": "page", "type": "string"}]}'


def test_the_example_of_the_readme(spark: "SparkSession", broker: EmbeddedBroker) -> None:
    broker.create_topic("page-views")
    with RegistryClient(broker.schema_registry_url) as registry:
        registry.register("page-views-value", Schema(VIEW))
    (example,) = re.findall(r"^## In your Spark jobs$.*?^```python\n(.*?)^```$", README.read_text(), re.M | re.S)
    text = example.replace("localhost:9092", broker.bootstrap_servers)
    names: dict[str, Any] = {"spark": spark}
    exec(text.replace("http://localhost:8081", broker.schema_registry_url), names)
    assert names["views"].isStreaming
    assert names["views"].schema["value"].dataType.simpleString() == "struct<page:string>"
