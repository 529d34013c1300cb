"""Pipelines: a YAML file of sources, transforms and sinks, run as streaming queries of Spark."""
