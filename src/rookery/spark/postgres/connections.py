"""Connections to PostgreSQL, and names of tables.

libpq's messages about an invalid connection string quote parts of it, which may be the password, so they are dropped.
Messages of a server contain only user and host; the password is still replaced, should it occur.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rookery.spark.postgres.errors import PostgresError, UnavailableError, from_server

_CONNECT_TIMEOUT_S: Final = 20
_HIDDEN: Final = "***"


@contextmanager
def connect(dsn: str) -> Iterator[psycopg.Connection]:
    """Open a connection whose transaction is committed at the end, or rolled back after an exception.

    Exceptions of psycopg are raised as PostgresError, because Spark loses their class and the server's message.
    """
    connection = _open(dsn)
    try:
        with connection:
            yield connection
    except psycopg.Error as error:
        raise from_server(error) from error


def _open(dsn: str) -> psycopg.Connection:
    """Connect, with UTC as the session's time zone. Raises PostgresError and UnavailableError."""
    try:
        settings = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        message = "the dsn cannot be read: write postgresql://user:password@host:port/database, or name=value pairs"
        raise PostgresError(message) from None
    complete = make_conninfo(
        dsn,
        options=f"{settings.get('options') or ''} -c timezone=UTC -c datestyle=ISO".strip(),
        connect_timeout=settings.get("connect_timeout") or _CONNECT_TIMEOUT_S,
        application_name=settings.get("application_name") or "rookery",
    )
    try:
        return psycopg.connect(complete)
    except psycopg.Error as error:
        raise UnavailableError(_without(str(settings.get("password") or ""), str(error).strip())) from None


def _without(password: str, text: str) -> str:
    return text.replace(password, _HIDDEN) if password else text


class TableName(NamedTuple):
    """The name of a table, `orders` or `sales.orders`, case-sensitive. Without a schema, search_path applies."""

    schema: str | None
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.name) if self.schema is None else sql.Identifier(self.schema, self.name)

    def sibling(self, name: str) -> "TableName":
        """Return the name of another table in the same schema."""
        return TableName(self.schema, name)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def parse_table(text: str) -> TableName:
    parts = text.split(".")
    if len(parts) > 2 or not all(parts):
        raise PostgresError(f"'{text}' is not the name of a table: write table, or schema.table")
    return TableName(None if len(parts) == 1 else parts[0], parts[-1])
