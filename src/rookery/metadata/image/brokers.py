"""The registered brokers of an image."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from rookery.base.errors import CorruptionError
from rookery.base.types import NodeId
from rookery.base.values import value_class
from rookery.metadata.records import (
    UNASSIGNED_DIRECTORY,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)


@value_class(kw_only=True)
class BrokerImage:
    broker_id: NodeId
    incarnation_id: UUID
    broker_epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    # The log directories that are online.
    log_directories: tuple[UUID, ...]
    # Those that get no new partitions (KIP-1066); None until the broker's first heartbeat.
    cordoned_directories: tuple[UUID, ...] | None = None

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and be in an ISR: it is not fenced, and does not shut down."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory: UUID) -> bool:
        """Return whether a replica's directory is online. One that the controller does not know counts as online."""
        return directory == UNASSIGNED_DIRECTORY or directory in self.log_directories


@value_class(kw_only=True)
class ControllerImage:
    """A registered controller (KIP-919)."""

    controller_id: NodeId
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]


BrokerImages: TypeAlias = Mapping[NodeId, BrokerImage]


class BrokerChanges:
    """Applies records to the brokers of an image."""

    def __init__(self, before: BrokerImages) -> None:
        self._before = before
        # None stands for a broker that was removed.
        self._changed: dict[NodeId, BrokerImage | None] = {}

    def register(self, record: RegisterBrokerRecord) -> None:
        self._changed[record.broker_id] = _new_broker(record)

    def remove(self, node_id: NodeId, epoch: int) -> None:
        self._find(node_id, epoch)
        self._changed[node_id] = None

    def fence(self, node_id: NodeId, epoch: int, *, fenced: bool) -> None:
        self._changed[node_id] = replace(self._find(node_id, epoch), fenced=fenced)

    def change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._find(record.broker_id, record.broker_epoch)
        self._changed[record.broker_id] = replace(
            broker,
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
            log_directories=record.log_directories or broker.log_directories,
            cordoned_directories=(
                broker.cordoned_directories if record.cordoned_directories is None else record.cordoned_directories
            ),
        )

    def build(self) -> BrokerImages:
        if not self._changed:
            return self._before
        return {node: broker for node, broker in {**self._before, **self._changed}.items() if broker}

    def differences(self, after: BrokerImages) -> frozenset[NodeId]:
        return frozenset(key for key in self._changed if self._before.get(key) != after.get(key))

    def _find(self, node_id: NodeId, epoch: int) -> BrokerImage:
        broker = self._changed[node_id] if node_id in self._changed else self._before.get(node_id)
        if broker is None or broker.broker_epoch != epoch:
            raise CorruptionError(
                f"the metadata log has a record for node {node_id} in epoch {epoch}, which is not registered"
            )
        return broker


def _new_broker(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        broker_epoch=record.broker_epoch,
        endpoints=record.endpoints,
        features=record.features,
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_directories=record.log_directories,
        cordoned_directories=record.cordoned_directories,
    )


def new_controller(record: RegisterControllerRecord) -> ControllerImage:
    return ControllerImage(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=record.endpoints,
        features=record.features,
    )
