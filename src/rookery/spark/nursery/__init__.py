"""Spark's Python processes, forked from one that has loaded what they need: `docs/decisions/0015`."""
