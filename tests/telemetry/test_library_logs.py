import logging

import pytest

from rookery.telemetry.library_logs import LibraryLogger


def test_the_client_logs_to_the_programs_logging(caplog: pytest.LogCaptureFixture) -> None:
    log = LibraryLogger("rookery.client.example")
    with caplog.at_level(logging.WARNING):
        log.warning("commit failed", group="g", error="why")
    with caplog.at_level(logging.ERROR):
        log.warning("too much detail")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("rookery.client.example", "WARNING")
    assert record.filename == "test_library_logs.py"
    assert record.getMessage() == "commit failed: group=g, error=why"


def test_exceptions_are_logged_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("broken 100%")
    except ValueError:
        LibraryLogger("rookery.client.example").exception("it failed 100%")
    (record,) = caplog.records
    assert record.getMessage() == "it failed 100%"
    assert "broken 100%" in caplog.text


def test_nothing_is_written_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    LibraryLogger("rookery.client.example").warning("hello")
    assert capfd.readouterr().out == ""
