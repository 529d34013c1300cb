"""Avro as Java's library and Confluent's registry understand it; `schema` says how the parts fit."""

from rookery.schemas.avro.compatibility import check
from rookery.schemas.avro.schema import AvroSchema, parse, parse_registered

__all__ = ["AvroSchema", "check", "parse", "parse_registered"]
