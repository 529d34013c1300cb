"""Classifies SQLSTATE codes of Spark's conditions and PostgreSQL's errors: is a failure lasting or transient? Pure.

The first two characters are the class, by the SQL standard and by both programs' own tables.
"""

from typing import Final

# Classes of failures that last until the query, its data or a setting is changed.
_LASTING_CLASSES: Final = {
    "07": "dynamic SQL",
    "0A": "not supported",
    "21": "cardinality",
    "22": "data: a value that does not fit, a division by zero",
    "23": "a constraint of a table",
    "28": "user or password",
    "2B": "dependent objects",
    "3D": "no such database",
    "3F": "no such schema",
    "42": "syntax, access rights, names that do not exist",
    "44": "a view's check option",
    "46": "a Java routine",
    "54": "a limit of the program",
    "56": "a feature that is missing or off",
    "P0": "raised by a trigger or a function",
}
# Conditions of Spark whose name is more precise than their code. CONCURRENT_STREAM_LOG_UPDATE means that two drivers
# use one checkpoint: restarts would only make them stop each other again.
_LASTING_CONDITIONS: Final = frozenset(
    {
        "CONCURRENT_STREAM_LOG_UPDATE",
        "STATE_REPARTITION_INVALID_CHECKPOINT",
        "STATE_REWRITER_INVALID_CHECKPOINT",
        "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        "STREAMING_UNFINISHED_REPARTITION_DETECTED",
        "TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE",
    }
)
# Spark's code for any exception that Python raised; the traceback is more precise.
EXTERNAL: Final = "38000"


def is_lasting_state(sqlstate: str | None) -> bool:
    return sqlstate is not None and sqlstate[:2] in _LASTING_CLASSES


def is_lasting_condition(condition: str | None) -> bool:
    """Whether a condition of Spark is lasting. `condition` may have a sub-condition after a dot."""
    return condition is not None and condition.partition(".")[0] in _LASTING_CONDITIONS
