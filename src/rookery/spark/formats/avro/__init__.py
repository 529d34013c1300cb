"""Avro for Arrow: schemas are compiled to programs, which machine code runs over whole columns (docs/decisions)."""
