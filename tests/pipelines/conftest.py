"""The broker and the topic names of tests/spark. Tests that need its Spark session are in tests/spark/pipelines."""

from tests.spark.conftest import broker as broker
from tests.spark.conftest import topic as topic
