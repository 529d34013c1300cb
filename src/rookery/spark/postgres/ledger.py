"""Stores which run may write to a sink and its last written batch, in a table in the schema of the target.

The table has one row per sink: `claim` counts the runs that took the sink over, and only the last of them may write;
`batch` is the last batch that was written. Both are read and changed under the lock of that row, in the transaction
that writes the batch. A batch and its entry are therefore written together or not at all; a replay finds the entry of
its batch; and a driver that was replaced but is still running finds the claim of another.
"""

from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from rookery.spark.postgres.connections import TableName
from rookery.spark.postgres.errors import FencedError
from rookery.spark.postgres.tables import identifiers

LEDGER: Final = "rookery_sink_ledger"
NO_BATCH: Final = -1
_CREATION_LOCK: Final = 0x726F6F6C


class Entry(NamedTuple):
    claim: int
    batch: int


class Ledger:
    """The entry of one sink."""

    def __init__(self, target: TableName, sink_id: str) -> None:
        self._table = target.sibling(LEDGER).identifier
        self._sink_id = sink_id

    def claim(self, connection: psycopg.Connection) -> Entry:
        """Take the sink over; earlier runs can no longer write."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (sink text PRIMARY KEY, claim bigint NOT NULL, batch bigint NOT NULL,"
                " row_count bigint NOT NULL DEFAULT 0, written_at timestamptz)"
            ).format(self._table)
        )
        query = sql.SQL(
            "INSERT INTO {table} AS entry ({columns}) VALUES (%s, 1, %s)"
            " ON CONFLICT (sink) DO UPDATE SET claim = entry.claim + 1 RETURNING claim, batch"
        ).format(table=self._table, columns=identifiers(["sink", "claim", "batch"]))
        return Entry(*_one(connection.execute(query, (self._sink_id, NO_BATCH))))

    def lock(self, connection: psycopg.Connection, claim: int) -> Entry:
        """Return the entry, locked until the transaction ends. Raises FencedError if the claim is not the last."""
        query = sql.SQL("SELECT claim, batch FROM {} WHERE sink = %s FOR UPDATE").format(self._table)
        entry = Entry(*_one(connection.execute(query, (self._sink_id,))))
        if entry.claim != claim:
            raise FencedError(
                f"another run has taken over the sink {self._sink_id} (it is number {entry.claim}, this is {claim}):"
                " only one query at a time can write to a sink"
            )
        return entry

    def write(self, connection: psycopg.Connection, batch_id: int, row_count: int) -> None:
        query = sql.SQL("UPDATE {} SET batch = %s, row_count = %s, written_at = now() WHERE sink = %s")
        connection.execute(query.format(self._table), (batch_id, row_count, self._sink_id))


def _one(cursor: psycopg.Cursor[tuple[int, int]]) -> tuple[int, int]:
    row = cursor.fetchone()
    assert row is not None, "claim() creates the row, and it is never deleted"
    return row
