"""Classifies the exception that ended a query, as a `QueryError`, and decides whether the flow is started again.

Spark raises its own exceptions, with the causes attached. The evidence, most precise first:

1. The note that one of our exceptions left in the text of the traceback.
2. The last line of the traceback, which names any other Python class; those of psycopg and of our client have codes.
3. Spark's condition and SQLSTATE. On a cluster these are only in the text, in Spark's own form.
4. The Java class, where Spark has no condition.

A failure that matches none of these is taken for a passing one, and the flow is started again.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from rookery.base.errors import ErrorCode
from rookery.client.backoff import Backoff
from rookery.pipelines.explanations import explain, shortened, with_file_keys
from rookery.spark.failures import LASTING_CODES
from rookery.spark.query_error import QueryError, Raised, read_traceback, restore
from rookery.spark.sqlstates import EXTERNAL, is_lasting_condition, is_lasting_state

# Spark's form of a condition and its SQLSTATE.
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z_\d]+)[.\w]*\]")
_SQLSTATE: Final = re.compile(r"\bSQLSTATE: (\w{5})\b")
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+([A-Z]\w*)(?=:|$)", re.MULTILINE)
# Classes of Java and PySpark, without their packages. AssertionError: Spark asserts that a checkpoint fits its query.
_LASTING_CLASSES: Final = frozenset(
    {
        "AnalysisException",
        "ArithmeticException",
        "ArrayIndexOutOfBoundsException",
        "AssertionError",
        "DateTimeException",
        "NumberFormatException",
        "ParseException",
        "SparkUpgradeException",
        "UnsupportedOperationException",
    }
)
_CAUSES_MAX: Final = 10
_RESTART_BACKOFF: Final = Backoff(first_s=1.0, last_s=60.0)


class ForeignError(QueryError):
    """A failure that was not raised by Rookery. Its message is a sentence of Spark or of another library."""


def failure_of(error: BaseException | str) -> QueryError:
    """Return the QueryError for `error`: the exception that ended a query or its start, or the text of one.

    The message names options as the keys of the pipeline's file.
    """
    if isinstance(error, QueryError):
        return _with_file_keys(error)
    chain = [error] if isinstance(error, str) else list(_chain(error))
    texts = [_text(each) for each in chain]
    for text in texts:
        restored = restore(text)
        if restored is not None:
            return _with_file_keys(restored)
    message = explain(texts[0]).message
    raised = read_traceback(texts[0])
    if raised is not None:
        return ForeignError(message, is_lasting=_is_lasting_python(raised))
    return ForeignError(message, is_lasting=any(map(_is_lasting, chain, texts)))


def restart_pause_s(error: QueryError, failures: int, *, failures_max: int) -> float | None:
    """Return how long to wait before the flow is started again; None if it must not be started again.

    `failures` counts the failures since the last batch that succeeded, including this one. An error that may pass (a
    broker that restarts, a lost executor) is retried with growing pauses; a lasting error is not retried.
    """
    if failures > failures_max or error.is_lasting:
        return None
    return _RESTART_BACKOFF.pause_s(failures - 1)


def _with_file_keys(error: QueryError) -> QueryError:
    error.args = (shortened(with_file_keys(" ".join(str(error).split()))),)
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception of Spark and its causes."""
    current: Any = error
    for _ in range(_CAUSES_MAX):
        if current is None:
            return
        yield current
        current = getattr(current, "_cause", None)


def _text(error: BaseException | str) -> str:
    """Return the text of an exception without the Java stack trace that PySpark appends."""
    return str(getattr(error, "_desc", None) or error)


def _is_lasting(error: BaseException | str, text: str) -> bool:
    condition, sqlstate = _codes(error)
    if condition is None:
        found = _CONDITION.search(text)
        condition = found[1] if found else None
    if sqlstate is None:
        codes = [code for code in _SQLSTATE.findall(text) if code != EXTERNAL]
        sqlstate = codes[-1] if codes else None
    names = {type(error).__name__, *_JAVA_CLASS.findall(text)}
    return is_lasting_condition(condition) or is_lasting_state(sqlstate) or not names.isdisjoint(_LASTING_CLASSES)


def _codes(error: BaseException | str) -> tuple[str | None, str | None]:
    """Return the condition and the SQLSTATE of an exception of PySpark; None for each that it does not have."""
    if not hasattr(error, "getCondition") or not hasattr(error, "getSqlState"):
        return None, None
    return error.getCondition(), error.getSqlState()


def _is_lasting_python(raised: Raised) -> bool:
    module, _, name = raised.class_name.rpartition(".")
    if module == "psycopg.errors":
        import psycopg

        return is_lasting_state(getattr(getattr(psycopg.errors, name, None), "sqlstate", None))
    if module in ("rookery.base.errors", "rookery.client.errors"):
        code = raised.message.partition(":")[0].strip()
        return code in ErrorCode.__members__ and ErrorCode[code] in LASTING_CODES
    if module.startswith("pyspark."):
        # A query that ran inside foreachBatch: its message holds Spark's codes.
        return _is_lasting(name, f"{name}: {raised.message}")
    return False
