"""The errors of serializers, deserializers and the registry's client. A text says what to do where that is known.

SerdesError
|-- RegistryUnavailableError   no url of the registry answered
|-- RegistryRequestError       the registry refused the request: its HTTP status, error code and message
|-- NotRegisteredError         the registry does not have a schema that is needed
|-- InvalidValueError          a value does not match its schema; names the field
|-- InvalidDataError           bytes in the wire format do not match their schema
`-- WireFormatError            bytes are not in the wire format

InvalidSchemaError             a text is not a valid schema of its format
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

# Some libraries put whole values and whole schemas into their messages.
_LENGTH_MAX: Final = 400


def shorten(text: str) -> str:
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}..."


def describe(error: BaseException) -> str:
    return str(error) or type(error).__name__


def format_path(steps: Iterable[str | int]) -> str:
    """Return a path in the notation of JSONPath: $.lines[2].price"""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


class SerdesError(RookeryError):
    """The base class of the errors below."""


class RegistryUnavailableError(SerdesError):
    def __init__(self, failures: dict[str, str]) -> None:
        """`failures` maps each url to the description of its failure."""
        self.failures = failures
        details = "; ".join(f"{url}: {failure}" for url, failure in failures.items())
        super().__init__(f"no schema registry answers ({details}); check the urls, and that the registry runs")


class RegistryRequestError(SerdesError):
    """`code` is the registry's error code, such as 40401; -1 if the response does not come from a registry."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (HTTP status {status}, error code {code})")
        self.status = status
        self.code = code
        self.message = message


class NotRegisteredError(SerdesError):
    pass


class InvalidValueError(SerdesError):
    """`path` is the path of the part that does not match, where `$` is the whole value; empty if it is not known."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(shorten(f"{path}: {message}" if path else message))
        self.path = path


class InvalidDataError(SerdesError):
    def __init__(self, message: str) -> None:
        super().__init__(shorten(message))


class WireFormatError(SerdesError):
    pass
