"""Connections to PostgreSQL, and the errors of this package, whose texts never hold a password.

A wrong connection string is described by libpq with words out of it, which may be the password: nothing of that is
handed on. What a server answers names user and host only; the password is still taken out, should it occur.
"""

from typing import Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CONNECT_TIMEOUT_S: Final = 20
_HIDDEN: Final = "***"


class PostgresError(Exception):
    """What PostgreSQL cannot do for us; the text says what to change."""


class FencedError(PostgresError):
    """Another run of the same sink has taken over: this one must end."""


def connect(dsn: str, *, autocommit: bool = False) -> psycopg.Connection:
    """The session speaks of times in UTC. Raises PostgresError."""
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
        return psycopg.connect(complete, autocommit=autocommit)
    except psycopg.Error as error:
        raise PostgresError(_without(str(settings.get("password") or ""), str(error).strip())) from None


def _without(password: str, text: str) -> str:
    return text.replace(password, _HIDDEN) if password else text


class TableName(NamedTuple):
    """A table as people write it, `orders` or `sales.orders`, in any case. Without a schema the server finds it."""

    schema: str | None
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.name) if self.schema is None else sql.Identifier(self.schema, self.name)

    def beside(self, name: str) -> "TableName":
        """Another table of the same schema."""
        return TableName(self.schema, name)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def parse_table(text: str) -> TableName:
    parts = text.split(".")
    if len(parts) > 2 or not all(parts):
        raise PostgresError(f"'{text}' is no table: write table, or schema.table")
    return TableName(None if len(parts) == 1 else parts[0], parts[-1])
