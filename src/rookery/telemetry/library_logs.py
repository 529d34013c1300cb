"""Logging of the client, which is a library: it uses the `logging` configuration of the program that imports it.

It does not use structlog, whose import (with rich) would cost a program that needs only a client 80 ms.
"""

import logging


class LibraryLogger:
    """Logs an event and its details, as `key=value`, in one line."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def warning(self, event: str, **details: object) -> None:
        self._write(logging.WARNING, event, details)

    def error(self, event: str, *, exc_info: BaseException | None = None, **details: object) -> None:
        self._write(logging.ERROR, event, details, exc_info)

    def exception(self, event: str, **details: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, details, exc_info=True)

    def _write(
        self, level: int, event: str, details: dict[str, object], exc_info: BaseException | bool | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            text = ", ".join(f"{key}={value}" for key, value in details.items())
            self._logger.log(level, f"{event}: {text}" if text else event, exc_info=exc_info, stacklevel=3)
