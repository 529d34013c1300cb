"""What ends a query, as against errors of single rows: both say which option to change.

FormatError       a schema that does not fit a column, or options that do not fit each other
RegistryDownError the registry did not answer, or refused: no fault of the record that asked for a schema

A record that cannot be decoded is no exception but a `RowError` (`columns`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rookery.base.errors import ConfigError
from rookery.serdes.errors import RegistryRequestError, RegistryUnavailableError
from rookery.spark.query_error import QueryError


class FormatError(QueryError):
    """A column cannot be decoded or encoded as it was asked for."""

    is_lasting = True


class RegistryDownError(FormatError):
    """Try again later, or with another schema.registry.url."""

    is_lasting = False


@contextmanager
def wrap_registry_errors() -> Iterator[None]:
    try:
        yield
    except (RegistryUnavailableError, RegistryRequestError, ConfigError) as error:
        raise RegistryDownError(f"the schema registry cannot be asked: {error}. Check schema.registry.url") from error
