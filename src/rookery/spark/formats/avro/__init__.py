"""Avro for Arrow: programs made of schemas, run over whole columns by compiled loops (docs/decisions)."""
