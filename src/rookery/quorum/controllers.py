"""The other controllers as this node knows them: where they are, and the requests to them.

Addresses come from the voters, from the configuration (bootstrap servers), and from responses and announcements of
leaders: a leader need not be in the set of voters that this node knows.
"""

from collections.abc import Callable, Mapping, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.metadata.features import KRAFT_VERSION
from rookery.net.address import Address
from rookery.net.opener import UNPROTECTED, ChannelOpener
from rookery.net.peers import Peers
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.quorum import events, wire
from rookery.quorum.core import QuorumCore
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import Endpoint, Voter

# A bootstrap server has no node id that is known; it gets a negative one, as in Kafka's clients.
_FIRST_BOOTSTRAP_ID = -2


class Controllers:
    """`endpoints` are those at which other nodes reach this one, by the name of the listener."""

    def __init__(
        self,
        core: QuorumCore,
        *,
        cluster_id: str,
        settings: QuorumSettings,
        jitter: Callable[[], float],
        bootstrap: Sequence[Address],
        listener_name: str,
        endpoints: Mapping[str, Endpoint],
        on_lost: Callable[[NodeId], None],
        opener: ChannelOpener = UNPROTECTED,
    ) -> None:
        self.cluster_id = cluster_id
        self.listener_name = listener_name
        self.endpoints = endpoints
        self._core = core
        self._settings = settings
        self._jitter = jitter
        self._bootstrap = bootstrap
        self._learnt: dict[NodeId, Endpoint] = {}
        # Those that responded that this node belongs to another cluster.
        self._of_other_clusters: set[NodeId] = set()
        self.peers = Peers(self.address_of, client_id=f"quorum-{core.me.node_id}", on_lost=on_lost, opener=opener)
        self._opener = opener

    def address_of(self, node_id: NodeId) -> Address | None:
        """Return where a controller, or a bootstrap server, can be reached; None if that is not known."""
        if node_id <= _FIRST_BOOTSTRAP_ID:
            return self._bootstrap[_FIRST_BOOTSTRAP_ID - node_id]
        voter = self._core.voters.get(node_id)
        endpoint = voter.endpoints.get(self.listener_name) if voter is not None else None
        endpoint = endpoint or self._learnt.get(node_id)
        return Address(*endpoint) if endpoint is not None else None

    def learn(self, node_id: NodeId, endpoint: Endpoint | None) -> None:
        if endpoint is not None and node_id != self._core.me.node_id:
            self._learnt[node_id] = endpoint

    def leader_endpoint(self) -> wire.Endpoints:
        """Return the endpoint of the leader, for responses; empty if it is not known."""
        leader_id = self._core.leader_id
        if leader_id is None:
            return {}
        own = self.endpoints.get(self.listener_name) if leader_id == self._core.me.node_id else None
        address = self.address_of(leader_id)
        endpoint = own or (Endpoint(*address) if address is not None else None)
        return {} if endpoint is None else {leader_id: endpoint}

    @property
    def own_voter(self) -> Voter:
        """This node as a voter: what the set of voters should have if it is one."""
        return Voter(self._core.me, self.endpoints)

    async def kraft_versions(self, node: Endpoint) -> tuple[int, int]:
        """Return the lowest and the highest level of `kraft.version` that a node supports; ApiError if it is silent.

        A node that is not a voter yet has no channel: this one is closed again.
        """
        channel = await self._opener.open(
            Address(*node),
            client_id=f"quorum-{self._core.me.node_id}",
            timeout_s=self._settings.request_timeout_ms / 1000,
        )
        await channel.close(graceful=False)
        return channel.supported_features.get(KRAFT_VERSION, (0, 0))

    async def ask(self, to: NodeId | None, request: events.Request) -> wire.Incoming:
        """Send a request of the core and return the response; None: to any controller that may know the leader.

        ApiError if the request failed, WireError if the response is an error or invalid.
        """
        outgoing = wire.encode_request(
            request,
            cluster_id=self.cluster_id,
            my_endpoints=self.endpoints,
            max_bytes=self._settings.fetch_max_bytes,
        )
        node_id = self._choose_bootstrap() if to is None else to
        if node_id is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no other controller is known")
        message = await self.request(node_id, outgoing.api_key, outgoing.message, version_min=outgoing.version_min)
        try:
            incoming = wire.decode_response(request, message)
        except wire.WireError as error:
            if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._of_other_clusters.add(node_id)
            raise
        self._of_other_clusters.discard(node_id)
        for other, endpoint in incoming.endpoints.items():
            self.learn(other, endpoint)
        return incoming

    async def request(
        self, node_id: NodeId, api_key: ApiKey, message: Request[ResponseT], *, version_min: int = 0
    ) -> ResponseT:
        timeout_s = self._settings.request_timeout_ms / 1000
        return await self.peers.request(node_id, api_key, message, timeout_s=timeout_s, version_min=version_min)

    @property
    def is_refused(self) -> bool:
        """Whether most of the other controllers responded that this node belongs to another cluster.

        One of them is not enough: a node of another cluster at its address must not stop the nodes of this one.
        """
        return 2 * len(self._of_other_clusters) > len(self._others())

    def _choose_bootstrap(self) -> NodeId | None:
        """Return a random controller: any of them may know the leader."""
        known = self._others()
        return known[int(self._jitter() * len(known))] if known else None

    def _others(self) -> list[NodeId]:
        """Return the other controllers whose addresses are known."""
        others = [voter.key.node_id for voter in self._core.voters.others(self._core.me)]
        known = [node_id for node_id in others if self.address_of(node_id) is not None]
        return known + [_FIRST_BOOTSTRAP_ID - index for index in range(len(self._bootstrap))]
