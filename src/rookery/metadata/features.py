"""The features of a cluster: their names, and the levels that this version of Rookery supports."""

from typing import Final

from rookery.metadata.records import BrokerFeature

METADATA_VERSION: Final = "metadata.version"
# Kafka's 4.0-IV0: the level whose record versions `metadata.records` writes.
METADATA_VERSION_LEVEL: Final = 22
# Level 1 allows groups of the new protocol (KIP-848); a cluster at level 0 has only classic groups.
GROUP_VERSION: Final = "group.version"
GROUP_VERSION_LEVEL: Final = 1
# Level 2 gives each transaction its own epoch (KIP-890); level 1 writes flexible records to `__transaction_state`.
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
SUPPORTED_FEATURES: Final = (
    BrokerFeature(METADATA_VERSION, METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    BrokerFeature(GROUP_VERSION, 0, GROUP_VERSION_LEVEL),
    BrokerFeature(TRANSACTION_VERSION, 0, TRANSACTION_VERSION_LEVEL),
)
