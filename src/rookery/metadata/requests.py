"""Requests to the active controller and their results, as plain values.

Brokers and coordinators use the controller only through `ControllerRequests`. They do not import it, because it may run
on another node. Each result has an `Outcome` per item of the request.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from rookery.base.codes import ConfigOperation, UpgradeType
from rookery.base.config import ConfigEntry
from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_ID, NO_TOPIC_ID, NodeId, PartitionIndex, ProducerId, TopicId, TopicName
from rookery.base.values import value_class
from rookery.metadata.image import ConfigResource
from rookery.metadata.records import BrokerEndpoint

# In `NewTopic`: a count that stands for the broker's default.
USE_DEFAULT: Final = -1

Replicas = tuple[NodeId, ...]


class Outcome(NamedTuple):
    """Success, or the error code and message of the response, for one item of a request."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


OK: Final = Outcome()


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
    """The registration of a node that starts; `clean` is whether its last shutdown was clean."""

    node_id: NodeId
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    log_directories: tuple[UUID, ...] = ()
    clean: bool = True


class ControllerRequests(Protocol):
    """The interface of the active controller for the rest of a node.

    A call returns when the change is committed and this node has published it. The change is then effective: a new
    topic can be written to.
    """

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

    async def register_broker(self, registration: Registration) -> int: ...

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock: ...
