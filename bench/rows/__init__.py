"""The rows of the benchmark: each module measures one subject, and the catalogue lists all rows."""

from bench.rows.catalogue import ALL_ROWS as ROWS

__all__ = ["ROWS"]
