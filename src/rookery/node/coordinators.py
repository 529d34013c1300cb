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
from rookery.coordinators.node_queues import NodeRequests
from rookery.coordinators.txn.markers import MarkerWriter
from rookery.coordinators.txn.partition_transactions import PartitionTransactions, RoutedTransactions
from rookery.coordinators.txn.remote_markers import MarkerRouter
from rookery.coordinators.txn.service import TransactionCoordinator
from rookery.metadata.controller_link import BrokerRequests
from rookery.metadata.internal_topics import OFFSETS_TOPIC
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending


class Coordinators(NamedTuple):
    producer_ids: ProducerIds
    groups: GroupCoordinator
    markers: MarkerWriter
    transactions: TransactionCoordinator
    partition_transactions: PartitionTransactions
    # What sends requests to other brokers; empty if there are none.
    routers: tuple[MarkerRouter | RoutedTransactions, ...] = ()

    def start(self, metadata: MetadataPublisher) -> None:
        """Load the partitions that this node leads, and follow the image.

        The replicas must already be listeners: a coordinator reads the log of a partition when it gets the image.
        """
        self.groups.start(metadata.image)
        metadata.add(ImageListener("groups", self.groups.apply, finish=self.groups.finish))
        self.transactions.start(metadata.image)
        metadata.add(ImageListener("transactions", self.transactions.apply))
        if self.routers:
            # After the coordinators: what a deposed coordinator wanted to send is dropped.
            metadata.add(ImageListener("transaction requests", lambda image, delta: self._image_changed()))

    def _image_changed(self) -> None:
        for router in self.routers:
            router.image_changed()

    async def close(self) -> None:
        await self.transactions.close()
        await self.groups.close()
        for router in self.routers:
            await router.close()


def build_coordinators(
    layers: BrokerLayers,
    *,
    node_id: NodeId,
    controller: BrokerRequests,
    metadata: MetadataPublisher,
    replicas: ReplicaManager,
    pending: Pending,
    clock: Clock,
    new_uuid: Callable[[], UUID],
    executor: Executor | None = None,
    make_peers: Callable[[str], NodeRequests] | None = None,
) -> Coordinators:
    """`make_peers` opens connections to the other brokers, under a name; None if there are no other brokers.

    Markers and verifications have connections of their own: a broker responds to the requests of one connection in
    their order, and a marker may wait for replicas.
    """
    timeout_ms = layers.integer("request.timeout.ms")
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
        timeout_ms=timeout_ms,
    )
    peers = None if make_peers is None else make_peers("transaction-markers")
    router = MarkerRouter(markers, node_id=node_id, image=lambda: metadata.image, peers=peers, timeout_ms=timeout_ms)
    transactions = TransactionCoordinator(
        layers,
        node_id=node_id,
        replicas=replicas,
        pending=pending,
        clock=clock,
        markers=router,
        take_producer_id=producer_ids.take,
        executor=executor,
    )
    if make_peers is None:
        return Coordinators(producer_ids, groups, markers, transactions, transactions)
    routed = RoutedTransactions(
        transactions,
        node_id=node_id,
        image=lambda: metadata.image,
        peers=make_peers("transaction-verification"),
        timeout_ms=timeout_ms,
    )
    return Coordinators(producer_ids, groups, markers, transactions, routed, (router, routed))
