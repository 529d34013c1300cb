"""The controller of a node: it decides while this node leads the quorum, and serves other nodes on its listeners.

The listeners start before the quorum: the other voters must reach this node before there is a leader.
"""

from collections.abc import Iterable

from rookery.base.slices import Slices
from rookery.base.types import LeaderEpoch, NodeId
from rookery.broker.api_row import ListenerType
from rookery.broker.context import ClusterServices
from rookery.broker.controller_link import ActiveControllerLink
from rookery.broker.dispatch import Dispatcher
from rookery.broker.request_metering import metered
from rookery.controller.service import Controller
from rookery.metadata.publisher import MetadataPublisher
from rookery.net.connection import Handler
from rookery.net.listener import Listener
from rookery.net.peers import Peers
from rookery.node.access import NodeAccess
from rookery.node.controller_registration import ControllerRegistration
from rookery.node.environment import Environment
from rookery.node.format import read_bootstrap
from rookery.node.identity import Identity
from rookery.node.listeners import Listeners
from rookery.node.probe import answers
from rookery.node.protection import Protection
from rookery.node.quotas import NodeQuotas
from rookery.node.settings import Settings
from rookery.quorum.driver import QuorumDriver
from rookery.telemetry.requests import RequestStats


class ControllerRole:
    """The controller of a node, and its listeners. `handle` is the handler of a controller's listener."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        environment: Environment,
        *,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        slices: Slices,
        quotas: NodeQuotas,
        protection: Protection,
        access: NodeAccess,
        requests: RequestStats,
    ) -> None:
        self.requests = requests
        self._settings = settings
        self._environment = environment
        self._quorum = quorum
        self._metadata = metadata
        self._peers = Peers(
            quorum.address_of, client_id=f"controller-{settings.node_id}", opener=protection.controllers
        )
        self._registration: ControllerRegistration | None = None
        self._listeners = Listeners(
            settings, settings.controller_listeners, environment, quotas.connection_rates, protection
        )
        self.controller = Controller(
            quorum,
            metadata,
            node_id=settings.node_id,
            cluster_id=identity.cluster_id,
            static=settings.layers.static,
            random=environment.random,
            clock=environment.clock,
            slices=slices,
            bootstrap=read_bootstrap(environment.files, settings.metadata_directory) or (),
            voter_count=lambda: len(quorum.voters),
            probe=self._probe,
        )
        services = ClusterServices(
            node_id=settings.node_id,
            cluster_id=identity.cluster_id,
            clock=environment.clock,
            metadata=metadata,
            controller=self.controller,
            quorum=quorum,
            static_config=settings.layers.static,
            slices=slices,
            throttling=quotas.throttling,
            access=access.access,
            changes=access.audit.changes,
            requests=requests,
        )
        # What this node sends to itself is not measured: it comes on no listener.
        self.handle: Handler = Dispatcher(services, ListenerType.CONTROLLER).handle
        self._handle_measured = metered(self.handle, requests, environment.clock)

    @property
    def address(self) -> str:
        """The advertised address of the first listener."""
        return self._listeners.address

    def bound(self) -> Iterable[Listener]:
        return self._listeners.bound()

    async def serve(self) -> None:
        await self._listeners.bind(self._settings.layers, self._handle_measured)
        await self._listeners.start()

    def register(self) -> None:
        """Register with the active controller. A node that is alone has no other controllers to find."""
        settings = self._settings
        if settings.is_controller and not settings.is_alone:
            link = ActiveControllerLink(
                node_id=settings.node_id, leader=lambda: self._quorum.leader_id, local=self.handle, peers=self._peers
            )
            self._registration = ControllerRegistration(
                link,
                node_id=settings.node_id,
                incarnation_id=self._environment.new_uuid(),
                listeners=self._listeners.endpoints(),
            )

    def lead(self, epoch: LeaderEpoch) -> None:
        """Become the active controller: this node leads the quorum."""
        self.controller.activate(epoch)
        self.controller.probe_brokers()

    async def stop(self) -> None:
        """Close the listeners, and wait until the decision that has begun is completed."""
        if self._registration is not None:
            await self._registration.close()
        await self._peers.close()
        await self._listeners.close()
        await self.controller.close()

    async def _probe(self, node_id: NodeId) -> bool:
        """Return whether a broker answers on one of its listeners."""
        broker = self._metadata.image.brokers.get(node_id)
        return broker is not None and await answers(broker.endpoints)
