"""Found by PySpark by its name: it makes `format("rookery")` work in every session, without a registration."""

from rookery.spark.datasource import DefaultSource

__all__ = ["DefaultSource"]
