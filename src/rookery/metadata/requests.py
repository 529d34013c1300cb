"""Requests to the active controller and their results, as plain values.

Brokers and coordinators use the controller only through `ControllerRequests`. They do not import it, because it may run
on another node. Each result has an `Outcome` per item of the request.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from rookery.base.codes import ConfigOperation, ElectionType, RecoveryState, UpgradeType
from rookery.base.config import ConfigEntry
from rookery.base.errors import ErrorCode
from rookery.base.types import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TOPIC_ID,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
)
from rookery.base.values import value_class
from rookery.metadata.image import ConfigResource
from rookery.metadata.outcomes import OK as OK
from rookery.metadata.outcomes import Outcome as Outcome
from rookery.metadata.records import BrokerEndpoint, BrokerFeature
from rookery.metadata.security_requests import SecurityRequests

# In `NewTopic`: a count that stands for the broker's default.
USE_DEFAULT: Final = -1

Replicas = tuple[NodeId, ...]


@value_class(kw_only=True)
class NewTopic:
    """One topic of a CreateTopics request."""

    name: TopicName
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[PartitionIndex, Replicas], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


class CreatedTopic(NamedTuple):
    name: TopicName
    outcome: Outcome
    topic_id: TopicId = NO_TOPIC_ID
    partition_count: int = -1
    replication_factor: int = -1
    configs: tuple[ConfigEntry, ...] = ()


class DeletedTopic(NamedTuple):
    name: TopicName | None
    topic_id: TopicId
    outcome: Outcome


@value_class
class MorePartitions:
    """One topic of a CreatePartitions request.

    `count` is the new number of partitions. `assignments` has the replicas of each new partition; if it is None, the
    controller places them.
    """

    name: TopicName
    count: int
    assignments: tuple[Replicas, ...] | None = None


class ChangedTopic(NamedTuple):
    name: TopicName
    outcome: Outcome


class ConfigChange(NamedTuple):
    name: str
    value: str | None
    operation: int = ConfigOperation.SET


@value_class
class ResourceChange:
    """The changes to one resource of a request."""

    resource: ConfigResource
    changes: tuple[ConfigChange, ...]


class AlteredResource(NamedTuple):
    resource: ConfigResource
    outcome: Outcome


class FeatureUpdate(NamedTuple):
    """One feature of a request. `upgrade_type` is the number from the request: it may not be a valid UpgradeType."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class ProducerIdBlock(NamedTuple):
    """The `size` producer ids from `first` on."""

    outcome: Outcome
    first: ProducerId = NO_PRODUCER_ID
    size: int = 0


@value_class(kw_only=True)
class Registration:
    """The registration of a broker that starts.

    `previous_broker_epoch` is the epoch that the broker had at its last shutdown if that was clean, else
    `NO_BROKER_EPOCH`. `features` are the levels that it supports.
    """

    node_id: NodeId
    cluster_id: str
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]
    rack: str | None = None
    log_directories: tuple[UUID, ...] = ()
    previous_broker_epoch: int = NO_BROKER_EPOCH


class Registered(NamedTuple):
    outcome: Outcome
    broker_epoch: int = NO_BROKER_EPOCH


@value_class(kw_only=True)
class BrokerHeartbeat:
    """A sign of life of a registered broker.

    `metadata_offset` is the offset of the last metadata record that the broker has applied. A broker that is not ready
    to serve sets `wants_fence`; one that stops sets `wants_shut_down` until the reply says `should_shut_down`.
    """

    node_id: NodeId
    broker_epoch: int
    metadata_offset: Offset
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_directories: tuple[UUID, ...] = ()
    # Directories that get no new partitions (KIP-1066); None if the broker does not state them.
    cordoned_directories: tuple[UUID, ...] | None = None


class HeartbeatReply(NamedTuple):
    outcome: Outcome
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


@value_class(kw_only=True)
class ControllerRegistration:
    """The registration of a controller that starts, so that others know its endpoints and features (KIP-919)."""

    node_id: NodeId
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]


