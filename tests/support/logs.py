"""What the broker logs, kept from a test that would print thousands of lines."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Only what is critical. Brokers of other tests may live in this process: their settings come back."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        if before is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**before)
