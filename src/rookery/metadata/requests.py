"""Changes of the cluster as plain values: what brokers and coordinators ask of the active controller, and its results.

`ControllerRequests` is all that they see of the controller. They do not import it: it may run on another node.
Each result has an `Outcome` per item of the request.
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

# In the counts of a `NewTopic`: the broker's default.
USE_DEFAULT: Final = -1

Replicas = tuple[NodeId, ...]


class Outcome(NamedTuple):
    """Success, or the error code and message to answer for one item of a request."""

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
    """One topic of a CreatePartitions request: the new total, and replicas for each new partition or None."""

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
    """One resource of a request and the changes to it."""

    resource: ConfigResource
    changes: tuple[ConfigChange, ...]


class AlteredResource(NamedTuple):
    resource: ConfigResource
    outcome: Outcome


class FeatureUpdate(NamedTuple):
    """`upgrade_type` is what the client sent, which may be no UpgradeType."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class ProducerIdBlock(NamedTuple):
    """The ids from `first` on, `size` of them."""

    outcome: Outcome
    first: ProducerId = NO_PRODUCER_ID
    size: int = 0


@value_class(kw_only=True)
class Registration:
    """What a starting node says about itself; `clean` if its last stop was clean."""

    node_id: NodeId
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    log_directories: tuple[UUID, ...] = ()
    clean: bool = True


class ControllerRequests(Protocol):
    """The active controller, as the rest of a node sees it.

    A call returns when the change is committed and this node has published it. It is then in force: a created topic
    can be written to.
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
