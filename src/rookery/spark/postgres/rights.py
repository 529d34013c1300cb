"""Checks the privileges of a user on a table before anything is written.

Problems are sentences for users, each with the statement that grants the missing privilege. This module does not need
Spark.
"""

from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import sql

from rookery.spark.postgres.connections import TableName, connect, parse_table
from rookery.spark.postgres.ledger import LEDGER

_SCHEMA: Final = """
    SELECT n.nspname, current_user, has_schema_privilege(n.oid, 'USAGE'), has_schema_privilege(n.oid, 'CREATE')
    FROM pg_namespace n WHERE n.nspname = coalesce(%s, current_schema())
"""
# Privileges on some of the columns may be enough; DELETE exists only for the whole table.
_TABLE: Final = """
    SELECT CASE WHEN needed = 'DELETE' THEN has_table_privilege(c.oid, needed)
                ELSE has_any_column_privilege(c.oid, needed) END, needed
    FROM pg_class c, unnest(%s::text[]) AS needed WHERE c.oid = to_regclass(%s)
"""
_COLUMNS: Final = """
    SELECT a.attname FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY(%s)
    AND NOT has_column_privilege(a.attrelid, a.attnum, %s) ORDER BY a.attnum
"""
_OF_LEDGER: Final = ("SELECT", "INSERT", "UPDATE")


def sink_problems(dsn: str, table: str, *, has_key: bool, deletes: bool) -> list[str]:
    """Return what prevents the user of the connection from writing to a table, or from creating a missing one.

    Raises PostgresError.
    """
    target = parse_table(table)
    needed = ["INSERT", *(["SELECT"] if has_key else []), *(["DELETE"] if deletes else [])]
    with connect(dsn) as connection:
        found = connection.execute(_SCHEMA, (target.schema,)).fetchone()
        if found is None:
            return [_missing_schema(target)]
        schema, user, may_use, may_create = found
        if not may_use:
            return [f"user {user} may not use the schema {schema}: GRANT USAGE ON SCHEMA {schema} TO {user}"]
        problems = []
        if not may_create:
            problems.append(
                f"user {user} may not create tables in the schema {schema}, where rows are kept until their batch is "
                f"complete: GRANT CREATE ON SCHEMA {schema} TO {user}"
            )
        problems += _missing_rights(connection, target, user, needed)
        return problems + _missing_rights(connection, target.sibling(LEDGER), user, _OF_LEDGER)


def column_problems(dsn: str, table: str, columns: Sequence[str], key: Sequence[str]) -> list[str]:
    """Return the missing privileges on the columns to be written. `sink_problems` checks the table as a whole."""
    target = parse_table(table)
    changed = [name for name in columns if name not in key] if key else []
    problems = []
    with connect(dsn) as connection:
        name = target.identifier.as_string(connection)
        for right, wanted in (("INSERT", list(columns)), ("UPDATE", changed)):
            missing = [row[0] for row in connection.execute(_COLUMNS, (name, wanted, right))]
            if missing:
                user = connection.info.user
                problems.append(
                    f"user {user} has no right to {right} the columns {', '.join(missing)}: "
                    f"GRANT {right} ON {target} TO {user}"
                )
    return problems


def _missing_schema(target: TableName) -> str:
    if target.schema is None:
        return "the user's search_path contains no existing schema: write the table as schema.table"
    return f"there is no schema {target.schema}: CREATE SCHEMA {target.schema}, or correct the table's name"


def _missing_rights(connection: psycopg.Connection, table: TableName, user: str, needed: Sequence[str]) -> list[str]:
    """Return the missing privileges on a table; none if it does not exist yet, because its creator has all."""
    name = table.identifier.as_string(connection)
    rows = connection.execute(sql.SQL(_TABLE), (list(needed), name))
    missing = [right for may, right in rows if not may]
    if not missing:
        return []
    rights = ", ".join(missing)
    return [f"user {user} has no right to {rights} on {table}: GRANT {rights} ON {table} TO {user}"]
