"""Composes the statements that merge staged rows into the target table. Pure: `sink` runs them.

Of several rows with the same key in a batch, one is used: the one with the highest value in the order column; among
equals, or without such a column, the last one by the number of Spark's partition and the position in it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from psycopg import sql

from rookery.spark.postgres.connections import TableName
from rookery.spark.postgres.staging import DELETE, ROW, Staged
from rookery.spark.postgres.tables import identifiers

_PARTITION = "__rookery_partition"
_COMMA = sql.SQL(", ")


class MergeColumn(NamedTuple):
    """A column to merge. `cast` is the table's type of the column if a text has to be parsed, else None. `compared_as`
    is the type by which the table compares keys, if that is not the staged type: two texts may be the same uuid."""

    name: str
    cast: str | None = None
    compared_as: str | None = None

    def value(self) -> sql.Composable:
        return _cast(self.name, self.cast)

    def key(self) -> sql.Composable:
        return _cast(self.name, self.compared_as)


def _cast(name: str, kind: str | None) -> sql.Composable:
    column = sql.Identifier("staged", name)
    return column if kind is None else sql.SQL("CAST({} AS {})").format(column, sql.SQL(kind))


class Merge(NamedTuple):
    """How rows are merged into a table. Without key columns all are inserted."""

    target: TableName
    columns: tuple[MergeColumn, ...]
    key_columns: tuple[str, ...] = ()
    order_column: str | None = None
    deletes: bool = False

    def statements(self, staged: Sequence[Staged]) -> list[sql.Composed]:
        """Return the statements in order; the last one inserts rows."""
        source = self._winners(staged) if self.key_columns else self._all(staged)
        return [self._delete(source), self._insert(source)] if self.deletes else [self._insert(source)]

    def _all(self, staged: Sequence[Staged]) -> sql.Composed:
        parts = [
            sql.SQL("SELECT *, {}::int AS {} FROM {}").format(
                sql.Literal(table.partition), sql.Identifier(_PARTITION), self.target.sibling(table.name).identifier
            )
            for table in staged
        ]
        return sql.SQL(" UNION ALL ").join(parts)

    def _winners(self, staged: Sequence[Staged]) -> sql.Composed:
        keys = list(self._keys().values())
        order: list[sql.Composable] = [*keys]
        if self.order_column is not None:
            order.append(sql.SQL("{} DESC NULLS LAST").format(sql.Identifier(self.order_column)))
        order += [sql.SQL("{} DESC").format(sql.Identifier(name)) for name in (_PARTITION, ROW)]
        return sql.SQL("SELECT DISTINCT ON ({keys}) * FROM ({rows}) AS staged ORDER BY {order}").format(
            keys=_COMMA.join(keys), rows=self._all(staged), order=_COMMA.join(order)
        )

    def _keys(self) -> dict[str, sql.Composable]:
        found = {column.name: column.key() for column in self.columns}
        return {name: found[name] for name in self.key_columns}

    def _delete(self, source: sql.Composed) -> sql.Composed:
        same_key = sql.SQL(" AND ").join(
            sql.SQL("present.{} = {}").format(sql.Identifier(name), key) for name, key in self._keys().items()
        )
        return sql.SQL("DELETE FROM {} AS present USING ({}) AS staged WHERE staged.{} AND {}").format(
            self.target.identifier, source, sql.Identifier(DELETE), same_key
        )

    def _insert(self, source: sql.Composed) -> sql.Composed:
        names = [column.name for column in self.columns]
        parts = [
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM ({}) AS staged").format(
                self.target.identifier, identifiers(names), _COMMA.join(c.value() for c in self.columns), source
            )
        ]
        if self.deletes:
            parts.append(sql.SQL("WHERE NOT staged.{}").format(sql.Identifier(DELETE)))
        if self.key_columns:
            parts.append(self._on_conflict(names))
        return sql.SQL(" ").join(parts)

    def _on_conflict(self, names: Sequence[str]) -> sql.Composed:
        changed = [name for name in names if name not in self.key_columns]
        keys = identifiers(self.key_columns)
        if not changed:
            return sql.SQL("ON CONFLICT ({}) DO NOTHING").format(keys)
        assignments = (sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in changed)
        return sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(keys, _COMMA.join(assignments))
