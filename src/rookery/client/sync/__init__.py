"""The clients for programs without asyncio: the same names and parameters; calls block instead of being awaited."""

from rookery.base.errors import ApiError, ConfigError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client import errors
from rookery.client.admin import NewTopic
from rookery.client.consume.records import (
    BEGINNING,
    END,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndTimestamp,
    Timestamp,
)
from rookery.client.membership.interfaces import ConsumerGroupMetadata, OffsetAndMetadata, RebalanceListener
from rookery.client.produce.records import BatchMetadata, ProducerRecord, RecordMetadata
from rookery.client.sync.admin import Admin
from rookery.client.sync.consumer import Consumer
from rookery.client.sync.producer import Producer

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
    "errors",
]
