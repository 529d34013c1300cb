"""The election of the node that writes, among the nodes with one group id, as in Confluent's registries.

The nodes are members of a classic group with the protocol type "sr". Each sends its identity in JSON: host, port,
scheme, and whether it may lead. The group's own leader chooses the registry's leader, the eligible node with the
smallest URL, and sends the same assignment to all nodes. Confluent's and Rookery's nodes can be in one group.

An election only says which node should write. Two nodes may believe at the same time that they lead. Only the
transactions of `log.SchemasWriter`, which fence each other, prevent that both write.
"""

import re
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
import structlog

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.cluster import Cluster
from rookery.client.membership.worker import GroupWorker, WorkerSettings
from rookery.client.settings.admin import AdminSettings
from rookery.registry.settings import RegistrySettings

logger = structlog.get_logger(__name__)

_VERSION: Final = 1
_NO_ERROR: Final = 0
_DUPLICATE_URLS: Final = 1
_INSTANCE_ID_LENGTH_MAX: Final = 249
# The remedies for errors that a retry does not fix.
_REMEDIES: Final = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose kafkagroup.session.timeout.ms within the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "clients other than registries use the group, so choose another "
    "schema.registry.group.id",
    ErrorCode.INVALID_GROUP_ID: "choose another schema.registry.group.id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "choose a schema.registry.group.id that this registry may use",
}


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity that a node sends to the group; the field names are Confluent's."""

    version: int = _VERSION
    host: str
    port: int
    master_eligibility: bool
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def instance_id(self) -> str:
        """The identity as a group.instance.id, with the characters that are allowed there.

        A node that rejoins with the same instance id gets its old assignment, without a new election. So the id must
        contain everything that an election depends on.
        """
        text = f"{self.scheme}-{self.host}-{self.port}-{'eligible' if self.master_eligibility else 'follower'}"
        return re.sub(r"[^a-zA-Z0-9._-]", "-", text)[-_INSTANCE_ID_LENGTH_MAX:]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an election, which all nodes receive; without a leader if no node is eligible."""

    version: int = _VERSION
    error: int = _NO_ERROR
    master: str | msgspec.UnsetType | None = msgspec.UNSET
    master_identity: NodeIdentity | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def leader(self) -> NodeIdentity | None:
        return self.master_identity if isinstance(self.master_identity, NodeIdentity) else None


def choose_leader(members: Mapping[str, bytes]) -> Assignment:
    """Return the assignment for all members from their identities. A member with an unreadable one cannot lead."""
    nodes = {member: node for member, data in members.items() if (node := read_identity(data)) is not None}
    if len({node.url for node in nodes.values()}) < len(nodes):
        return Assignment(error=_DUPLICATE_URLS)
    eligible = {node.url: member for member, node in nodes.items() if node.master_eligibility}
    if not eligible:
        return Assignment()
    master = eligible[min(eligible)]
    return Assignment(master=master, master_identity=nodes[master])


def read_identity(data: bytes) -> NodeIdentity | None:
    try:
        return msgspec.json.decode(data, type=NodeIdentity)
    except msgspec.DecodeError:
        return None


class ElectionListener(Protocol):
    """Receives the results of the election."""

    def leader_elected(self, leader: NodeIdentity | None) -> None:
        """`leader` is None if no node may lead. Called after every rebalance, even if the leader is unchanged."""
        ...

    def leader_lost(self) -> None:
        """The leader is not known any more; another call will follow."""
        ...

    def election_failed(self, problem: str) -> None:
        """This node cannot take part in the election; `problem` says what to change."""
        ...


class _SchemaRegistryProtocol:
    """See `client.membership.worker.GroupProtocol`."""

    type = "sr"
    name = "v0"

    def __init__(self, identity: NodeIdentity, listener: ElectionListener) -> None:
        self._identity = identity
        self._listener = listener

    def metadata(self) -> bytes:
        return msgspec.json.encode(self._identity)

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, msgspec.json.encode(choose_leader(members)))

    def assigned(self, assignment: bytes) -> None:
        found = msgspec.json.decode(assignment, type=Assignment)
        if found.error == _DUPLICATE_URLS:
            logger.error("several registries have the same address, so none leads: set host.name")
        elif found.error == _NO_ERROR and found.leader is None:
            logger.warning("no registry may lead: there can be no writes until one with leader.eligibility joins")
        self._listener.leader_elected(found.leader)

    def lost(self) -> None:
        self._listener.leader_lost()

    def refused(self, error: ApiError) -> None:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            logger.error("another registry has the address of this one: set host.name", url=self._identity.url)
        elif (remedy := _REMEDIES.get(error.code)) is not None:
            self._listener.election_failed(f"the schema registry cannot take part in the election: {error}; {remedy}")


class Election:
    """Takes part in the election until it is closed."""

    def __init__(self, settings: RegistrySettings, identity: NodeIdentity, listener: ElectionListener) -> None:
        client_id = f"schema-registry-{identity.instance_id}"
        self._cluster = Cluster(AdminSettings.parse({**settings.client_config, "client.id": client_id}).common)
        self._worker = GroupWorker(
            self._cluster,
            WorkerSettings(
                group_id=settings.group_id,
                instance_id=identity.instance_id,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
            ),
            _SchemaRegistryProtocol(identity, listener),
        )

    def start(self) -> None:
        self._worker.start()

    def run_again(self, reason: str) -> None:
        """Rejoin the group, because another node seems to lead."""
        self._worker.rejoin(reason)

    async def close(self, *, leave: bool = True) -> None:
        """Stop. With `leave` the other nodes elect immediately; without it only after the session time-out."""
        try:
            await self._worker.close(leave=leave)
        finally:
            await self._cluster.close()
