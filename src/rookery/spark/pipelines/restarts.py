"""Whether a flow that failed is started again, and when. Pure.

Whatever may be gone a moment later (a broker that restarts, an executor that was lost) is tried again, with longer
pauses; a batch that succeeds makes up for earlier failures. What will fail again in the same way is not.
"""

import re
from typing import Final

from rookery.client.backoff import Backoff

BACKOFF: Final = Backoff(first_s=1.0, last_s=60.0)

# Spark's error classes, our exceptions and those of psycopg: the query, the data or the settings have to be changed
# first. A run that was fenced would fight its successor.
_LASTING: Final = re.compile(
    r"AnalysisException|OptionError|DataLossError|UNRESOLVED_|TABLE_OR_VIEW_NOT_FOUND|STATE_STORE_\w*SCHEMA|"
    r"STATE_SCHEMA|DIVIDE_BY_ZERO|CAST_INVALID_INPUT|CAST_OVERFLOW|ARITHMETIC_OVERFLOW|long overflow|DecodeError|"
    r"SparkUpgradeException|INCONSISTENT_BEHAVIOR_CROSS_VERSION|INVALID_DATETIME_PATTERN|"
    r"DecodingError|INVALID_RECORD|UnsupportedOperationException|Concurrent update to the log|CONCURRENT_STREAM_LOG|"
    r"FencedError|PRODUCER_FENCED|other drivers write to the sink|TornBatchError|"
    r"Cannot continue|sources? in the checkpoint|"
    r"psycopg\.errors\.(?:\w*Violation|Undefined\w+|Insufficient\w+|Invalid\w+|NumericValueOutOfRange|"
    r"StringDataRightTruncation|DatetimeFieldOverflow|DatatypeMismatch|Untranslatable\w+)|"
    r"PostgresError: (?:table |column |order column |'.*' is no table|the dsn)"
)


def restart_pause_s(error: str, failures: int, *, failures_max: int) -> float | None:
    """`failures` counts those since the last batch that succeeded, this one included. None: give up."""
    if failures > failures_max or _LASTING.search(error):
        return None
    return BACKOFF.pause_s(failures - 1)
