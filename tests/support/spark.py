"""The session settings that all Spark tests share."""

from typing import Final

# Tests run short queries: a small heap, the serial garbage collector and the quick compiler start sooner.
SESSION_SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