@value_class(kw_only=True)
class PartitionAlteration:
    """The ISR that a partition's leader proposes: pairs of node id and broker epoch.

    An epoch of `NO_BROKER_EPOCH` is not compared with the registered one.
    """

    topic_id: TopicId
    index: PartitionIndex
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[NodeId, int], ...]
    recovery_state: int = RecoveryState.RECOVERED


@value_class
class AlteredPartition:
    """The state of a partition after an alteration. With an error `code`, only `topic_id` and `index` are set."""

    topic_id: TopicId
    index: PartitionIndex
    code: ErrorCode = ErrorCode.NONE
    leader: NodeId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    isr: Replicas = ()
    recovery_state: int = RecoveryState.RECOVERED
    partition_epoch: int = -1


class AlteredPartitions(NamedTuple):
    """`outcome` is an error if the whole request was rejected, for example because its broker epoch is stale."""

    outcome: Outcome
    partitions: Sequence[AlteredPartition] = ()


@value_class
class PartitionOutcome:
    """The outcome of an election or reassignment for one partition."""

    topic: TopicName
    index: PartitionIndex
    outcome: Outcome


@value_class
class Reassignment:
    """The new replicas of a partition; None cancels the reassignment that is in progress."""

    topic: TopicName
    index: PartitionIndex
    replicas: Replicas | None


@value_class
class OngoingReassignment:
    """A partition whose replicas are being moved. `replicas` contains the adding and the removing ones."""

    topic: TopicName
    index: PartitionIndex
    replicas: Replicas
    adding: Replicas
    removing: Replicas


@value_class
class AssignedReplica:
    """A partition's replica on the requesting broker, and the log directory that holds it."""

    directory: UUID
    topic_id: TopicId
    index: PartitionIndex


class AssignedReplicas(NamedTuple):
    """`outcome` is an error if the whole request was rejected; `codes` has one error code per replica."""

    outcome: Outcome
    codes: Sequence[ErrorCode] = ()


class ControllerRequests(Protocol):
    """The interface of the active controller for the rest of a node.

    A call returns when the change is committed and this node has published it. The change is then effective: a new
    topic can be written to. Every method raises NotControllerError if this node is not the active controller, or stops
    being it before the change is committed.
    """

    @property
    def security(self) -> SecurityRequests: ...

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]: ...

    async def delete_topics(self, topics: Sequence[tuple[TopicName | None, TopicId]]) -> list[DeletedTopic]: ...

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[ChangedTopic]: ...

    async def alter_configs(
        self, resources: Sequence[ResourceChange], *, validate_only: bool = False
    ) -> list[AlteredResource]: ...

    async def incremental_alter_configs(
        self, resources: Sequence[ResourceChange], *, validate_only: bool = False
    ) -> list[AlteredResource]: ...

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> Outcome: ...

    async def register_broker(self, registration: Registration) -> Registered: ...

    async def register_controller(self, registration: ControllerRegistration) -> Outcome: ...

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply: ...

    async def unregister_broker(self, node_id: NodeId) -> Outcome: ...

    async def alter_partitions(
        self, node_id: NodeId, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> AlteredPartitions: ...

    async def assign_replicas(
        self, node_id: NodeId, broker_epoch: int, replicas: Sequence[AssignedReplica]
    ) -> AssignedReplicas: ...

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[tuple[TopicName, PartitionIndex]] | None
    ) -> list[PartitionOutcome]:
        """Elect leaders of the given partitions; None stands for all, and then only the elections held are returned."""
        ...

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[PartitionOutcome]: ...

    async def list_reassignments(
        self, partitions: Sequence[tuple[TopicName, PartitionIndex]] | None
    ) -> list[OngoingReassignment]: ...

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock: ...

    def connection_lost(self, node_id: NodeId) -> None:
        """A broker's connection for heartbeats was lost: perhaps its process has ended. Does nothing if not active."""
        ...
