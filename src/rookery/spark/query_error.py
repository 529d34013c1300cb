"""Exceptions that end a query, with a note that carries their class through Spark. Pure.

An exception in a Python worker or in a function of foreachBatch reaches the driver as the text of a traceback, inside
a Java exception. The class is lost, and with it the information whether a restarted query would fail in the same way.
A `QueryError` therefore carries a note (PEP 678), which Python prints below the message in every traceback: one line
of JSON. `restore` finds the note and rebuilds the exception.
"""

import json
import re
from typing import Any, ClassVar, Final, NamedTuple

_MARK: Final = "rookery-error"
_NOTE: Final = re.compile(rf"^\[{_MARK} (\{{.*\}})\]", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):\n"


class QueryError(Exception):
    """The base of all exceptions that Rookery's sources and sinks raise inside a query.

    `is_lasting`: a restart would fail in the same way until the query, the data or a setting is changed. Each class
    has a default. `details` are texts for programs, such as the server's error code.
    """

    is_lasting: bool = False
    _classes: ClassVar[dict[str, type["QueryError"]]] = {}

    def __init__(self, message: str, *, is_lasting: bool | None = None, **details: str) -> None:
        super().__init__(message)
        if is_lasting is not None:
            self.is_lasting = is_lasting
        self.details = details
        payload = {"class": qualified_name(type(self)), "lasting": self.is_lasting, **details}
        self.add_note(f"[{_MARK} {json.dumps(payload)}]")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        QueryError._classes[qualified_name(cls)] = cls

    @classmethod
    def _restored(cls, message: str, payload: dict[str, Any]) -> "QueryError":
        """Rebuild the exception without `__init__`: subclasses build their message from other arguments."""
        name, is_lasting = payload.pop("class"), payload.pop("lasting")
        kind = cls._classes.get(name, cls)
        error = kind.__new__(kind, message)
        error.args = (message,)
        error.is_lasting = is_lasting
        error.details = payload
        return error


def qualified_name(kind: type) -> str:
    """Return the name of a class as tracebacks show it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def restore(text: str) -> QueryError | None:
    """Return the exception of the last note in `text`, or None. Earlier notes belong to its causes."""
    found: re.Match[str] | None = None
    for each in _NOTE.finditer(text):
        found = each
    if found is None:
        return None
    try:
        payload = json.loads(found[1])
        title = f"{payload['class']}: "
        return QueryError._restored(_message(text[: found.start()], title), payload)
    except (KeyError, ValueError):
        # Not a note that `QueryError` wrote: the text of a record may look like one.
        return None


def _message(before: str, title: str) -> str:
    """Return the lines from the exception's name to its note.

    The message may contain the name again, so the first occurrence counts."""
    traceback = before.rpartition(_TRACEBACK)[2]
    start = 0 if traceback.startswith(title) else traceback.find(f"\n{title}") + 1
    return traceback[start:].removeprefix(title).strip()


class Raised(NamedTuple):
    """The exception of a traceback: its class as the traceback names it, and its message."""

    class_name: str
    message: str


def read_traceback(text: str) -> Raised | None:
    """Return the exception of the last traceback in `text`, or None.

    It is the first line after the header that is not indented, with all lines after it."""
    _, header, traceback = text.rpartition(_TRACEBACK)
    lines = traceback.splitlines()
    start = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
    if not header or start is None:
        return None
    class_name, _, message = "\n".join(lines[start:]).partition(": ")
    if not re.fullmatch(r"[\w.<>]+", class_name):
        # An exception without a message.
        class_name, message = lines[start].split()[0], ""
    return Raised(class_name, message)
