"""The names of the topics that brokers keep their own state in. Clients may read them, and only admin tools write."""

from typing import Final

from rookery.base.types import TopicName

OFFSETS_TOPIC: Final[TopicName] = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final[TopicName] = "__transaction_state"
SHARE_GROUPS_TOPIC: Final[TopicName] = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC})
