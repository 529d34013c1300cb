"""Topics in Spark: a data source and a sink without jars, columns with schemas from a registry, dead letters."""

from rookery.spark.exports import __getattr__

__all__ = ["TopicSink", "__getattr__", "from_registry", "start_session", "to_registry"]
