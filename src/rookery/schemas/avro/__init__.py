"""Avro schemas with the rules of Java's library and Confluent's registry. `schema` describes the modules."""

from rookery.schemas.avro.compatibility import check
from rookery.schemas.avro.schema import AvroSchema, parse, parse_registered

__all__ = ["AvroSchema", "check", "parse", "parse_registered"]
