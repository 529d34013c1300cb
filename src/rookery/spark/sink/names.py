"""The transactional ids of a sink. Pure.

    rookery-sink-<sink>-decisions            the driver that writes the ledger; taking it over locks others out
    rookery-sink-<sink>-<process>-<number>   a task; the process is a random name of the Python worker that runs it

Two tasks never have the same id at the same time, so that a speculative copy or a second attempt does not fence the
first. Nor do ids grow without end, since brokers remember each for a week: a worker uses an id again in a later batch
of the same sink, when the one before is done and nobody will ask for its transaction any more (see `writing`).

The prefix is for access rules: `--resource-pattern-type prefixed --transactional-id rookery-sink-`.
"""

import re
from typing import Final

_PREFIX: Final = "rookery-sink"
PROCESS_NAME_LENGTH: Final = 16


def decisions_id(sink: str) -> str:
    return f"{_PREFIX}-{sink}-decisions"


def task_id(sink: str, process: str, number: int) -> str:
    return f"{_PREFIX}-{sink}-{process}-{number}"


def tasks_pattern(sink: str) -> str:
    """A regular expression that matches the ids of this sink's tasks as a whole, and no other."""
    return rf"^{_PREFIX}-{re.escape(sink)}-[0-9a-f]{{{PROCESS_NAME_LENGTH}}}-[0-9]+$"
