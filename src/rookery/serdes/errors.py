"""What can go wrong between a value and its bytes. Every text says what to do, as far as anybody can know.

SerdesError
|-- RegistryUnavailableError   no url of the registry answered
|-- RegistryRequestError       the registry refused: its HTTP status, error code and message
|-- NotRegisteredError         a schema that is to be used, but that the registry does not have
|-- InvalidValueError          a value that does not fit its schema; names the field
|-- InvalidDataError           bytes in the wire format that do not fit their schema
`-- WireFormatError            bytes that are not in the wire format
"""

from rookery.base.errors import RookeryError


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
    """`path` leads to the part that does not fit; empty if it is the whole value, or if that is not known."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class InvalidDataError(SerdesError):
    pass


class WireFormatError(SerdesError):
    pass
