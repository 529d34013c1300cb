"""Makes `format("rookery")` work in every session without registration: PySpark loads packages named `pyspark_*`."""

from rookery.spark.datasource import DefaultSource

__all__ = ["DefaultSource"]
