"""How log lines look: one line per event on standard error, coloured on a terminal, `key=value` elsewhere.

Modules get their logger with `structlog.get_logger(__name__)` and log per event, never per record: a line costs
about 8 microseconds. The client is a library in other people's programs: its modules use `library_logger`, whose lines
go where the program's own logging sends them.
"""

import logging
import sys

import structlog
from structlog.stdlib import BoundLogger


def configure_logs(level: str = "info") -> None:
    """Set up logging for a process of ours; called once, by `node.main`."""
    interactive = sys.stderr.isatty()
    renderer = (
        structlog.dev.ConsoleRenderer()
        if interactive
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.ExceptionRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def library_logger(name: str) -> BoundLogger:
    """A logger of Python's `logging`, with the event and its details as one line of text."""
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            _with_details,
        ],
    )
    return logger


def _with_details(_: object, __: str, event: structlog.typing.EventDict) -> tuple[tuple[str], dict[str, object]]:
    """The arguments for `logging`: a traceback stays its business."""
    text = event.pop("event")
    passed = {"exc_info": event.pop("exc_info")} if "exc_info" in event else {}
    details = ", ".join(f"{key}={value}" for key, value in event.items())
    return (f"{text}: {details}" if details else str(text),), passed
