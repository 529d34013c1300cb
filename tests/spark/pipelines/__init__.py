"""Pipelines that run on Spark share the session of tests/spark. All their other tests are in tests/pipelines."""
