"""Applies single-message transforms: each maps a DataFrame to a DataFrame with Spark's own expressions, row by row.

`on_error` matters where an expression can fail for a row: for casts and timestamps. `fail` fails the batch, as Spark
does; `null` makes the value null; `dead-letter` in addition writes the reason to the column ERROR_COLUMN, by which the
caller separates the failed rows when all steps are done.
"""

from functools import reduce
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its conventional name
from pyspark.sql.types import StringType, StructType, TimestampType

from rookery.pipelines.fields import suggestion
from rookery.pipelines.spec import (
    HIDDEN_COLUMNS,
    ROUTE_COLUMN,
    UNIX_FORMS,
    Cast,
    Drop,
    Filter,
    Flatten,
    Mask,
    MaskMethod,
    OnError,
    Rename,
    Route,
    Set,
    Step,
    ToTimestamp,
)

# The reason why a step failed for the row; null if none did. The column exists only with on_error dead-letter.
ERROR_COLUMN: Final = "_error"
_UNIX_UNITS: Final = {"unix": F.timestamp_seconds, "unix_ms": F.timestamp_millis, "unix_us": F.timestamp_micros}
# Beyond these bounds Spark's functions overflow and fail the batch, even where bad values should become null.
_LONG_MAX: Final = 2**63 - 1
_UNIX_MAX: Final = {"unix": _LONG_MAX // 1_000_000, "unix_ms": _LONG_MAX // 1_000, "unix_us": _LONG_MAX}
_PATTERN_GUIDE: Final = "https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html"
_HASH_BITS: Final = 256


class MissingColumnError(Exception):
    """A step names a column that does not exist."""


class PatternError(Exception):
    """A step names a timestamp pattern that is invalid in Spark."""


def apply_step(step: Step, rows: DataFrame, *, on_error: OnError) -> DataFrame:
    match step:
        case Mask(methods=methods):
            _check_columns(rows, [column for column, _ in methods])
            return rows.withColumns({column: _masked(rows, column, method) for column, method in methods})
        case Rename(names=names):
            _check_columns(rows, [old for old, _ in names])
            return rows.withColumnsRenamed(dict(names))
        case Cast(types=types):
            _check_columns(rows, [column for column, _ in types])
            cast = {name: _cast(name, kind, on_error) for name, kind in types}
            failures = {name: f"CastError: {name} is not a valid {kind}" for name, kind in types}
            return _converted(rows, cast, failures, on_error)
        case ToTimestamp(formats=formats):
            _check_columns(rows, [column for column, _ in formats])
            read = {name: _timestamp(rows, name, form, on_error) for name, form in formats}
            failures = {name: f"TimestampError: {name} is not a valid timestamp" for name, _ in formats}
            return _converted(rows, read, failures, on_error)
        case Filter(condition=condition):
            # Keep rows that failed: their nulls can make the condition false, and their dead letters would be lost.
            failed = F.col(ERROR_COLUMN).isNotNull() if ERROR_COLUMN in rows.columns else F.lit(False)
            return rows.where(F.expr(condition) | failed)
        case Route(topic=topic):
            return rows.withColumn(ROUTE_COLUMN, F.expr(topic).cast("string"))
        case Flatten(columns=columns, separator=separator):
            _check_columns(rows, columns)
            return _flattened(rows, columns, separator)
        case Drop(columns=columns):
            _check_columns(rows, columns)
            return rows.drop(*columns)
        case Set(expressions=expressions):
            return reduce(lambda made, pair: made.withColumn(pair[0], F.expr(pair[1])), expressions, rows)


def _check_columns(rows: DataFrame, columns: "tuple[str, ...] | list[str]") -> None:
    """Raise MissingColumnError for unknown columns: Spark silently ignores them when it drops or renames columns."""
    known = {name.lower() for name in rows.columns}
    for column in columns:
        if column.lower() not in known:
            raise MissingColumnError(f"there is no column {column}{suggestion(column, rows.columns)}")


def _masked(rows: DataFrame, column: str, method: MaskMethod) -> Column:
    kind = rows.schema[column].dataType
    if method == "hash":
        return F.sha2(F.col(column).cast("string"), _HASH_BITS)
    if method == "redact" and isinstance(kind, StringType):
        return F.mask(F.col(column))
    # Only strings can be redacted character by character: other types become null.
    return F.lit(None).cast(kind)


def _cast(column: str, kind: str, on_error: OnError) -> Column:
    return F.col(column).cast(kind) if on_error == "fail" else F.col(column).try_cast(kind)


def _timestamp(rows: DataFrame, column: str, form: str, on_error: OnError) -> Column:
    """Convert a column to a timestamp; a column of timestamps stays unchanged."""
    if isinstance(rows.schema[column].dataType, TimestampType):
        return F.col(column)
    if form in _UNIX_UNITS:
        if on_error == "fail":
            return _UNIX_UNITS[form](F.col(column).cast("bigint"))
        number = F.col(column).try_cast("bigint")
        return F.when(number.between(-_UNIX_MAX[form], _UNIX_MAX[form]), _UNIX_UNITS[form](number))
    _check_pattern(rows, form)
    text = F.col(column).cast("string")
    return F.to_timestamp(text, form) if on_error == "fail" else F.try_to_timestamp(text, F.lit(form))


def _check_pattern(rows: DataFrame, form: str) -> None:
    """Raise PatternError for an invalid pattern, which Spark itself would find only when it converts the first row."""
    jvm: Any = rows.sparkSession._jvm
    try:
        zone = jvm.java.time.ZoneOffset.UTC
        jvm.org.apache.spark.sql.catalyst.util.TimestampFormatter.apply(form, zone, True).validatePatternString(True)
    except PySparkException as error:
        raise PatternError(
            f"{form} is not a valid timestamp pattern: use {', '.join(UNIX_FORMS)}, or a pattern as in {_PATTERN_GUIDE}"
        ) from error


def _converted(rows: DataFrame, made: dict[str, Column], failures: dict[str, str], on_error: OnError) -> DataFrame:
    """Replace columns by their converted values `made`; with dead letters, write the first failure to ERROR_COLUMN.

    `failures` has a message by column, which begins with a class name, as the errors of dead letters do.
    """
    if on_error != "dead-letter":
        return rows.withColumns(made)
    noted = [
        F.when(F.col(name).isNotNull() & made[name].isNull(), F.lit(failure)) for name, failure in failures.items()
    ]
    earlier = [F.col(ERROR_COLUMN)] if ERROR_COLUMN in rows.columns else []
    return rows.withColumns({ERROR_COLUMN: F.coalesce(*earlier, *noted), **made})


def _flattened(rows: DataFrame, columns: tuple[str, ...], separator: str) -> DataFrame:
    names = columns or [name for name in rows.columns if name not in HIDDEN_COLUMNS]
    wanted = {name.lower() for name in names}
    chosen: list[Column] = []
    for field in rows.schema.fields:
        quoted = f"`{field.name}`"
        if isinstance(field.dataType, StructType) and field.name.lower() in wanted:
            chosen += _leaves(quoted, field.name, field.dataType, separator)
        else:
            chosen.append(F.col(quoted))
    return rows.select(*chosen)


def _leaves(path: str, name: str, kind: StructType, separator: str) -> list[Column]:
    found: list[Column] = []
    for field in kind.fields:
        inner_path, inner_name = f"{path}.`{field.name}`", f"{name}{separator}{field.name}"
        if isinstance(field.dataType, StructType):
            found += _leaves(inner_path, inner_name, field.dataType, separator)
        else:
            found.append(F.col(inner_path).alias(inner_name))
    return found
