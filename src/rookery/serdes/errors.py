"""What can go wrong between a value and its bytes. Every text says what to do, as far as anybody can know.

SerdesError
|-- RegistryUnavailableError   no url of the registry answered
|-- RegistryRequestError       the registry refused: its HTTP status, error code and message
|-- NotRegisteredError         a schema that is to be used, but that the registry does not have
|-- InvalidValueError          a value that does not fit its schema; names the field
|-- InvalidDataError           bytes in the wire format that do not fit their schema
`-- WireFormatError            bytes that are not in the wire format

InvalidSchemaError             a text that is no schema of its format
"""

from collections.abc import Iterable
from typing import Final

from rookery.base.errors import RookeryError
from rookery.schemas.interface import InvalidSchemaError

__all__ = [
    "InvalidDataError",
    "InvalidSchemaError",
    "InvalidValueError",
    "NotRegisteredError",
    "RegistryRequestError",
    "RegistryUnavailableError",
    "SerdesError",
    "WireFormatError",
    "describe",
    "format_path",
    "shorten",
]

# Libraries put whole values and whole schemas into their messages.
_LENGTH_MAX: Final = 400


def shorten(text: str) -> str:
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}..."


def describe(error: BaseException) -> str:
    return str(error) or type(error).__name__


def format_path(steps: Iterable[str | int]) -> str:
    """In the manner of JSONPath: $.lines[2].price"""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


class SerdesError(RookeryError):
    """One of the errors below."""


class RegistryUnavailableError(SerdesError):
    def __init__(self, failures: dict[str, str]) -> None:
        """`failures` has what happened at each url."""
        self.failures = failures
        told = "; ".join(f"{url}: {failure}" for url, failure in failures.items())
        super().__init__(f"no schema registry answers ({told}); check the urls, and that the registry runs")


class RegistryRequestError(SerdesError):
    """`code` is the registry's own, 40401 for instance; -1 for answers that no registry gives."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (HTTP status {status}, error code {code})")
        self.status = status
        self.code = code
        self.message = message


class NotRegisteredError(SerdesError):
    pass


class InvalidValueError(SerdesError):
    """`path` leads to the part that does not fit, `$` being the whole value; empty if that is not known."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(shorten(f"{path}: {message}" if path else message))
        self.path = path


class InvalidDataError(SerdesError):
    def __init__(self, message: str) -> None:
        super().__init__(shorten(message))


class WireFormatError(SerdesError):
    pass
