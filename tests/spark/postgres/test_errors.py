"""Messages for errors of PostgreSQL's server, and whether an error is lasting."""

from collections.abc import Iterator

import psycopg
import pytest

from rookery.spark.postgres.connections import connect
from rookery.spark.postgres.errors import ServerError, UnavailableError, from_server
from tests.support.postgres import Postgres


@pytest.fixture
def schema(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute("CREATE SCHEMA refusing")
    connection.execute(
        "CREATE TABLE refusing.orders (id int PRIMARY KEY, price int CHECK (price > 0), name varchar(3) NOT NULL,"
        " parent int REFERENCES refusing.orders)"
    )
    connection.execute("CREATE ROLE reader; GRANT USAGE ON SCHEMA refusing TO reader")
    yield "refusing"
    connection.execute("DROP SCHEMA refusing CASCADE; DROP ROLE reader")


@pytest.mark.parametrize(
    ("statement", "sqlstate", "said", "advice"),
    [
        ("INSERT INTO refusing.orders VALUES (1, -1, 'a')", "23514", "violates check constraint", "Filter or change"),
        ("INSERT INTO refusing.orders VALUES (1, 1, NULL)", "23502", "null value in column", "Give the column a value"),
        ("INSERT INTO refusing.orders VALUES (1, 1, 'a', 9)", "23503", "foreign key", "Write the referenced rows"),
        ("INSERT INTO refusing.orders VALUES (1, 1, 'a'), (1, 1, 'a')", "23505", "(id)=(1) already", "the sink's key"),
        ("INSERT INTO refusing.orders VALUES (1, 1, 'long')", "22001", "too long for type", "Cast or filter"),
        ("INSERT INTO nowhere.orders VALUES (1)", "42P01", "does not exist", "Create the table"),
        ("CREATE TABLE nowhere.orders ()", "3F000", 'schema "nowhere" does not exist', "Create the schema"),
        ("SET ROLE reader; TABLE refusing.orders", "42501", "permission denied for table orders", "Grant the right"),
        ("DO $$ BEGIN RAISE 'no orders today'; END $$", "P0001", "no orders today", "A trigger or function"),
    ],
)
def test_errors_of_the_server_say_what_to_change(
    postgres: Postgres, schema: str, statement: str, sqlstate: str, said: str, advice: str
) -> None:
    with pytest.raises(ServerError) as caught, connect(postgres.dsn) as connection:
        connection.execute(statement)
    error = caught.value
    assert error.details == {"sqlstate": sqlstate}
    assert error.is_lasting
    assert str(error).startswith("PostgreSQL answers: ")
    assert said in str(error)
    assert advice in str(error)
    assert str(error).endswith(f"(SQLSTATE {sqlstate})")


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("SET statement_timeout = 1; SELECT pg_sleep(60)", "57014"),
        ("SET default_transaction_read_only = on; COMMIT; CREATE TABLE x ()", "25006"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "57P01"),
    ],
)
def test_transient_errors(postgres: Postgres, statement: str, sqlstate: str) -> None:
    with pytest.raises(ServerError) as caught, connect(postgres.dsn) as connection:
        connection.execute(statement)
    assert (caught.value.details, caught.value.is_lasting) == ({"sqlstate": sqlstate}, False)


def test_an_unreachable_server_is_a_transient_error(postgres: Postgres) -> None:
    with pytest.raises(UnavailableError) as caught, connect("postgresql://u:hidden@127.0.0.1:1/d"):
        pass
    assert not caught.value.is_lasting
    assert "hidden" not in str(caught.value)
    lost = from_server(psycopg.OperationalError("server closed the connection\nunexpectedly"))
    assert type(lost) is UnavailableError
    assert str(lost) == "the connection to PostgreSQL was lost: server closed the connection unexpectedly"
    assert from_server(psycopg.ProgrammingError("wrong use")).is_lasting


def test_long_details_are_shortened(postgres: Postgres, connection: psycopg.Connection, schema: str) -> None:
    columns = ", ".join(f"c{number} text DEFAULT repeat('x', 50)" for number in range(40))
    connection.execute(f"CREATE TABLE refusing.wide (id int CHECK (id > 0), {columns})")
    with pytest.raises(ServerError) as caught, connect(postgres.dsn) as writing:
        writing.execute("INSERT INTO refusing.wide VALUES (0)")
    assert "x...)" in str(caught.value)
    assert len(str(caught.value)) < 500, "a pipeline shows it whole"
