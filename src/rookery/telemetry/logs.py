"""Configures the log of a server process: one line per event on standard error, coloured on a terminal, else logfmt.

Modules get their logger with `structlog.get_logger(__name__)` and log per event, never per record: a line costs about 8
microseconds. The client has its own loggers: `library_logs`.
"""

import logging
import sys

import structlog


def configure_logs(level: str = "info") -> None:
    """Set up logging for the whole process. The commands that run a server call it once, at the start."""
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
