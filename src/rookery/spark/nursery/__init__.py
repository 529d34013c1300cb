"""Spark's Python processes, forked from one process that has loaded their modules: `docs/decisions/0015`."""
