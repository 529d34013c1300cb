"""A small job whose JVM loads the classes that queries use. `class_archive` runs it to record these classes.

The job needs no broker: it has its own source and sink in place of those for topics.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.functions import window
from pyspark.sql.types import StructType

from rookery.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS: Final = 10


class NumberReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"next": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"next": _ROWS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(start["next"], end["next"], _ROWS // 2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, bytes, datetime]]:
        yield "key", b'{"number": %d}' % partition.value, datetime.now(UTC)


class DiscardingWriter(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "key string, value binary, timestamp timestamp"

    def streamReader(self, schema: StructType) -> NumberReader:  # noqa: N802 - Spark's name
        return NumberReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DiscardingWriter:  # noqa: N802 - Spark's name
        return DiscardingWriter()


def run(session: "SparkSession", directory: Path) -> None:
    """Run a stream with state and a join, then write and read Parquet files."""
    session.dataSource.register(Numbers)
    names = session.range(_ROWS).selectExpr("cast(id as int) as number", "concat('name ', id) as name")
    numbers = session.readStream.format("numbers").load().withWatermark("timestamp", "1 minute")
    parsed = numbers.selectExpr("timestamp", "from_json(cast(value as string), 'number int').number as number")
    counted = parsed.join(names, "number").groupBy(window("timestamp", "1 minute"), "name").count()
    rows = counted.selectExpr("name as key", "cast(to_json(struct(*)) as binary) as value", "window.end as timestamp")
    writer = rows.writeStream.format("numbers").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.start()
    query.processAllAvailable()
    query.stop()
    names.write.parquet(str(directory / "names"))
    session.read.parquet(str(directory / "names")).groupBy("name").count().collect()


def main(name: str, value: str, directory: str) -> None:
    """Run the job in a session with the setting `name`=`value`; it writes its files to `directory`."""
    session = start_session("classes", settings={name: value})
    run(session, Path(directory))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
