"""The checks of `validate` against a real PostgreSQL server, without a JVM."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest
from typer.testing import CliRunner

from rookery.cli.commands import app
from rookery.pipelines.databases import check_databases
from rookery.pipelines.parser import parse_pipeline
from rookery.spark.postgres.rights import column_problems
from tests.support.postgres import Postgres, running_postgres

USER = "clerk"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {USER} LOGIN PASSWORD 'secret'")
            connection.execute("CREATE SCHEMA shop")
            connection.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY, name text)")
        yield server


@pytest.fixture
def owner(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """A connection of the tables' owner; grants are revoked after the test."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection
        connection.execute(f"REVOKE ALL ON SCHEMA shop FROM {USER}")
        connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA shop FROM {USER}")
        connection.execute("DROP TABLE IF EXISTS shop.rookery_sink_ledger")


def clerk(postgres: Postgres) -> str:
    return f"postgresql://{USER}:secret@127.0.0.1:{postgres.port}/postgres"


def text_of(dsn: str, table: str, more: str = "") -> str:
    return dedent(
        f"""\
        name: load
        sources: {{ticks: {{generator: {{}}}}}}
        sinks:
          - {{name: out, postgres: "{dsn}", table: {table}, from: ticks{more}}}
        """
    )


def problems(dsn: str, table: str, more: str = "") -> list[str]:
    pipeline = parse_pipeline(text_of(dsn, table, more), Path("p.yaml"), {})
    found = list(check_databases(pipeline))
    assert all(problem.location.line == 4 for problem in found)
    return [problem.message for problem in found]


def test_a_missing_schema(postgres: Postgres) -> None:
    assert problems(postgres.dsn, "shpo.orders") == [
        "table shpo.orders: there is no schema shpo: CREATE SCHEMA shpo, or correct the table's name"
    ]


def test_a_table_that_the_sink_can_create_is_no_problem(postgres: Postgres) -> None:
    assert problems(postgres.dsn, "shop.new") == []
    assert problems(postgres.dsn, "new", ", key: [value], delete_when: value > 1") == []


def test_missing_rights_are_reported_until_all_are_granted(postgres: Postgres, owner: psycopg.Connection) -> None:
    dsn = clerk(postgres)
    assert problems(dsn, "shop.orders") == [
        "table shop.orders: user clerk may not use the schema shop: GRANT USAGE ON SCHEMA shop TO clerk"
    ]
    owner.execute(f"GRANT USAGE ON SCHEMA shop TO {USER}")
    create, insert = problems(dsn, "shop.orders")
    assert create.endswith("GRANT CREATE ON SCHEMA shop TO clerk")
    assert insert == (
        "table shop.orders: user clerk has no right to INSERT on shop.orders: GRANT INSERT ON shop.orders TO clerk"
    )
    owner.execute(f"GRANT CREATE ON SCHEMA shop TO {USER}")
    (rest,) = problems(dsn, "shop.orders", ", key: [id], delete_when: id > 1")
    assert rest.endswith("GRANT INSERT, SELECT, DELETE ON shop.orders TO clerk")
    owner.execute(f"GRANT INSERT ON shop.orders TO {USER}")
    assert problems(dsn, "shop.orders") == []


def test_a_ledger_of_another_user(postgres: Postgres, owner: psycopg.Connection) -> None:
    owner.execute(f"GRANT USAGE, CREATE ON SCHEMA shop TO {USER}; GRANT INSERT ON shop.orders TO {USER}")
    owner.execute("CREATE TABLE shop.rookery_sink_ledger (sink text)")
    (found,) = problems(clerk(postgres), "shop.orders")
    assert found.endswith("GRANT SELECT, INSERT, UPDATE ON shop.rookery_sink_ledger TO clerk")


def test_rights_to_single_columns(postgres: Postgres, owner: psycopg.Connection) -> None:
    owner.execute(
        f"GRANT USAGE, CREATE ON SCHEMA shop TO {USER}; GRANT INSERT (id), UPDATE (id) ON shop.orders TO {USER}"
    )
    assert problems(clerk(postgres), "shop.orders") == [], "the columns that are written are not known without Spark"
    insert, update = column_problems(clerk(postgres), "shop.orders", ["id", "name"], ["id"])
    assert "no right to INSERT the columns name" in insert
    assert "no right to UPDATE the columns name" in update
    assert column_problems(clerk(postgres), "shop.orders", ["id"], []) == []


def test_tables_and_queries_of_sources_must_be_readable(postgres: Postgres) -> None:
    text = f"""\
        name: load
        sources:
          gone: {{postgres: "{postgres.dsn}", table: shop.gone}}
          there: {{postgres: "{postgres.dsn}", table: shop.orders}}
          refused: {{postgres: "{clerk(postgres)}", query: SELECT id FROM shop.orders}}
          ticks: {{generator: {{}}}}
        sinks: [{{console: true, from: ticks}}]
        """
    found = list(check_databases(parse_pipeline(dedent(text), Path("p.yaml"), {})))
    assert [problem.location.line for problem in found] == [3, 5]
    assert 'relation "shop.gone" does not exist' in found[0].message
    assert "permission denied for schema shop" in found[1].message


def test_a_server_that_does_not_respond(postgres: Postgres) -> None:
    (found,) = problems("postgresql://u:secret@127.0.0.1:1/d", "orders")
    assert "connection" in found
    assert "secret" not in found


@pytest.mark.parametrize("command", ["validate", "run"])
def test_problems_of_the_server_are_reported_without_a_jvm(postgres: Postgres, tmp_path: Path, command: str) -> None:
    """JAVA_HOME has no Java: the command would fail if it started a JVM."""
    path = tmp_path / "load.yaml"
    path.write_text(text_of(postgres.dsn, "shpo.orders"))
    runner = CliRunner(env={"ROOKERY_STATE_DIR": str(tmp_path), "JAVA_HOME": str(tmp_path)})
    result = runner.invoke(app, ["pipelines", command, str(path)])
    assert result.exit_code == 1
    assert f"{path}:4: table shpo.orders: there is no schema shpo" in result.stderr
    assert "Java" not in result.stderr
