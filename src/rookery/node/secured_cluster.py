"""A secured cluster, as `rookery secure init` makes it: which nodes, files, settings and users it has.

This module decides; `node.secured_files` makes keys and passwords and writes the files. The directory has:

    ca/           the authority's key and certificate; needed again to renew certificates
    clients/      settings of the user admin, for Java, Rookery and librdkafka
    node-N/       everything that node N needs: settings, key and certificate, users for the format, data
    README.txt    the next commands
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from rookery.base.errors import ConfigError
from rookery.base.properties import properties_text
from rookery.base.types import NodeId
from rookery.base.values import value_class
from rookery.node.local_cluster import CONTROLLER, Member, member_settings, voters_among
from rookery.security.client_settings import ClientLogin, java_settings, librdkafka_settings
from rookery.security.node_settings import ADMIN, BROKER, CLIENT_LISTENER, MECHANISM, node_name, security_settings

FIRST_PORT: Final = 9092
NODES_MAX: Final = 99
AUTHORITY: Final = "ca"
CLIENTS: Final = "clients"
TRUSTED: Final = "ca.crt"
KEY_FILE: Final = "node.pem"
SERVER_FILE: Final = "server.properties"
USERS_FILE: Final = "users.scram"
REGISTRY_ROLES: Final = "registry.roles"
ADMIN_FILE: Final = "admin.properties"
LIBRDKAFKA_FILE: Final = "admin.librdkafka.properties"
REGISTRY_FILE: Final = "admin.registry.properties"

_ROLES_TEXT: Final = """\
# The roles of users on the subjects of the schema registry, a line for each user. Super users have all.
# This file is read again when it changes. For example:
# User:order-service=write:orders-*,read:*
"""
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
)


@value_class(kw_only=True)
class SecuredNode:
    """A node to make. `names` are in its certificate; `path` is its directory on the machine where it will run."""

    member: Member
    names: tuple[str, ...]
    path: Path

    @property
    def node_id(self) -> NodeId:
        return self.member.node_id

    @property
    def address(self) -> str:
        return f"{_bracketed(self.member.host)}:{self.member.port}"


@value_class(kw_only=True)
class SecuredCluster:
    """`directory` is where the files are made; `registry` is the URL of a schema registry in the first node."""

    directory: Path
    nodes: tuple[SecuredNode, ...]
    registry: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def is_local(self) -> bool:
        """Whether all nodes run on this machine, from the directory itself."""
        return all(node.path == node.member.directory and is_loopback(node.member.host) for node in self.nodes)

    @property
    def voters(self) -> "Sequence[Member]":
        return voters_among([node.member for node in self.nodes])


@value_class(kw_only=True)
class Users:
    """The passwords of the first users, and their credentials in the form that `rookery format --add-scram` takes."""

    admin_password: str = field(repr=False)
    broker_password: str = field(repr=False)
    credentials: tuple[str, ...] = field(repr=False)


def plan_cluster(
    directory: Path,
    nodes: Sequence[str],
    *,
    machine_name: str,
    path: Path | None = None,
    first_port: int = FIRST_PORT,
    registry: str | None = None,
    option: str = "--nodes",
) -> SecuredCluster:
    """Return the cluster with a node per text: `HOST[:PORT]`, with `/NAME` for more names in its certificate.

    Nodes on the same host get ports from `first_port` on. Without `path`, each node runs from its directory below
    `directory`, or from a copy with the same path; with `path`, its directory is copied there. `machine_name` is put
    into the certificates of nodes that listen on the loopback interface. Errors name `option`.
    """
    if not nodes or len(nodes) > NODES_MAX:
        raise ConfigError(f"a cluster has 1 to {NODES_MAX} nodes, not {len(nodes)}")
    members: list[Member] = []
    names: list[tuple[str, ...]] = []
    for node_id, text in enumerate(nodes, 1):
        first, *others = text.strip().split("/")
        given = f"{option}: '{text}'"
        host, port = _parse_address(first, given)
        if port is None:
            port = first_port + 2 * sum(member.host == host for member in members)
        members.append(_member(directory, node_id, host, port, given))
        known = (*_LOOPBACK_NAMES, machine_name) if is_loopback(host) else ()
        names.append(tuple(dict.fromkeys((host, *(_parse_name(name, given) for name in others), *known))))
    _check_ports(members, option)
    return SecuredCluster(
        directory=directory,
        nodes=tuple(
            SecuredNode(member=member, names=of_node, path=path or member.directory)
            for member, of_node in zip(members, names, strict=True)
        ),
        registry=_check_registry(registry),
    )


def node_settings(cluster: SecuredCluster, node: SecuredNode, broker_password: str) -> dict[str, str]:
    """Return a node's settings, as in server.properties."""
    member = node.member
    members = [each.member for each in cluster.nodes]
    interface = _bracketed(_interface(member.host))
    listeners = [f"{CLIENT_LISTENER}://{interface}:{member.port}"]
    if member in cluster.voters:
        listeners.append(f"{CONTROLLER}://{interface}:{member.controller_port}")
    return {
        **member_settings(member, members),
        "listeners": ",".join(listeners),
        "advertised.listeners": f"{CLIENT_LISTENER}://{node.address}",
        "log.dirs": str(node.path / "data"),
        **security_settings(
            node_ids=[each.node_id for each in cluster.nodes],
            controller_listener=CONTROLLER,
            key_file=str(node.path / KEY_FILE),
            trusted_file=str(node.path / TRUSTED),
            broker_password=broker_password,
        ),
        **(_registry_settings(cluster, node, broker_password) if _has_registry(cluster, node) else {}),
    }


