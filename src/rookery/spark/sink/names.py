"""The transactional ids of a sink. Pure.

    rookery-sink-<sink>-decisions             the driver that writes the ledger; taking the id over fences other drivers
    rookery-sink-<tasks>-<process>-<number>   a task; the process is a random name of the Python worker that runs it

For a stream, <tasks> is the sink's name. For a batch write it is the name and the version: several versions of a sink
may be written concurrently, and one write must not abort the transactions of another as leftovers of its own.

Two tasks never have the same id at the same time, so that a speculative copy or a second attempt does not fence the
first. The number of ids is bounded, because brokers store each for a week: a worker reuses an id in a later batch of
the same sink, when the batch before is done and its transactions are not needed any more (see `task_writer`).

The prefix is for access rules: `--resource-pattern-type prefixed --transactional-id rookery-sink-`.
"""

import re
from typing import Final

# Spark's local properties, which it sets in the tasks of a streaming query.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

_PREFIX: Final = "rookery-sink"
PROCESS_NAME_LENGTH: Final = 16


def decisions_id(sink: str) -> str:
    return f"{_PREFIX}-{sink}-decisions"


def tasks_name(sink: str, batch: int, *, is_streaming: bool) -> str:
    return sink if is_streaming else f"{sink}:{batch}"


def named_write(app: str, topic: str | None) -> str:
    """Return the sink's name for writes with a txnAppId. No topic name contains a slash or an asterisk."""
    return f"{app}/{topic or '*'}"


def task_id(tasks: str, process: str, number: int) -> str:
    return f"{_PREFIX}-{tasks}-{process}-{number}"


def tasks_pattern(tasks: str) -> str:
    """Return a regular expression that matches the whole ids of these tasks, and no other ids."""
    return rf"^{_PREFIX}-{re.escape(tasks)}-[0-9a-f]{{{PROCESS_NAME_LENGTH}}}-[0-9]+$"
