"""Log lines of the client, a library in other people's programs: they go where the program's `logging` sends them.

Without structlog, whose import (it brings rich) costs a program that only wants a client 80 ms.
"""

import logging


class LibraryLogger:
    """An event, and its details as `key=value`, in one line of text."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def warning(self, event: str, **details: object) -> None:
        self._write(logging.WARNING, event, details)

    def error(self, event: str, *, exc_info: BaseException | None = None, **details: object) -> None:
        self._write(logging.ERROR, event, details, exc_info)

    def exception(self, event: str, **details: object) -> None:
        """With the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, details, exc_info=True)

    def _write(
        self, level: int, event: str, details: dict[str, object], exc_info: BaseException | bool | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            text = ", ".join(f"{key}={value}" for key, value in details.items())
            self._logger.log(level, f"{event}: {text}" if text else event, exc_info=exc_info, stacklevel=3)
