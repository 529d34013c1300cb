"""The ways from a broker to the other nodes: to the active controller, and to the other brokers.

A node that is alone has no other nodes: the controller is in its process, and no connection is ever opened.
"""

from collections.abc import Callable

from rookery.base.types import NodeId
from rookery.broker.controller_link import ActiveControllerLink
from rookery.broker.forwarding import Forwarder
from rookery.broker.image_waiters import ImageWaiters
from rookery.broker.remote_controller import RemoteController
from rookery.metadata.controller_link import BrokerRequests
from rookery.metadata.publisher import MetadataPublisher
from rookery.net.address import Address
from rookery.net.peers import Peers
from rookery.node.controller_role import ControllerRole
from rookery.node.protection import Protection
from rookery.node.settings import Settings
from rookery.quorum.driver import QuorumDriver


class Connections:
    """`link` is for the broker's own requests to the controller; heartbeats have theirs, so that none is late.

    `requests` and `forwarding` serve clients; `forwarding` is None if the controller is always in this process.
    """

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataPublisher,
        *,
        quorum: QuorumDriver,
        controller: ControllerRole,
        protection: Protection,
    ) -> None:
        self._settings = settings
        self._protection = protection
        self._metadata = metadata
        self._quorum = quorum
        self._controller = controller
        self._peers: list[Peers] = []
        self.link = self._new_link("controller")
        self.heartbeats = self._new_link("heartbeats")
        self.requests: BrokerRequests = (
            controller.controller if settings.is_alone else RemoteController(self.link, ImageWaiters(metadata))
        )
        self.forwarding = None if settings.is_alone else self._new_forwarder()

    def new_broker_peers(self, name: str = "replication") -> Peers:
        """Return connections to the other brokers, for requests of one kind. Their user closes them."""
        client_id = f"broker-{self._settings.node_id}-{name}"
        return Peers(self._address_of, client_id=client_id, opener=self._protection.peers)

    @property
    def make_broker_peers(self) -> Callable[[str], Peers] | None:
        """`new_broker_peers`, None if there are no other brokers."""
        return None if self._settings.is_alone else self.new_broker_peers

    def kept_broker_peers(self, name: str) -> Peers | None:
        """Return connections to the other brokers that are closed with these; None if there are no other brokers."""
        if self._settings.is_alone:
            return None
        peers = self.new_broker_peers(name)
        self._peers.append(peers)
        return peers

    async def close(self) -> None:
        for peers in self._peers:
            await peers.close()

    def _new_link(self, name: str) -> ActiveControllerLink:
        client_id = f"broker-{self._settings.node_id}-{name}"
        peers = Peers(self._quorum.address_of, client_id=client_id, opener=self._protection.controllers)
        self._peers.append(peers)
        return ActiveControllerLink(
            node_id=self._settings.node_id,
            leader=lambda: self._quorum.leader_id,
            local=self._controller.handle,
            peers=peers,
        )

    def _new_forwarder(self) -> Forwarder:
        return Forwarder(
            self._new_link("forwarding"),
            node_id=self._settings.node_id,
            leader=lambda: self._quorum.leader_id,
            timeout_s=lambda: self._settings.layers.integer("request.timeout.ms") / 1000,
        )

    def _address_of(self, node_id: NodeId) -> Address | None:
        """Return the address of a broker's listener for other brokers."""
        broker, name = self._metadata.image.brokers.get(node_id), self._settings.inter_broker_listener
        endpoints = broker.endpoints if broker is not None else ()
        return next((Address(each.host, each.port) for each in endpoints if each.name == name), None)
