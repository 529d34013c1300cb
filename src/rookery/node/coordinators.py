"""Builds the coordinators of a node. They depend on each other: a transaction's markers also go to group logs."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple
from uuid import UUID

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.types import NodeId
from rookery.broker.producer_ids import ProducerIds
from rookery.coordinators.group.service import GroupCoordinator
from rookery.coordinators.txn.markers import MarkerWriter
from rookery.coordinators.txn.service import TransactionCoordinator
from rookery.metadata.internal_topics import OFFSETS_TOPIC
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.requests import ControllerRequests
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending


class Coordinators(NamedTuple):
    producer_ids: ProducerIds
    groups: GroupCoordinator
    markers: MarkerWriter
    transactions: TransactionCoordinator

    def start(self, metadata: MetadataPublisher) -> None:
        """Load the partitions that this node leads, and follow the image.

        The replicas must already be listeners: a coordinator reads the log of a partition when it gets the image.
        """
        for name, coordinator in (("groups", self.groups), ("transactions", self.transactions)):
            coordinator.start(metadata.image)
            metadata.add(ImageListener(name, coordinator.apply))

    async def close(self) -> None:
        await self.transactions.close()
        await self.groups.close()


def build_coordinators(
    layers: BrokerLayers,
    *,
    node_id: NodeId,
    controller: ControllerRequests,
    metadata: MetadataPublisher,
    replicas: ReplicaManager,
    pending: Pending,
    clock: Clock,
    new_uuid: Callable[[], UUID],
    executor: Executor | None = None,
) -> Coordinators:
    producer_ids = ProducerIds(controller, metadata, node_id=node_id)
    groups = GroupCoordinator(
        layers,
        node_id=node_id,
        replicas=replicas,
        pending=pending,
        clock=clock,
        new_uuid=new_uuid,
        executor=executor,
    )
    markers = MarkerWriter(
        replicas,
        pending,
        clock,
        coordinators={OFFSETS_TOPIC: groups.runtime},
        timeout_ms=layers.integer("request.timeout.ms"),
    )
    transactions = TransactionCoordinator(
        layers,
        node_id=node_id,
        replicas=replicas,
        pending=pending,
        clock=clock,
        markers=markers,
        take_producer_id=producer_ids.take,
        executor=executor,
    )
    return Coordinators(producer_ids, groups, markers, transactions)
