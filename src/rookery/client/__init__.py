"""Clients that write, read and administer topics of any Kafka-compatible cluster. docs/client.md is the guide.

`rookery.client.sync` has the same clients for programs without asyncio.
"""

from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import errors
from rookery.client.exports import __getattr__

__all__ = [
    "BEGINNING",
    "END",
    "Admin",
    "ApiError",
    "BatchMetadata",
    "ConfigError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerRecords",
    "ErrorCode",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerRecord",
    "RebalanceListener",
    "RecordMetadata",
    "Timestamp",
    "TopicPartition",
    "__getattr__",
    "errors",
]
