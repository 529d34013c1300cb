"""Administration of a cluster: `Admin`, and the values that it accepts and returns."""

from rookery.base.codes import ConfigOperation, ConfigSource, ElectionType, EndpointType, ResourceType, UpgradeType
from rookery.client.admin.admin import Admin
from rookery.client.admin.cluster import ClusterDescription, LogDirectory
from rookery.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource, ConfigSynonym, ResourceConfigs
from rookery.client.admin.features import Feature, Features
from rookery.client.admin.groups import (
    CLASSIC,
    CONSUMER,
    GROUP_STATES,
    GROUP_TYPES,
    GroupDescription,
    GroupListing,
    GroupMember,
    PartitionLag,
    RemovedMember,
)
from rookery.client.admin.hanging_transactions import Scope
from rookery.client.admin.outcomes import Outcome
from rookery.client.admin.quorum import NO_DIRECTORY_ID, Quorum, QuorumReplica, RaftEndpoint
from rookery.client.admin.records import EARLIEST, LATEST, MAX_TIMESTAMP, DeletedRecords, EpochEnd, OffsetResult
from rookery.client.admin.replicas import Reassignment
from rookery.client.admin.topics import (
    BROKER_DEFAULT,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDetails,
    TopicDetails,
)
from rookery.client.admin.transactions import (
    ENDING,
    ONGOING,
    TRANSACTION_STATES,
    AbortTarget,
    ActiveProducer,
    FencedProducer,
    OpenTransaction,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from rookery.client.membership.interfaces import OffsetAndMetadata
from rookery.client.metadata import Broker, Partition, Topic
from rookery.client.prepared import EndOutcome, PreparedTransaction

__all__ = [
    "BROKER_DEFAULT",
    "CLASSIC",
    "CONSUMER",
    "EARLIEST",
    "ENDING",
    "GROUP_STATES",
    "GROUP_TYPES",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_DIRECTORY_ID",
    "ONGOING",
    "TRANSACTION_STATES",
    "AbortTarget",
    "ActiveProducer",
    "Admin",
    "Broker",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "DeletedRecords",
    "ElectionType",
    "EndOutcome",
    "EndpointType",
    "EpochEnd",
    "Feature",
    "Features",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDirectory",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetResult",
    "OpenTransaction",
    "Outcome",
    "Partition",
    "PartitionDetails",
    "PartitionLag",
    "PartitionProducers",
    "PreparedTransaction",
    "Quorum",
    "QuorumReplica",
    "RaftEndpoint",
    "Reassignment",
    "RemovedMember",
    "ResourceConfigs",
    "ResourceType",
    "Scope",
    "Topic",
    "TopicDetails",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
]
