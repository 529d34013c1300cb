"""What ended a query, as the `QueryError` that it was, or as one that stands for a failure of others.

Spark hands out exceptions of its own, with those that caused them. In the order of how much they say:

1. The note of one of our exceptions, in the text of the traceback.
2. The traceback's last line, which names any other class of Python's: psycopg's and our client's have codes.
3. Spark's condition and SQLSTATE. On a cluster these are in the text only, in a form of Spark's own.
4. The class of Java's, where Spark has no condition.

What none of these knows is tried again.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from rookery.base.errors import ErrorCode
from rookery.pipelines.explanations import explain, in_words_of_the_file, shortened
from rookery.spark.failures import LASTING_CODES
from rookery.spark.query_error import QueryError, Raised, read_traceback, restore
from rookery.spark.sqlstates import EXTERNAL, is_lasting_condition, is_lasting_state

# Spark's form of a condition and its code.
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z_\d]+)[.\w]*\]")
_SQLSTATE: Final = re.compile(r"\bSQLSTATE: (\w{5})\b")
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+([A-Z]\w*)(?=:|$)", re.MULTILINE)
# Of Java's and PySpark's classes, without a package. Spark asserts that a checkpoint fits its query.
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


class ForeignError(QueryError):
    """A failure that no exception of ours caused. Its message is a sentence that Spark or a library wrote."""


def failure_of(error: BaseException | str) -> QueryError:
    """`error` is what a query ended with, what its start raised, or the text of either. Its options are named as keys
    of the pipeline's file.
    """
    if isinstance(error, QueryError):
        return _in_words_of_the_file(error)
    chain = [error] if isinstance(error, str) else list(_chain(error))
    texts = [_text(each) for each in chain]
    for text in texts:
        restored = restore(text)
        if restored is not None:
            return _in_words_of_the_file(restored)
    message = explain(texts[0]).message
    raised = read_traceback(texts[0])
    if raised is not None:
        return ForeignError(message, is_lasting=_is_lasting_python(raised))
    return ForeignError(message, is_lasting=any(map(_is_lasting, chain, texts)))


def _in_words_of_the_file(error: QueryError) -> QueryError:
    error.args = (shortened(in_words_of_the_file(" ".join(str(error).split()))),)
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception of Spark's and those that caused it."""
    current: Any = error
    for _ in range(_CAUSES_MAX):
        if current is None:
            return
        yield current
        current = getattr(current, "_cause", None)


def _text(error: BaseException | str) -> str:
    """Without the stack of Java's that PySpark adds."""
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
    """Of PySpark's exceptions."""
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
        # A query that foreachBatch ran: Spark's own codes stand in its message.
        return _is_lasting(name, f"{name}: {raised.message}")
    return False
