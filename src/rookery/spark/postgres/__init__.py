"""PostgreSQL without a JDBC driver: a sink that writes every batch exactly once, and a source. `sink` and `source`."""
