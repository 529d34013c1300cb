"""What the broker logs in a test's own process, kept quiet or looked at.

Both leave the settings of structlog as they found them: embedded brokers look whether there are any, and those of other
tests may live in this process.
"""

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.testing import capture_logs


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Only what is critical: some tests would print thousands of lines."""
    with _settings_kept():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        yield


@contextmanager
def captured_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Every line as a dictionary, instead of being written."""
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
