"""The features of a cluster: their names, and the levels that this version of Rookery supports."""

from typing import Final

from rookery.metadata.records import METADATA_VERSION_MAX, BrokerFeature

METADATA_VERSION: Final = "metadata.version"
# From Kafka's 4.0-IV0, the level of the first metadata logs of this project, to 4.3-IV0.
METADATA_VERSION_MIN: Final = 22
METADATA_VERSION_LEVEL: Final = METADATA_VERSION_MAX
# Level 1 allows groups of the new protocol (KIP-848); a cluster at level 0 has only classic groups.
GROUP_VERSION: Final = "group.version"
GROUP_VERSION_LEVEL: Final = 1
# Level 2 gives each transaction its own epoch (KIP-890); level 1 writes flexible records to `__transaction_state`.
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
# Level 1 remembers the replicas that left an ISR below its minimum, and may elect them (KIP-966).
ELR_VERSION: Final = "eligible.leader.replicas.version"
ELR_VERSION_LEVEL: Final = 1
# The lowest `metadata.version` whose records can hold eligible leader replicas: Kafka's 4.0-IV1.
ELR_METADATA_VERSION: Final = 23
# Level 1 has the voters of the quorum in the metadata log (KIP-853), level 0 in the configuration.
KRAFT_VERSION: Final = "kraft.version"
KRAFT_VERSIONS: Final = (0, 1)
# Those whose levels are records of the metadata.
SUPPORTED_FEATURES: Final = (
    BrokerFeature(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
    BrokerFeature(ELR_VERSION, 0, ELR_VERSION_LEVEL),
    BrokerFeature(GROUP_VERSION, 0, GROUP_VERSION_LEVEL),
    BrokerFeature(TRANSACTION_VERSION, 0, TRANSACTION_VERSION_LEVEL),
)
# Those that a node reports. The level of `kraft.version` is in the control records of the quorum only: a record of the
# metadata could contradict them.
NODE_FEATURES: Final = (*SUPPORTED_FEATURES, BrokerFeature(KRAFT_VERSION, *KRAFT_VERSIONS))
