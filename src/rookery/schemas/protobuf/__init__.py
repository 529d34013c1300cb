"""Protobuf schemas: .proto text and descriptors, and Confluent's rules of compatibility for them."""

from rookery.schemas.protobuf.schema import ProtobufSchema, check, parse, parse_registered

__all__ = ["ProtobufSchema", "check", "parse", "parse_registered"]
