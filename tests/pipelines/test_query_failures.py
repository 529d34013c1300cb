"""Which failures of a query are retried, and how they are reported."""

from typing import Any, cast

import pytest

from rookery.pipelines.query_failures import ForeignError, failure_of, restart_pause_s
from rookery.spark.option_table import OptionError
from rookery.spark.postgres.errors import ServerError

TRACEBACK = 'Query terminated: Traceback (most recent call last):\n  File "worker.py", line 1, in main\n'
QUERY = (
    "\n\n=== Streaming Query ===\nIdentifier: [id = 1, runId = 2]\nLogical Plan:\n"
    "~WriteToMicroBatchDataSourceV1 ForeachBatchSink, 3, [checkpointLocation=checkpoint], Append\n"
    "+- ~StreamingDataSourceV2ScanRelation[a#0] rate\n"
)


class FakeSparkError(Exception):
    """An exception like PySpark's, with a text, codes, and a cause."""

    def __init__(
        self, text: str, *, codes: tuple[str | None, str | None] = (None, None), cause: Exception | None = None
    ) -> None:
        super().__init__(f"{text}\n\nJVM stacktrace:\n ...")
        self._desc = text
        self._cause = cause
        self._condition, self._sqlstate = codes

    def getCondition(self) -> str | None:  # noqa: N802 - PySpark's name
        return self._condition

    def getSqlState(self) -> str | None:  # noqa: N802 - PySpark's name
        return self._sqlstate


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.spark.sql.AnalysisException: x",
        "[CAST_INVALID_INPUT] The value 'x' of the type STRING cannot be cast to BIGINT SQLSTATE: 22018",
        "Lost task 0.0: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] x SQLSTATE: 22012\n at",
        "java.lang.ArithmeticException: long overflow",
        "java.lang.AssertionError: assertion failed: There are [2] sources in the checkpoint offsets",
        "org.apache.spark.SparkUpgradeException: [INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION] x",
        "[INVALID_DATETIME_PATTERN.ILLEGAL_CHARACTER] Unrecognized datetime pattern: qqqqq. SQLSTATE: 22007",
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. SQLSTATE: 40000",
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] x SQLSTATE: XXKST",
        f"{TRACEBACK}rookery.client.errors.ProducerFencedError: PRODUCER_FENCED: y",
        f"{TRACEBACK}psycopg.errors.NotNullViolation: null value in column x{QUERY}",
        f"{TRACEBACK}psycopg.errors.UndefinedColumn: column y{QUERY}",
        f"{TRACEBACK}pyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] x SQLSTATE: 22012{QUERY}",
    ],
)
def test_failures_that_would_repeat_are_lasting(text: str) -> None:
    assert failure_of(text).is_lasting


@pytest.mark.parametrize(
    "text",
    [
        "the broker is gone",
        "[TASK_WRITE_FAILED] Task failed while writing rows SQLSTATE: 58030",
        "[STREAM_FAILED] Query terminated with exception: x SQLSTATE: XXKST",
        f"{TRACEBACK}psycopg.OperationalError: the server closed the connection unexpectedly{QUERY}",
        f"{TRACEBACK}psycopg.errors.SerializationFailure: could not serialize access{QUERY}",
        f"{TRACEBACK}rookery.base.errors.ApiError: NOT_LEADER_OR_FOLLOWER",
        f"{TRACEBACK}ValueError: of a user's function",
    ],
)
def test_failures_that_may_pass_are_not_lasting(text: str) -> None:
    assert not failure_of(text).is_lasting


def test_codes_of_causes_are_read() -> None:
    cause = FakeSparkError("[DIVIDE_BY_ZERO] Division by zero.", codes=("DIVIDE_BY_ZERO", "22012"))
    assert failure_of(FakeSparkError(f"Division by zero.{QUERY}", cause=cause)).is_lasting
    passing = FakeSparkError("a file was not renamed", codes=("FAILED_RENAME_TEMP_FILE", "58030"))
    assert not failure_of(FakeSparkError("a file was not renamed", cause=passing)).is_lasting


def test_exceptions_of_rookery_keep_their_class() -> None:
    name = "rookery.spark.postgres.errors.ServerError"
    note = f'[rookery-error {{"class": "{name}", "lasting": false, "sqlstate": "40001"}}]'
    text = f"{TRACEBACK}{name}: PostgreSQL answers:\n again\n{note}{QUERY}"
    failure = failure_of(FakeSparkError(text))
    assert (type(failure), str(failure), failure.is_lasting) == (ServerError, "PostgreSQL answers: again", False)
    assert failure.details == {"sqlstate": "40001"}
    raised = failure_of(OptionError("unknown option valueFormat"))
    assert (type(raised), str(raised)) == (OptionError, "unknown value_format")


@pytest.mark.parametrize("name", ["psycopg.errors.CheckViolation", "psycopg.errors.InsufficientPrivilege", "Disaster"])
def test_messages_of_python_exceptions_are_reported(name: str) -> None:
    """The plan of Spark that follows is not part of the message."""
    failure = failure_of(f"{TRACEBACK}{name}: permission denied for table orders\nDETAIL:  x{QUERY}")
    assert str(failure) == "permission denied for table orders DETAIL: x"


def test_an_exception_without_a_message() -> None:
    assert str(failure_of(f"{TRACEBACK}builtins.NotImplementedError{QUERY}")) == "builtins.NotImplementedError"
    assert type(failure_of(cast(Any, ValueError("x")))) is ForeignError


def test_a_query_inside_foreach_batch_is_reported_without_its_condition() -> None:
    name = "pyspark.errors.exceptions.captured.ArithmeticException"
    failure = failure_of(f"{TRACEBACK}{name}: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012{QUERY}")
    assert (str(failure), failure.is_lasting) == ("Division by zero.", True)


def test_restart_pauses_grow_until_the_limit() -> None:
    error = ForeignError("the broker is gone")
    pauses = [restart_pause_s(error, failures, failures_max=3) for failures in (1, 2, 3, 4)]
    assert pauses == [1.0, 2.0, 4.0, None]


def test_restarts_depend_on_the_type_and_not_on_the_text() -> None:
    assert restart_pause_s(ForeignError("AnalysisException: OptionError"), 1, failures_max=5) == 1.0
    assert restart_pause_s(OptionError("connection refused"), 1, failures_max=5) is None
