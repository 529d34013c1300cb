"""Administration of a cluster: `Admin`, and the values that it accepts and returns."""

from rookery.base.codes import (
    AclOperation,
    AclPermission,
    AclResourceType,
    ConfigOperation,
    ConfigSource,
    ElectionType,
    EndpointType,
    PatternType,
    ResourceType,
    UpgradeType,
)
from rookery.base.quota_entities import DEFAULT, DefaultName, QuotaEntity
from rookery.client.admin.acls import CreatedAcl, DeletedAcls
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
from rookery.client.admin.tokens import IssuedToken
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
from rookery.client.admin.users import SCRAM_ITERATIONS, ScramDeletion, ScramUpsertion, ScramUser
from rookery.client.first_record import FirstRecord
from rookery.client.membership.interfaces import OffsetAndMetadata
from rookery.client.metadata import Broker, Partition, Topic
from rookery.client.prepared import EndOutcome, PreparedTransaction
from rookery.protocol.principal import Principal
from rookery.security.acl_filters import AclFilter
from rookery.security.acls import AclBinding, ResourcePattern
from rookery.security.delegation_tokens import DelegationToken
from rookery.security.scram_credentials import ScramMechanism

__all__ = [
    "BROKER_DEFAULT",
    "CLASSIC",
    "CONSUMER",
    "DEFAULT",
    "EARLIEST",
    "ENDING",
    "GROUP_STATES",
    "GROUP_TYPES",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_DIRECTORY_ID",
    "ONGOING",
    "SCRAM_ITERATIONS",
    "TRANSACTION_STATES",
    "AbortTarget",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
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
    "CreatedAcl",
    "CreatedTopic",
    "DefaultName",
    "DelegationToken",
    "DeletedAcls",
    "DeletedRecords",
    "ElectionType",
    "EndOutcome",
    "EndpointType",
    "EpochEnd",
    "Feature",
    "Features",
    "FencedProducer",
    "FirstRecord",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "IssuedToken",
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
    "PatternType",
    "PreparedTransaction",
    "Principal",
    "Quorum",
    "QuorumReplica",
    "QuotaEntity",
    "RaftEndpoint",
    "Reassignment",
    "RemovedMember",
    "ResourceConfigs",
    "ResourcePattern",
    "ResourceType",
    "Scope",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "ScramUser",
    "Topic",
    "TopicDetails",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
]
