"""The names of the topics in which brokers store their state. Clients may read them; only admin tools write to them."""

from typing import Final

from rookery.base.types import TopicName
from rookery.storage.names import METADATA_PARTITION

# The log of the quorum. It is not a topic: no client reads or writes it, and no topic may have its name.
METADATA_TOPIC: Final[TopicName] = METADATA_PARTITION.topic
OFFSETS_TOPIC: Final[TopicName] = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final[TopicName] = "__transaction_state"
SHARE_GROUPS_TOPIC: Final[TopicName] = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC})
