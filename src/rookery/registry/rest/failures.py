"""Failures that HTTP itself has a status for; they carry the body that Confluent's registry gives them."""

from http import HTTPStatus

from rookery.registry.errors import RegistryError


def http_failure(status: int, message: str | None = None) -> RegistryError:
    """The status is the error code too. Without a message of its own it is HTTP's phrase."""
    return RegistryError(status, status, f"HTTP {status} {HTTPStatus(status).phrase}" if message is None else message)
