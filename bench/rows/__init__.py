"""The rows of the benchmark: each module measures one thing, and the catalogue lists them all."""

from bench.rows.catalogue import ALL_ROWS as ROWS

__all__ = ["ROWS"]
