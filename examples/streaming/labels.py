"""A Python transform: a function that takes DataFrames and returns one."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its conventional name


def label(clicked: DataFrame) -> DataFrame:
    is_sale = F.col("button") == "buy"
    return clicked.withColumn("label", F.when(is_sale, F.lit("sale")).otherwise(F.lit("interest")))
