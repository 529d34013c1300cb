"""Dead letters as columns: for records that a task could not decode and for rows that a query could not process.

Both kinds have the record's own bytes and headers, followed by the headers of `dead_letters.standard`.
`dead_letter_table` takes Arrow data in a task; every row of it is a dead letter, so a Python loop over them is cheap
enough. `as_dead_letters` consists of Spark expressions and returns the columns that the sink takes: key, value,
headers, topic.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rookery.dead_letters import standard
from rookery.dead_letters.standard import Failure, dead_letter_topic, headers_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# The columns with the bytes as they were read, for key and value columns that hold decoded values.
_RAW: Final = {"key": "rawKey", "value": "rawValue"}
_NEEDED: Final = ("topic", "partition", "offset", "timestamp")
# An error as one text: the name of its class, and the message.
_CLASS_AND_MESSAGE: Final = r"(?s)^([A-Za-z_][A-Za-z0-9_.$]*): (.*)$"
_UNNAMED: Final = "Error"


def dead_letter_table(rows: pa.RecordBatch, failures: Sequence[Failure], topic: str | None) -> pa.Table:
    """Return a table for `Producer.send_arrow`: the records as they were read, each with the headers of its failure.

    `topic` None: each letter goes to the dead-letter topic of the topic it came from.
    """
    count = rows.num_rows
    own = rows.column("headers").to_pylist() if "headers" in rows.schema.names else [None] * count
    headers = [
        [*((header["key"], header["value"]) for header in before or ()), *headers_of(failure)]
        for before, failure in zip(own, failures, strict=True)
    ]
    pairs = [[{"key": name, "value": value} for name, value in each] for each in headers]
    topics = [_topic_of(failure) if topic is None else topic for failure in failures]
    columns = [rows.column("key"), rows.column("value"), pa.array(pairs, _HEADERS), pa.array(topics, pa.string())]
    return pa.Table.from_arrays(columns, names=["key", "value", "headers", "topic"])


def _topic_of(failure: Failure) -> str:
    assert failure.origin is not None, "without origins the topic has to be given"
    return dead_letter_topic(failure.origin.topic)


def as_dead_letters(
    df: "DataFrame", *, error_column: str, stage: str, pipeline: str | None, topic: str | None = None
) -> "DataFrame":
    """Return the rows of a topic whose error is not null, as dead letters for the sink.

    The error is a text, preferably "Class: message", or a struct of error_class and message. The rows have the columns
    of the source; if rawKey and rawValue exist (the source's option includeRaw), the letters hold their bytes.
    """
    from pyspark.sql import functions as f

    _check_columns(df)
    error = f.col(error_column)
    error_class, message = _class_and_message(df, error_column)
    headers = f.coalesce(f.col("headers"), _no_headers()) if "headers" in df.columns else _no_headers()
    texts = [
        (standard.TOPIC, f.col("topic")),
        (standard.PARTITION, f.col("partition").cast("string")),
        (standard.OFFSET, f.col("offset").cast("string")),
        (standard.TIMESTAMP, f.unix_millis(f.col("timestamp")).cast("string")),
        (standard.PIPELINE, f.lit(pipeline).cast("string")),
        (standard.STAGE, f.lit(stage)),
        (standard.ERROR_CLASS, error_class),
        (standard.MESSAGE, f.substring(message, 1, standard.MESSAGE_LENGTH_MAX)),
        (standard.ATTEMPT, _attempt(headers).cast("string")),
    ]
    block = f.array(*(_header(name, text) for name, text in texts))
    known = f.filter(block, lambda header: header["value"].isNotNull())
    target = f.concat(f.col("topic"), f.lit(standard.SUFFIX)) if topic is None else f.lit(topic)
    kept = [f.col(_RAW[name] if _RAW[name] in df.columns else name).alias(name) for name in _RAW]
    return df.where(error.isNotNull()).select(*kept, f.concat(headers, known).alias("headers"), target.alias("topic"))


def _check_columns(df: "DataFrame") -> None:
    from pyspark.sql.types import BinaryType, StringType

    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise ValueError(f"column {missing[0]} is missing: the headers of a dead letter contain it")
    for name, raw in _RAW.items():
        kind = None if raw in df.columns or name not in df.columns else df.schema[name].dataType
        if raw not in df.columns and not isinstance(kind, BinaryType | StringType):
            raise ValueError(
                f"the bytes of the {name} are missing: set the option includeRaw of the source to errors or always"
            )


def _class_and_message(df: "DataFrame", error_column: str) -> "tuple[Column, Column]":
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    error = f.col(error_column)
    if isinstance(df.select(error.alias("error")).schema["error"].dataType, StructType):
        return error["error_class"], error["message"]
    text = error.cast("string")
    is_named = text.rlike(_CLASS_AND_MESSAGE)
    error_class = f.when(is_named, f.regexp_extract(text, _CLASS_AND_MESSAGE, 1)).otherwise(f.lit(_UNNAMED))
    return error_class, f.when(is_named, f.regexp_extract(text, _CLASS_AND_MESSAGE, 2)).otherwise(text)


def _attempt(headers: "Column") -> "Column":
    """Return the number in the last attempt header that holds one, or the first attempt if there is none."""
    from pyspark.sql import functions as f

    counts = f.transform(
        f.filter(headers, lambda header: header["key"] == standard.ATTEMPT),
        lambda header: header["value"].cast("string").try_cast("int"),
    )
    return f.coalesce(
        f.try_element_at(f.filter(counts, lambda count: count > 0), f.lit(-1)), f.lit(standard.FIRST_ATTEMPT)
    )


def _header(name: str, text: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.struct(f.lit(name).alias("key"), f.encode(text, "UTF-8").alias("value"))


def _no_headers() -> "Column":
    from pyspark.sql import functions as f

    return f.array().cast("array<struct<key:string,value:binary>>")
