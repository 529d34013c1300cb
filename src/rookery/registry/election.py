"""Which node writes: the leader among the nodes with one group id, as Confluent's registries elect it.

The nodes are members of a classic group with the protocol type "sr". Each says in JSON who it is: host, port, scheme,
and whether it may lead. The group's own leader picks the registry's leader, the eligible node with the smallest URL,
and tells all nodes the same. Nodes of both makes can be in one group.

An election only says who should write. Two nodes may believe at the same time that they lead: what keeps them apart is
`log.SchemasWriter`, whose transactions fence each other.
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
# Of refusals that no new try mends: what to change.
_REMEDIES: Final = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose kafkagroup.session.timeout.ms within the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "something else than registries uses the group, so choose another "
    "schema.registry.group.id",
    ErrorCode.INVALID_GROUP_ID: "choose another schema.registry.group.id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "choose a schema.registry.group.id that this registry may use",
}


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself; the names are Confluent's."""

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
        """A name for all of this, of the characters that a group.instance.id may have.

        A node that comes back under its name takes over what the group knows of it, and the group does not elect anew:
        so nothing that it says may have changed.
        """
        text = f"{self.scheme}-{self.host}-{self.port}-{'eligible' if self.master_eligibility else 'follower'}"
        return re.sub(r"[^a-zA-Z0-9._-]", "-", text)[-_INSTANCE_ID_LENGTH_MAX:]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes are told; without a leader if none is eligible."""

    version: int = _VERSION
    error: int = _NO_ERROR
    master: str | msgspec.UnsetType | None = msgspec.UNSET
    master_identity: NodeIdentity | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def leader(self) -> NodeIdentity | None:
        return self.master_identity if isinstance(self.master_identity, NodeIdentity) else None


def choose_leader(members: Mapping[str, bytes]) -> Assignment:
    """The assignment of all, from what each said. Who cannot be understood does not lead."""
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


class Candidate(Protocol):
    """Who takes part in the election, and is told of it."""

    def elected(self, leader: NodeIdentity | None) -> None:
        """None: nobody may lead. Comes again, unchanged, whenever the group comes together."""
        ...

    def deserted(self) -> None:
        """Who leads is not known any more; there will be a result."""
        ...

    def refused(self, problem: str) -> None:
        """There will be no result; the text says what to change."""
        ...


class _SchemaRegistryProtocol:
    """See `client.membership.worker.GroupProtocol`."""

    type = "sr"
    name = "v0"

    def __init__(self, identity: NodeIdentity, candidate: Candidate) -> None:
        self._identity = identity
        self._candidate = candidate

    def metadata(self) -> bytes:
        return msgspec.json.encode(self._identity)

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, msgspec.json.encode(choose_leader(members)))

    def assigned(self, assignment: bytes) -> None:
        found = msgspec.json.decode(assignment, type=Assignment)
        if found.error == _DUPLICATE_URLS:
            logger.error("several registries say that they are at the same address, so none leads: set host.name")
        elif found.error == _NO_ERROR and found.leader is None:
            logger.warning("no registry may lead: there can be no writes until one with leader.eligibility joins")
        self._candidate.elected(found.leader)

    def lost(self) -> None:
        self._candidate.deserted()

    def refused(self, error: ApiError) -> None:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            logger.error("another registry says that it is at this address: set host.name", url=self._identity.url)
        elif (remedy := _REMEDIES.get(error.code)) is not None:
            self._candidate.refused(f"the schema registry cannot take part in the election: {error}; {remedy}")


class Election:
    """Takes part in the election until it is closed."""

    def __init__(self, settings: RegistrySettings, identity: NodeIdentity, candidate: Candidate) -> None:
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
            _SchemaRegistryProtocol(identity, candidate),
        )

    def start(self) -> None:
        self._worker.start()

    def run_again(self, reason: str) -> None:
        """Somebody else seems to lead: ask the group who does."""
        self._worker.rejoin(reason)

    async def close(self, *, leave: bool = True) -> None:
        """Leaving lets the others elect at once."""
        try:
            await self._worker.close(leave=leave)
        finally:
            await self._cluster.close()
