"""The arguments of handlers: the node's services, and the header and connection of the request.

The services are built once by the node: `ClusterServices` on every node, for handlers that a controller runs too, and
`Services` on a broker. A context is made per request and has nothing of the request's body.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.files import FileSlice
from rookery.base.slices import Slices
from rookery.base.types import Buffer, LeaderEpoch, NodeId, TopicPartition
from rookery.base.values import value_class
from rookery.broker.fetch_sessions import FetchSessions
from rookery.broker.inspections import Inspections
from rookery.broker.known_answers import KnownAnswers
from rookery.broker.large_requests import LargeRequests
from rookery.broker.permissions import Access
from rookery.broker.producer_ids import ProducerIds
from rookery.broker.schema_checks import NoSchemas, SchemaChecks
from rookery.broker.throttling import Throttling, Usage
from rookery.broker.work_queues import WorkQueues
from rookery.coordinators.group.service import GroupCoordinator
from rookery.coordinators.txn.markers import MarkerWriter
from rookery.coordinators.txn.partition_transactions import PartitionTransactions
from rookery.coordinators.txn.service import TransactionCoordinator
from rookery.metadata.controller_link import BrokerRequests
from rookery.metadata.image import BrokerImage, ClusterImage
from rookery.metadata.log_config import broker_layers
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.requests import ControllerRequests
from rookery.net.connection import ConnectionInfo
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.framing import RequestHeader, parts_size, response_prefix
from rookery.protocol.message import Request, ResponseT
from rookery.quorum.voters import VoterSet
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.telemetry.requests import RequestStats


class Quorum(Protocol):
    """The part of the quorum that handlers use. On every node it holds the newest known leader."""

    @property
    def leader_id(self) -> NodeId | None: ...

    @property
    def voters(self) -> VoterSet: ...

    @property
    def kraft_version(self) -> int: ...

    async def receive(self, api_key: ApiKey, request: Request[ResponseT]) -> ResponseT:
        """Handle a request of another replica, or of an operator, and return the response."""
        ...


class ChangeLog(Protocol):
    """The part of the audit log that records changes; see `broker.auditing`."""

    def changed(self, context: "ClusterContext", changes: Iterable[dict[str, Any]]) -> None: ...


class Forwarding(Protocol):
    """Sends requests of clients to the active controller on another node. See `broker.forwarding`."""

    @property
    def is_needed(self) -> bool:
        """Whether the active controller is not in this process, as far as this node knows."""
        ...

    async def forward(self, context: "ClusterContext", frame: bytes) -> Reply:
        """Return the reply of the active controller to a client's request; `frame` is without its size."""
        ...


@value_class(kw_only=True)
class ClusterServices:
    """The parts of a node, controller or broker, that handlers call."""

    node_id: NodeId
    cluster_id: str
    clock: Clock
    metadata: MetadataPublisher
    # Raises NotControllerError unless this node is the active controller.
    controller: ControllerRequests
    quorum: Quorum
    # The configuration from the node's start; changes at run time are in the image.
    static_config: Mapping[str, str]
    # The long work of this node: one slice runs per turn of the event loop.
    slices: Slices = field(default_factory=Slices)
    large_requests: LargeRequests = field(default_factory=LargeRequests)
    known_answers: KnownAnswers = field(default_factory=KnownAnswers)
    throttling: Throttling = field(default_factory=Throttling)
    requests: RequestStats = field(default_factory=RequestStats)
    # None if there is no authorizer: every operation is allowed.
    access: Access | None = None
    # Learns of changes of ACLs, users and settings; None if there is no audit log.
    changes: ChangeLog | None = None

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def config(self) -> BrokerLayers:
        return broker_layers(self.image, self.node_id, self.static_config)


@value_class(kw_only=True)
class Services(ClusterServices):
    """The parts of a broker that handlers call."""

    broker_requests: BrokerRequests
    replicas: ReplicaManager
    pending: Pending
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    # The transactions of the partitions that this broker leads: their coordinators may be on other brokers.
    partition_transactions: PartitionTransactions
    markers: MarkerWriter
    fetch_max_bytes: int
    # None if the active controller is always in this process.
    forwarding: Forwarding | None = None
    # Transactional Produce requests that wait for the coordinator, in order, by transactional id.
    produce_queues: WorkQueues = field(default_factory=WorkQueues)
    inspections: Inspections = field(default_factory=lambda: Inspections(SchemaChecks(NoSchemas())))

    def controller_id(self, live: Collection[NodeId]) -> NodeId:
        """Return the node to which clients should send requests for the controller, one of those that they can reach.

        That is the active controller if it is a broker too, else this broker: every broker forwards such requests.
        """
        for node_id in (self.quorum.leader_id, self.node_id):
            if node_id is not None and node_id in live:
                return node_id
        return min(live, default=-1)

    def current_leader(self, partition: TopicPartition) -> tuple[NodeId, LeaderEpoch]:
        """Return the leader of a partition and its epoch, for a client that asked the wrong broker; (-1, -1) if
        unknown.
        """
        topic = self.image.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic is not None else None
        return (-1, -1) if found is None else (found.leader, found.leader_epoch)

    def endpoints(self, nodes: Iterable[NodeId], listener: str) -> list[NodeEndpoint]:
        """Return the addresses of these nodes on a listener, without the nodes that are fenced or do not have it."""
        found = (self._endpoint(self.image.brokers.get(node), listener) for node in nodes)
        return [endpoint for endpoint in found if endpoint is not None]

    def live_endpoints(self, listener: str) -> list[NodeEndpoint]:
        return self.endpoints(sorted(self.image.brokers), listener)

    @staticmethod
    def _endpoint(broker: BrokerImage | None, listener: str) -> NodeEndpoint | None:
        if broker is None or broker.fenced:
            return None
        for endpoint in broker.endpoints:
            if endpoint.name == listener:
                return NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
        return None


ServicesT_co = TypeVar("ServicesT_co", bound=ClusterServices, covariant=True)


class Context(Generic[ServicesT_co]):
    """The client and version of one request, and the services that handle it.

    `usage` charges the request to its client's quotas; it is None if there are none.
    """

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id", "services", "usage")

    def __init__(
        self, services: ServicesT_co, header: RequestHeader, connection: ConnectionInfo, usage: Usage | None = None
    ) -> None:
        self.services = services
        self.api_key, self.api_version, self.correlation_id, self.client_id = header
        self.connection = connection
        self.usage = usage

    @property
    def listener(self) -> str:
        return self.connection.listener_name

    def reply(self, body: Sequence[Buffer | FileSlice]) -> Reply:
        """Return the whole reply: the frame's size and header, then `body`. Every response is built here."""
        return [response_prefix(self.api_key, self.api_version, self.correlation_id, parts_size(body)), *body]


# The context of requests on a broker's listener, and that of requests that a controller handles too.
RequestContext: TypeAlias = Context[Services]
ClusterContext: TypeAlias = Context[ClusterServices]
