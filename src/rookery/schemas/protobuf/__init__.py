"""Protobuf schemas: .proto text and descriptors, with Confluent's compatibility rules."""

from rookery.schemas.protobuf.schema import ProtobufSchema, check, parse, parse_registered

__all__ = ["ProtobufSchema", "check", "parse", "parse_registered"]
