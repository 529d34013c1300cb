"""Schemas in three formats (Avro, JSON Schema, Protobuf): parsing, canonical text and compatibility checks."""
