"""The transactional ids of a sink. Pure.

    rookery-sink-<sink>-decisions             the driver that writes the ledger; taking it over locks others out
    rookery-sink-<tasks>-<process>-<number>   a task; the process is a random name of the Python worker that runs it

A stream's tasks have the sink's name. Those of a batch write have its version besides: several versions of a sink may
be written at once, and none may take the other's transactions for left-overs of its own.

Two tasks never have the same id at the same time, so that a speculative copy or a second attempt does not fence the
first. Nor do ids grow without end, since brokers remember each for a week: a worker uses an id again in a later batch
of the same sink, when the one before is done and nobody will ask for its transaction any more (see `task_writer`).

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
    """The sink of writes with a txnAppId; no topic has a slash or an asterisk in its name."""
    return f"{app}/{topic or '*'}"


def task_id(tasks: str, process: str, number: int) -> str:
    return f"{_PREFIX}-{tasks}-{process}-{number}"


def tasks_pattern(tasks: str) -> str:
    """A regular expression that matches the ids of these tasks as a whole, and no other."""
    return rf"^{_PREFIX}-{re.escape(tasks)}-[0-9a-f]{{{PROCESS_NAME_LENGTH}}}-[0-9]+$"
