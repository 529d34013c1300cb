"""One PostgreSQL server for all of these tests; each uses its own tables."""

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from tests.support.postgres import Postgres, running_postgres

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def connection(postgres: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def table() -> str:
    """A unique name."""
    return f"table_{next(_NUMBERS)}"