def node_files(
    cluster: SecuredCluster, node: SecuredNode, users: Users, *, key_file: str, trusted: str
) -> dict[Path, str]:
    """Return the files of one node; `key_file` and `trusted` are PEM texts."""
    settings = properties_text(node_settings(cluster, node, users.broker_password))
    directory = node.member.directory
    return {
        directory
        / SERVER_FILE: f"# Node {node.node_id}, made by `rookery secure init`. It has a password.\n{settings}",
        directory / KEY_FILE: key_file,
        directory / TRUSTED: trusted,
        directory / USERS_FILE: "".join(f"{credential}\n" for credential in users.credentials),
        **({directory / REGISTRY_ROLES: _ROLES_TEXT} if _has_registry(cluster, node) else {}),
    }


def client_files(cluster: SecuredCluster, users: Users, *, trusted: str) -> dict[Path, str]:
    """Return the settings of the administrator, for each kind of client."""
    directory = cluster.directory / CLIENTS
    login = ClientLogin(
        bootstrap_servers=cluster.bootstrap_servers,
        user=ADMIN,
        password=users.admin_password,
        mechanism=MECHANISM,
        protocol="SASL_SSL",
        trusted_file=str(directory / TRUSTED),
    )
    return {
        directory / TRUSTED: trusted,
        directory / ADMIN_FILE: "# For Rookery (rookery --command-config FILE) and for Java's clients and tools.\n"
        + properties_text({**java_settings(login), **_registry_keys(cluster.registry, login)}),
        directory / LIBRDKAFKA_FILE: "# For librdkafka: confluent-kafka, kcat -F FILE.\n"
        + _plain_lines(librdkafka_settings(login)),
        **({} if cluster.registry is None else {directory / REGISTRY_FILE: _registry_client(cluster.registry, login)}),
    }


def node_subject(node: SecuredNode) -> tuple[str, tuple[str, ...]]:
    """Return the common name and the alternative names of a node's certificate."""
    return node_name(node.node_id), node.names


def next_commands(cluster: SecuredCluster, cluster_id: str) -> list[tuple[str, list[str]]]:
    """Return what to do next: pairs of a heading and shell commands."""
    steps: list[tuple[str, list[str]]] = []
    if not cluster.is_local:
        copies = [_copy_command(node) for node in cluster.nodes]
        steps.append(("Copy each node's directory to its machine; ca/ stays here and is needed for renewals", copies))
    formats = [
        f"rookery format --config {_quoted(node.path / SERVER_FILE)} --cluster-id {cluster_id}"
        f" --add-scram @{_quoted(node.path / USERS_FILE)}"
        for node in cluster.nodes
    ]
    where = "" if cluster.is_local else ", each on its machine"
    steps.append((f"Format the nodes{where}", formats))
    starts = [f"rookery start --config {_quoted(node.path / SERVER_FILE)}" for node in cluster.nodes]
    steps.append((f"Start them{where}", starts))
    admin = _quoted(cluster.directory / CLIENTS / ADMIN_FILE)
    steps.append(
        (
            "Administer the cluster, and make a key for each application",
            [
                f"export ROOKERY_COMMAND_CONFIG={admin}",
                "rookery topics create orders",
                "rookery keys create order-service --produce orders",
            ],
        )
    )
    return steps


