"""Exceptions keep their class, their message and their details in the text of a traceback."""

import traceback

import pytest

from rookery.spark.failures import DataLossError, SourceError
from rookery.spark.formats.errors import FormatError, RegistryDownError
from rookery.spark.option_table import OptionError
from rookery.spark.postgres.errors import FencedError, PostgresError, ServerError, UnavailableError
from rookery.spark.query_error import QueryError, read_traceback, restore
from rookery.spark.sink.commit_protocol import RivalDriverError, SinkError, StaleCheckpointError, TornBatchError
from rookery.spark.source.row_shape import DecodingError

LASTING = [
    DataLossError,
    DecodingError,
    FencedError,
    FormatError,
    OptionError,
    PostgresError,
    RivalDriverError,
    StaleCheckpointError,
    TornBatchError,
]
PASSING = [RegistryDownError, SinkError, SourceError, UnavailableError]


def through_spark(error: Exception) -> str:
    """Return the text that Spark makes of the traceback of a worker."""
    try:
        raise error
    except Exception:
        text = traceback.format_exc()
    return f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {text} SQLSTATE: 38000\n=== Streaming"


@pytest.mark.parametrize("kind", [*LASTING, *PASSING])
def test_a_class_passes_through_a_text(kind: type[QueryError]) -> None:
    error = kind("the table orders: no column at")
    restored = restore(through_spark(error))
    assert restored is not None
    assert (type(restored), str(restored)) == (kind, str(error))
    assert restored.is_lasting == (kind in LASTING)


def test_messages_of_several_lines_and_details_pass() -> None:
    error = ServerError("new row\n  violates: a check\nDETAIL: (1, \u00e4)", is_lasting=False, sqlstate="40001")
    restored = restore(through_spark(error))
    assert restored is not None
    assert (str(restored), restored.is_lasting, restored.details) == (str(error), False, {"sqlstate": "40001"})


def test_the_last_exception_of_a_chain_is_restored() -> None:
    try:
        try:
            raise SinkError("first")
        except SinkError as error:
            raise PostgresError("second") from error
    except PostgresError as error:
        restored = restore(through_spark(error))
    assert type(restored) is PostgresError
    assert str(restored) == "second"


def test_a_class_that_this_process_does_not_know() -> None:
    text = through_spark(OptionError("gone")).replace("OptionError", "OtherError")
    restored = restore(text)
    assert restored is not None
    assert (type(restored), str(restored), restored.is_lasting) == (QueryError, "gone", True)


def test_text_that_looks_like_a_note() -> None:
    """Messages may quote records."""
    assert restore("[rookery-error {}]") is None
    assert restore("[rookery-error {not JSON}]") is None
    assert restore('a record: [rookery-error {"class": "x", "lasting": false}]') is None
    quoting = DecodingError('offset 7: [rookery-error {"class": "x", "lasting": false}]\nis no number')
    restored = restore(through_spark(quoting))
    assert (type(restored), str(restored)) == (DecodingError, str(quoting))


def test_a_note_is_not_part_of_the_message() -> None:
    assert str(OptionError("unknown option x")) == "unknown option x"


def test_tracebacks_of_classes_with_any_name() -> None:
    class CheckViolation(Exception):  # noqa: N818 - as psycopg names them
        pass

    raised = read_traceback(through_spark(CheckViolation("new row: refused\nDETAIL: it is")))
    assert raised is not None
    assert raised.class_name.endswith("CheckViolation")
    assert raised.message.startswith("new row: refused\nDETAIL: it is")
    assert read_traceback("no traceback") is None
    silent = read_traceback(through_spark(KeyboardInterruptLike()))
    assert silent is not None
    assert (silent.class_name.rpartition(".")[2], silent.message) == ("KeyboardInterruptLike", "")


class KeyboardInterruptLike(Exception):  # noqa: N818
    """An exception without a message."""
