"""The examples are valid: they parse, and Spark accepts the streaming one. No example is run."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.client.sync import Admin, NewTopic
from rookery.pipelines.checks import check_pipeline
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.spec import TopicSource
from rookery.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(EXAMPLES.glob("*/*.yaml"))


def name(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def test_there_are_examples() -> None:
    assert {path.parent.name for path in FILES} == {"etl", "elt", "streaming"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_every_example_is_valid(path: Path) -> None:
    parse_pipeline(path.read_text(), path, {})


def test_spark_accepts_the_streaming_example(spark: "SparkSession", broker: EmbeddedBroker) -> None:
    path = EXAMPLES / "streaming" / "page-views.yaml"
    pipeline = parse_pipeline(path.read_text(), path, {"ROOKERY_BOOTSTRAP_SERVER": broker.bootstrap_servers})
    topics = [
        NewTopic(topic) for each in pipeline.sources.values() if isinstance(each, TopicSource) for topic in each.topics
    ]
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.create_topics(topics)
    flows = check_pipeline(spark, pipeline)
    assert [flow.name for flow in flows] == ["dead-letters", "page-counts", "visits", "clicked-views"]
