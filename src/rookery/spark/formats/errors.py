"""Errors of formats that end a query. Their messages say which option to change.

FormatError       a schema that does not fit a column, or options that contradict each other
RegistryDownError the registry did not respond or failed; the record whose schema was requested is not at fault

A record that cannot be decoded is not an exception but a `RowError` (`columns`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rookery.base.errors import ConfigError
from rookery.serdes.errors import RegistryRequestError, RegistryUnavailableError
from rookery.spark.query_error import QueryError


class FormatError(QueryError):
    """A column cannot be decoded or encoded as requested."""

    is_lasting = True


class RegistryDownError(FormatError):
    """The registry cannot be reached: retry later, or correct schema.registry.url."""

    is_lasting = False


@contextmanager
def wrap_registry_errors() -> Iterator[None]:
    """Raise errors of the registry's client as RegistryDownError."""
    try:
        yield
    except (RegistryUnavailableError, RegistryRequestError, ConfigError) as error:
        raise RegistryDownError(f"the schema registry cannot be used: {error}. Check schema.registry.url") from error
