"""Topics in Spark: a data source and sink without jars, registry-aware columns, dead letters, pipelines."""

from rookery.spark.exports import __getattr__

__all__ = ["TopicSink", "__getattr__", "from_registry", "start_session", "to_registry"]
