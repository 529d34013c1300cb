"""The part of a node's configuration that says which quorum of controllers it belongs to, and how to find it. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.base.types import NodeId
from rookery.net.address import Address, parse_addresses
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet

VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
ANY_ADDRESS: Final = ("", "0.0.0.0", "::")

_VOTER = re.compile(
    r"(?P<id>\d{1,10})@(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]/@]*)):(?P<port>\d{1,5})", re.ASCII
)


def parse_voters(items: Sequence[str], listener: str) -> VoterSet:
    """Parse `controller.quorum.voters`; `listener` is the name of the controllers' listener. ConfigError if invalid."""
    voters = [_parse_voter(item, listener) for item in items if item]
    ids = [voter.key.node_id for voter in voters]
    addresses = [endpoint for voter in voters for endpoint in voter.endpoints.values()]
    if len(set(ids)) < len(ids):
        repeated = next(node_id for node_id in ids if ids.count(node_id) > 1)
        raise ConfigError(f"{VOTERS}: node {repeated} occurs twice. Give each controller its own node.id.")
    if len(set(addresses)) < len(addresses):
        host, port = next(address for address in addresses if addresses.count(address) > 1)
        raise ConfigError(
            f"{VOTERS}: two voters have the address {Address(host, port)}. Give each one its controller listener's."
        )
    return VoterSet(voters)


def _parse_voter(text: str, listener: str) -> Voter:
    match = _VOTER.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65_536:
        raise ConfigError(f"{VOTERS}: expected id@host:port, got {text!r}")
    host = match["bracketed"] or match["host"]
    if host in ANY_ADDRESS:
        raise ConfigError(
            f"{VOTERS}: {text!r} is not an address that other nodes can connect to. Use the host's name or address."
        )
    return Voter(ReplicaKey(int(match["id"])), {listener: Endpoint(host, int(match["port"]))})


def parse_bootstrap_servers(items: Sequence[str]) -> tuple[Address, ...]:
    """Parse `controller.quorum.bootstrap.servers`; ConfigError if an entry is invalid."""
    given = [item for item in items if item]
    for item in given:
        if not re.search(r":\d+$", item):
            raise ConfigError(f"{BOOTSTRAP_SERVERS}: expected host:port, got {item!r}")
    servers = tuple(parse_addresses(",".join(given))) if given else ()
    for server in servers:
        if server.host in ANY_ADDRESS:
            raise ConfigError(
                f"{BOOTSTRAP_SERVERS}: {server} is not an address that this node can connect to. "
                "Use the controller's name or address."
            )
    return servers


def sole_voter(node_id: NodeId) -> VoterSet:
    return VoterSet([Voter(ReplicaKey(node_id), {})])


def quorum_settings(layers: BrokerLayers) -> QuorumSettings:
    return QuorumSettings(
        election_timeout_ms=layers.integer("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=layers.integer("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=layers.integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=layers.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=layers.integer("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=layers.integer("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=layers.integer("controller.quorum.fetch.snapshot.max.bytes"),
    )
