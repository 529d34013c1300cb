"""The log lines of a server process, read from its standard error."""

import subprocess
import sys

import pytest


def lines(level: str, *calls: str) -> list[str]:
    program = "\n".join(
        [
            "import structlog",
            "from rookery.telemetry.logs import configure_logs",
            f"configure_logs({level!r})",
            "logger = structlog.get_logger('test')",
            *calls,
        ]
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "", "standard output is for the results of commands"
    return finished.stderr.splitlines()


def test_a_line_is_key_value_without_a_terminal() -> None:
    (line,) = lines("info", "logger.info('closed a connection', peer='127.0.0.1:5', reason='not a request')")
    assert "level=info" in line
    assert 'event="closed a connection" peer=127.0.0.1:5 reason="not a request"' in line


@pytest.mark.parametrize(("level", "expected"), [("info", 2), ("warning", 1)])
def test_the_level_filters(level: str, expected: int) -> None:
    assert len(lines(level, "logger.debug('a')", "logger.info('b')", "logger.warning('c')")) == expected


def test_an_exception_is_one_line_with_its_traceback() -> None:
    (line,) = lines("info", "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logger.exception('failed')")
    assert "ZeroDivisionError" in line
    assert "Traceback" in line
