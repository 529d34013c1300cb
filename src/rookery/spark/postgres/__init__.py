"""PostgreSQL without a JDBC driver: `sink` writes every batch exactly once, `source` reads tables and queries."""
