"""Parses and checks client settings: from a mapping with Kafka's names to typed values."""

from rookery.client.settings.admin import ADMIN_KEYS, AdminSettings
from rookery.client.settings.common import CommonSettings
from rookery.client.settings.consumer import (
    CONSUMER_KEYS,
    ConsumerSettings,
    GroupProtocol,
    OffsetReset,
    OffsetResetStrategy,
)
from rookery.client.settings.parser import ineffective
from rookery.client.settings.producer import PRODUCER_KEYS, Acks, ProducerSettings

__all__ = [
    "ADMIN_KEYS",
    "CONSUMER_KEYS",
    "PRODUCER_KEYS",
    "Acks",
    "AdminSettings",
    "CommonSettings",
    "ConsumerSettings",
    "GroupProtocol",
    "OffsetReset",
    "OffsetResetStrategy",
    "ProducerSettings",
    "ineffective",
]
