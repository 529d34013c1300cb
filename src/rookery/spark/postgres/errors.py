"""Errors of PostgreSQL sources and sinks. Their messages never contain a password.

PostgresError      a setting, a table or a row has to be changed
|-- FencedError        another run of the same sink has taken over
|-- UnavailableError   no connection, or a lost one; transient
`-- ServerError        an error of the server, with its SQLSTATE and what to change
"""

from typing import Final

import psycopg

from rookery.spark.query_error import QueryError
from rookery.spark.sqlstates import is_lasting_state

# The detail, the server's message and the advice must fit the length to which a pipeline shortens errors.
_DETAIL_LENGTH_MAX: Final = 200
# By SQLSTATE or by its class; the more specific one is used.
_ADVICE: Final = {
    "22": "Cast or filter the values before they are written",
    "23": "Change the rows before they are written, or the table's constraint",
    "23502": "Give the column a value, or drop its NOT NULL",
    "23503": "Write the referenced rows first, or drop the foreign key",
    "23505": "Name the columns of the unique index as the sink's key, so that rows replace each other",
    "23514": "Filter or change such rows before they are written, or change the constraint",
    "25006": "The server is read-only: connect to the primary",
    "28": "Correct user and password of the connection",
    "3D000": "Create the database, or correct the connection",
    "3F000": "Create the schema, or correct the table's name",
    "42501": "Grant the right to the user of the connection, or connect as another one",
    "42P01": "Create the table, or correct its name",
    "42703": "Has the table been changed meanwhile? Restore the column, or leave it out of the rows",
    "53100": "Free space on the server's disk",
    "53300": "Raise the server's max_connections",
    "57014": "Raise statement_timeout, or write smaller batches",
    "P0": "A trigger or function of the database refuses the rows",
}


class PostgresError(QueryError):
    """An error of a PostgreSQL source or sink; the message says what to change."""

    is_lasting = True


class FencedError(PostgresError):
    """Another run of the same sink has taken over: this one must end."""


class UnavailableError(PostgresError):
    """There is no connection, or staged rows were lost. A restart may succeed."""

    is_lasting = False


class ServerError(PostgresError):
    """An error of the server. `details["sqlstate"]` is its code."""


def from_server(error: psycopg.Error) -> PostgresError:
    """Return the error for an exception that psycopg raised while a connection was used."""
    if error.sqlstate is None:
        text = " ".join(str(error).split())
        if isinstance(error, psycopg.OperationalError):
            return UnavailableError(f"the connection to PostgreSQL was lost: {text}")
        return PostgresError(f"PostgreSQL cannot be used like this: {text}")
    said = error.diag.message_primary or " ".join(str(error).split())
    detail = error.diag.message_detail
    if detail:
        said += f" ({detail[:_DETAIL_LENGTH_MAX].rstrip('.')}{'...' if len(detail) > _DETAIL_LENGTH_MAX else ''})"
    advice = _ADVICE.get(error.sqlstate) or _ADVICE.get(error.sqlstate[:2])
    sentence = (
        f"PostgreSQL answers: {said}. {advice} (SQLSTATE {error.sqlstate})"
        if advice
        else (f"PostgreSQL answers: {said} (SQLSTATE {error.sqlstate})")
    )
    return ServerError(sentence, is_lasting=is_lasting_state(error.sqlstate), sqlstate=error.sqlstate)
