"""The services of a controller, with fakes in place of the controller's decisions and of the quorum."""

from collections.abc import Callable
from typing import Any, cast

from rookery.base.clock import ManualClock
from rookery.base.errors import NotControllerError
from rookery.base.types import NodeId
from rookery.broker.api_row import ListenerType
from rookery.broker.context import ClusterServices
from rookery.broker.dispatch import Dispatcher
from rookery.broker.permissions import Access
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.requests import ControllerRequests
from rookery.net.address import Address
from rookery.net.connection import ConnectionInfo
from rookery.net.listener import Listener
from rookery.net.peers import Peers
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message, Request, ResponseT
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tests.broker.harness import CLUSTER_ID, decode, request_frame


class FakeController:
    """Records the calls of `ControllerRequests`, and returns what a test has set for their names."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.results: dict[str, Any] = {}
        self.is_active = True
        self.lost: list[NodeId] = []

    def connection_lost(self, node_id: NodeId) -> None:
        self.lost.append(node_id)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            if not self.is_active:
                raise NotControllerError
            result = self.results[name]
            if isinstance(result, Exception):
                raise result
            return result(*arguments, **options) if callable(result) else result

        return call

    def requests(self) -> ControllerRequests:
        return cast(ControllerRequests, self)


class FakeQuorum:
    kraft_version = 0

    def __init__(self, leader_id: NodeId | None = 1, *voters: NodeId) -> None:
        self.leader_id = leader_id
        self.voters = VoterSet(
            Voter(ReplicaKey(node_id), {"CONTROLLER": Endpoint("controller", 9000 + node_id)}) for node_id in voters
        )
        self.received: list[tuple[ApiKey, Any]] = []
        self.responses: dict[ApiKey, Any] = {}

    async def receive(self, api_key: ApiKey, request: Request[ResponseT]) -> ResponseT:
        self.received.append((api_key, request))
        return cast(ResponseT, self.responses[api_key])


class ControllerNode:
    """A node that is only a controller, and a client's view of its listener."""

    def __init__(self, node_id: NodeId = 1, *voters: NodeId, access: Access | None = None) -> None:
        self.controller = FakeController()
        self.quorum = FakeQuorum(node_id, *(voters or (node_id,)))
        self.services = ClusterServices(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            clock=ManualClock(),
            metadata=MetadataPublisher(),
            controller=self.controller.requests(),
            quorum=self.quorum,
            static_config={},
            access=access,
        )
        self.dispatcher = Dispatcher(self.services, ListenerType.CONTROLLER)
        self.connection = ConnectionInfo("127.0.0.1", 50_000, "CONTROLLER")

    async def call(self, api_key: ApiKey, version: int, **fields: Any) -> Message:
        frame = request_frame(api_key, version, **fields)
        answer = self.dispatcher.handle(memoryview(frame), self.connection)
        reply = answer if answer is None or isinstance(answer, list) else await answer
        assert reply is not None
        return decode(api_key, version, reply)


class Controllers:
    """Controllers that listen on the loopback interface, and the view that a broker has of them."""

    def __init__(self, *node_ids: NodeId) -> None:
        self.nodes = {node_id: ControllerNode(node_id, *node_ids) for node_id in node_ids}
        self.leader: NodeId | None = None
        self._listeners: dict[NodeId, Listener] = {}
        self.peers = Peers(self._address_of, client_id="broker")

    async def __aenter__(self) -> "Controllers":
        for node_id in self.nodes:
            await self.restart(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.peers.close()
        for node_id in list(self._listeners):
            await self.kill(node_id)

    def lead(self, leader: NodeId | None) -> None:
        """Make a node the active controller, and all others inactive; None leaves no active one."""
        self.leader = leader
        for node_id, node in self.nodes.items():
            node.controller.is_active = node_id == leader

    async def kill(self, node_id: NodeId) -> None:
        await self._listeners.pop(node_id).close()

    async def restart(self, node_id: NodeId) -> None:
        listener = Listener("127.0.0.1", 0, self.nodes[node_id].dispatcher.handle)
        await listener.start()
        self._listeners[node_id] = listener

    def _address_of(self, node_id: NodeId) -> Address | None:
        listener = self._listeners.get(node_id)
        return None if listener is None else Address("127.0.0.1", listener.bound_port)
