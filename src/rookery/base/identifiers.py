"""Kafka writes UUIDs as 22 characters of URL-safe base64; cluster, topic and directory ids all look so."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID


def encode_uuid(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Raises ValueError for anything that is not 16 bytes of base64."""
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
