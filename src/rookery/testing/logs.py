"""Routes an embedded broker's log lines to the test's `logging`, under `rookery.*`.

structlog prints to standard output by default, which would disturb tests that check it. A configuration of structlog by
the test's own program is not changed. The routing is removed when no broker runs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_lock = threading.Lock()
_broker_count = 0
_is_routed = False


@contextmanager
def routed_logs() -> Iterator[None]:
    """Route the log lines; shared by all brokers of the process: the first sets it up, the last removes it."""
    global _broker_count, _is_routed
    with _lock:
        if _broker_count == 0 and not structlog.is_configured():
            _route_to_logging()
            _is_routed = True
        _broker_count += 1
    try:
        yield
    finally:
        with _lock:
            _broker_count -= 1
            if _broker_count == 0 and _is_routed:
                structlog.reset_defaults()
                _is_routed = False


def _route_to_logging() -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.ExceptionRenderer(),
            structlog.processors.LogfmtRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
