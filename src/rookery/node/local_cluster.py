"""A cluster whose nodes run on one machine: the settings of each node, and the format of their directories.

`rookery up --brokers` and `rookery.testing.EmbeddedCluster` run such clusters. Every node has a directory of its own.
Up to three nodes (five of a larger cluster) are also controllers, the voters of the quorum: two voters would be worse
than one, since the cluster would stop if either of them did.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from rookery.base.errors import ConfigError
from rookery.base.files import Files
from rookery.base.types import NodeId, TimestampMs, encode_uuid
from rookery.base.values import value_class
from rookery.metadata.image.scram import ScramKey
from rookery.node.format import FormatOptions, format_node
from rookery.node.identity import META_FILE, read_stamp
from rookery.node.quorum_config import ANY_ADDRESS
from rookery.node.settings import Settings
from rookery.security.scram_credentials import ScramCredential

CONTROLLER: Final = "CONTROLLER"

_DIRECTORY_PREFIX = "node-"
_DATA = "data"
_LOOPBACK = "127.0.0.1"
_REPLICAS_MAX = 3


@value_class(kw_only=True)
class Member:
    """A node of the cluster. `controller_port` is used only by those that are controllers."""

    node_id: NodeId
    directory: Path
    host: str
    port: int
    controller_port: int

    @property
    def data_dir(self) -> Path:
        return self.directory / _DATA

    @property
    def controller_host(self) -> str:
        """The host at which other nodes, which are on the same machine, find its listener for controllers."""
        return _LOOPBACK if self.host in ANY_ADDRESS else self.host


def make_members(directory: Path, host: str, ports: Sequence[tuple[int, int]]) -> list[Member]:
    """Return a member per pair of ports (clients, controllers), with its own directory below `directory`."""
    return [
        Member(
            node_id=node_id,
            directory=directory / f"{_DIRECTORY_PREFIX}{node_id}",
            host=host,
            port=port,
            controller_port=controller_port,
        )
        for node_id, (port, controller_port) in enumerate(ports, 1)
    ]


def voters_among(members: Sequence[Member]) -> Sequence[Member]:
    return members[: 1 if len(members) < 3 else 3 if len(members) < 5 else 5]


def member_settings(member: Member, members: Sequence[Member], *, protocol: str = "PLAINTEXT") -> dict[str, str]:
    """Return the settings of a member, as in server.properties. The brokers' listener has the name of its protocol."""
    voters = voters_among(members)
    is_voter = member in voters
    listeners = [f"{protocol}://{_bracketed(member.host)}:{member.port}"]
    if is_voter:
        listeners.append(f"{CONTROLLER}://{_bracketed(member.controller_host)}:{member.controller_port}")
    replicas = min(len(members), _REPLICAS_MAX)
    return {
        "process.roles": "broker,controller" if is_voter else "broker",
        "node.id": str(member.node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(
            f"{voter.node_id}@{_bracketed(voter.controller_host)}:{voter.controller_port}" for voter in voters
        ),
        "log.dirs": str(member.data_dir),
        "default.replication.factor": str(replicas),
        # One replica may be missing.
        "min.insync.replicas": str(max(1, replicas - 1)),
    }


def format_members(
    files: Files,
    members: Sequence[Member],
    settings: Sequence[Mapping[str, str]],
    *,
    now_ms: TimestampMs,
    scram: Mapping[ScramKey, ScramCredential] | None = None,
) -> str:
    """Format the directories of members that are not formatted; returns the id of the cluster, which may be new.

    `scram` are the first users of the cluster.
    """
    stamps = (read_stamp(files, member.data_dir) for member in members if files.exists(member.data_dir))
    known = [stamp["cluster.id"] for stamp in stamps if stamp is not None]
    cluster_id = known[0] if known else encode_uuid(uuid4())
    options = FormatOptions(cluster_id=cluster_id, ignore_formatted=True, scram=scram or {})
    for values in settings:
        loaded = Settings.load(overrides=[f"{key}={value}" for key, value in values.items()])
        format_node(files, loaded, options, new_uuid=uuid4, now_ms=now_ms)
    return cluster_id


def check_count(directory: Path, count: int) -> None:
    """Raise ConfigError if `directory` holds the data of another number of nodes.

    The voters of a running cluster cannot be changed by another configuration: its quorum could lose what it wrote.
    """
    existing = len(list(directory.glob(f"{_DIRECTORY_PREFIX}*/{_DATA}/{META_FILE}")))
    if (directory / META_FILE).exists():
        existing = 1
    elif existing == 0:
        return
    if existing != count:
        kind = "one node" if existing == 1 else f"a cluster of {existing} nodes"
        raise ConfigError(
            f"{directory} holds the data of {kind}. Use --brokers {existing}, or name another --data-dir."
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
