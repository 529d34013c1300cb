"""The log of a broker in the test's process: suppressed or captured.

Both functions restore the configuration of structlog: embedded brokers check whether there is one, and those of other
tests may run in the same process.
"""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.testing import capture_logs


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Log only critical events: some tests would print thousands of lines."""
    with _settings_kept():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        yield


@contextmanager
def captured_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Collect every log event as a dictionary instead of printing it."""
    with _settings_kept(), capture_logs() as lines:
        yield lines


@contextmanager
def _settings_kept() -> Iterator[None]:
    before = structlog.get_config() if structlog.is_configured() else None
    try:
        yield
    finally:
        if before is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**before)