def steps_text(steps: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return the text of `next_commands`."""
    blocks = ["\n".join([f"{heading}:", *(f"  {line}" for line in lines)]) for heading, lines in steps]
    return "\n\n".join(blocks) + "\n"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_registry(cluster: SecuredCluster, node: SecuredNode) -> bool:
    return cluster.registry is not None and node == cluster.nodes[0]


def _check_registry(url: str | None) -> str | None:
    if url is not None and not url.startswith("https://"):
        raise ConfigError(f"--registry: {url} must begin with https:// in a secured cluster: passwords are sent to it")
    return url


def _registry_settings(cluster: SecuredCluster, node: SecuredNode, broker_password: str) -> dict[str, str]:
    """Return the settings of the registry in a node's process: HTTPS, the users of the cluster, roles in a file, and
    the broker's own login."""
    login = ClientLogin(
        bootstrap_servers="",
        user=BROKER,
        password=broker_password,
        mechanism=MECHANISM,
        protocol="SASL_SSL",
        trusted_file=str(node.path / TRUSTED),
    )
    own = {key: value for key, value in java_settings(login).items() if key != "bootstrap.servers"}
    return {
        "schema.registry.listeners": cluster.registry or "",
        "schema.registry.ssl.keystore.location": str(node.path / KEY_FILE),
        "schema.registry.authentication.method": "BASIC",
        "schema.registry.authorization.rules.file": str(node.path / REGISTRY_ROLES),
        **{f"schema.registry.kafkastore.{key}": value for key, value in own.items()},
    }


def _registry_keys(url: str | None, login: ClientLogin) -> dict[str, str]:
    """Return the settings of the registry's clients as `rookery` and Spark read them, beside those of Kafka's."""
    if url is None:
        return {}
    return {
        "schema.registry.url": url,
        "schema.registry.basic.auth.user.info": f"{login.user}:{login.password}",
        "schema.registry.ssl.ca.location": login.trusted_file or "",
    }


def _registry_client(url: str, login: ClientLogin) -> str:
    return "# For clients of the schema registry.\n" + _plain_lines(
        {
            "schema.registry.url": url,
            "basic.auth.credentials.source": "USER_INFO",
            "basic.auth.user.info": f"{login.user}:{login.password}",
            "ssl.ca.location": login.trusted_file or "",
        }
    )


def _interface(host: str) -> str:
    """Return the address that a node binds: all interfaces, unless its host is a loopback address.

    The host itself is not bound: on many machines, their own name stands for a loopback address.
    """
    if is_loopback(host):
        return host
    try:
        return "::" if ip_address(host).version == 6 else "0.0.0.0"
    except ValueError:
        return "0.0.0.0"


def _parse_address(first: str, given: str) -> tuple[str, int | None]:
    match = _ADDRESS.fullmatch(first)
    if match is None:
        raise ConfigError(f"{given} must have the form HOST, HOST:PORT or HOST/OTHER-NAME/...")
    port = match["port"]
    return match["bracketed"] or match["host"], None if port is None else int(port)


def _parse_name(name: str, given: str) -> str:
    match = _ADDRESS.fullmatch(name)
    if match is None or match["port"] is not None:
        raise ConfigError(f"{given} has the name '{name}', which is neither a host name nor an address")
    return match["bracketed"] or match["host"]


def _member(directory: Path, node_id: NodeId, host: str, port: int, given: str) -> Member:
    if not 0 < port < 65_535:
        raise ConfigError(f"{given} has the port {port}; it and the next one are used, 1 to 65534")
    if host in ("0.0.0.0", "::"):
        raise ConfigError(f"{given} is no address that clients can connect to: write the machine's name")
    directory = directory / node_name(node_id)
    return Member(node_id=node_id, directory=directory, host=host, port=port, controller_port=port + 1)


def _check_ports(members: Sequence[Member], option: str) -> None:
    used: dict[tuple[str, int], NodeId] = {}
    for member in members:
        for port in (member.port, member.controller_port):
            other = used.setdefault((member.host, port), member.node_id)
            if other != member.node_id:
                raise ConfigError(
                    f"{option}: nodes {other} and {member.node_id} both use port {port} of {member.host}; each node "
                    "needs its port and the next one"
                )


def _copy_command(node: SecuredNode) -> str:
    return f"rsync -a {_quoted(node.member.directory)}/ {node.member.host}:{_quoted(node.path)}/"


def _plain_lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _quoted(path: Path) -> str:
    from shlex import quote

    return quote(str(path))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
