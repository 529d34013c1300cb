"""The work of `rookery up --secure`: makes a secured cluster in the data directory, or uses the one that is there.

The files are those of `rookery secure init`. They are made once: later starts use them as they are, with what an
administrator has changed in them.
"""

import re
import socket
from pathlib import Path
from uuid import uuid4

from rookery.base.clock import SystemClock
from rookery.base.errors import ConfigError
from rookery.base.files import Files, OsFiles
from rookery.base.properties import parse_properties, read_config
from rookery.base.types import encode_uuid
from rookery.base.values import value_class
from rookery.node.format import FormatOptions, format_node
from rookery.node.identity import read_stamp
from rookery.node.local_cluster import Member
from rookery.node.secured_cluster import ADMIN_FILE, CLIENTS, SERVER_FILE, USERS_FILE, SecuredCluster, plan_cluster
from rookery.node.secured_files import is_secured, make_cluster_files
from rookery.node.settings import Settings, parse_listener
from rookery.security.passwords import new_salt
from rookery.security.scram_arguments import parse_scram_user

_NODE = re.compile(r"node-([1-9][0-9]*)")


@value_class
class SecuredPlatform:
    """The nodes that run, and the file with the administrator's settings."""

    members: tuple[Member, ...]
    client_file: Path


def prepare(data_dir: Path, brokers: int, listen: str, registry: str) -> SecuredPlatform:
    """Make the files and format the nodes, unless that was done before."""
    files = OsFiles()
    wanted = _plan(data_dir.absolute(), brokers, listen, registry)
    cluster_id = encode_uuid(uuid4()).replace("-", "_")
    if is_secured(files, wanted.directory):
        _check_same(files, wanted)
        cluster_id = _known_id(files, wanted) or cluster_id
    else:
        _make(files, wanted, cluster_id)
    for node in wanted.nodes:
        _format(files, node.member, cluster_id)
    return SecuredPlatform(tuple(node.member for node in wanted.nodes), wanted.directory / CLIENTS / ADMIN_FILE)


def _plan(directory: Path, brokers: int, listen: str, registry: str) -> SecuredCluster:
    first = parse_listener("--listen", f"SASL_SSL://{listen}")
    host = f"[{first.host}]" if ":" in first.host else first.host
    return plan_cluster(
        directory,
        [f"{host}:{first.port + 2 * index}" for index in range(brokers)],
        machine_name=socket.gethostname(),
        registry=registry,
        option="--listen",
    )


def _make(files: Files, cluster: SecuredCluster, cluster_id: str) -> None:
    directory = cluster.directory
    if files.exists(directory) and files.list_directory(directory):
        raise ConfigError(
            f"{directory} was made without --secure: leave --secure out, or name another --data-dir. To secure what "
            "runs there, see docs/securing.md"
        )
    make_cluster_files(files, cluster, cluster_id=cluster_id, now_ms=SystemClock().now_ms())


def _check_same(files: Files, cluster: SecuredCluster) -> None:
    """Raise ConfigError if the directory has another cluster than the options ask for."""
    made = [name for name in files.list_directory(cluster.directory) if _NODE.fullmatch(name)]
    if len(made) != len(cluster.nodes):
        raise ConfigError(
            f"{cluster.directory} has a secured cluster of {len(made)} nodes: use --brokers {len(made)}, or name "
            "another --data-dir"
        )
    for node in cluster.nodes:
        path = node.member.directory / SERVER_FILE
        advertised = parse_properties(read_config(path), str(path)).get("advertised.listeners")
        address = "" if advertised is None else advertised.value.rpartition("//")[2]
        if address != node.address:
            raise ConfigError(
                f"{path} has the address {address}, and its certificate is for it: use --listen with the address of "
                "the first node, or name another --data-dir"
            )


def _known_id(files: Files, cluster: SecuredCluster) -> str | None:
    """Return the id of the cluster in the data of its nodes; None if none is formatted."""
    directories = [node.member.data_dir for node in cluster.nodes]
    stamps = [read_stamp(files, directory) for directory in directories if files.exists(directory)]
    return next((stamp["cluster.id"] for stamp in stamps if stamp is not None), None)


def _format(files: Files, member: Member, cluster_id: str) -> None:
    lines = files.read_file(member.directory / USERS_FILE).decode().splitlines()
    users = [parse_scram_user(line, new_salt) for line in lines]
    options = FormatOptions(
        cluster_id=cluster_id,
        ignore_formatted=True,
        scram={(user, mechanism): credential for user, mechanism, credential in users},
    )
    settings = Settings.load(member.directory / SERVER_FILE)
    format_node(files, settings, options, new_uuid=uuid4, now_ms=SystemClock().now_ms())
