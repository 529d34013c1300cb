"""The start-up configuration of a node, read and checked before anything is opened.

`Settings` has the values that cannot change while the node runs (identity, roles, directories, addresses, the quorum).
All others are read from `layers` and from the cluster image on each use, because they can be changed at run time.

A node without any setting of a cluster is a cluster by itself (`is_alone`): both roles, the only voter, and no listener
for controllers. With such a listener it can have brokers on other nodes (`is_sole_voter`).
"""

import re
import socket
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from rookery.base.codes import SecurityProtocol
from rookery.base.config import BrokerLayers, ineffective, load_static
from rookery.base.config_access import AUDIT_FILE, AUDIT_SINK, AUTHORIZER, audit_problem
from rookery.base.config_registry import LISTENERS as REGISTRY_LISTENERS
from rookery.base.config_registry import REGISTRY_PREFIX
from rookery.base.errors import ConfigError
from rookery.base.properties import read_config
from rookery.base.types import NodeId
from rookery.base.values import value_class
from rookery.net.address import Address
from rookery.node.listener_keys import unused_listener_keys
from rookery.node.quorum_config import (
    ANY_ADDRESS,
    BOOTSTRAP_SERVERS,
    VOTERS,
    parse_bootstrap_servers,
    parse_voters,
    quorum_settings,
    sole_voter,
)
from rookery.node.security_config import read_node_security
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import ReplicaKey, VoterSet
from rookery.security.listener_security import ListenerSecurity
from rookery.security.settings import SecuritySettings

CONTROLLER_LISTENERS: Final = "controller.listener.names"
PROTOCOL_MAP: Final = "listener.security.protocol.map"

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d{1,5})"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Role(StrEnum):
    BROKER = "broker"
    CONTROLLER = "controller"


class ListenerAddress(NamedTuple):
    """An entry `NAME://host:port` of `listeners` or `advertised.listeners`; an empty host means all interfaces."""

    name: str
    host: str
    port: int

    @property
    def listens_everywhere(self) -> bool:
        return self.host in ANY_ADDRESS


@value_class(kw_only=True)
class Settings:
    """The settings of a node.

    `listeners` are for clients and other brokers: none without the broker role. `controller_listeners` are for
    controllers and brokers that are not on this node: none without the controller role. `advertised` has the addresses
    of both that are configured. `controller_listener_name` is the listener at which this node finds the controllers;
    None on a node that is alone and has no such listener.

    `security` has the protection of each listener by its name; `peer_security` and `controller_security` are how this
    node connects to other brokers and to controllers.

    `voters` are those of the configuration, for a sole voter itself; None if only the metadata log has them. If it has
    some, they count. `is_sole_voter`: a broker and controller that is the only voter of the configuration, so that it
    can format itself. `is_alone`: and no other node can connect to it as a broker of its cluster.
    """

    node_id: NodeId
    roles: frozenset[Role]
    cluster_id: str | None
    log_directories: tuple[Path, ...]
    metadata_directory: Path
    cordoned_directories: frozenset[Path]
    listeners: tuple[ListenerAddress, ...]
    controller_listeners: tuple[ListenerAddress, ...]
    advertised: dict[str, ListenerAddress]
    controller_listener_name: str | None
    inter_broker_listener: str | None
    security: dict[str, ListenerSecurity]
    peer_security: SecuritySettings
    controller_security: SecuritySettings
    voters: VoterSet | None
    bootstrap_controllers: tuple[Address, ...]
    is_sole_voter: bool
    quorum: QuorumSettings
    layers: BrokerLayers
    without_effect: tuple[str, ...]
    # Keys `listener.name.*` that none of the listeners of this node reads.
    unused_listener_keys: tuple[str, ...]

    @classmethod
    def load(
        cls,
        config_path: Path | None = None,
        overrides: Sequence[str] = (),
        *,
        data_dir: Path | None = None,
        listen: str | None = None,
        overrides_given_as: str = "--set",
    ) -> "Settings":
        """Load settings from a properties file, `key=value` overrides and the two short options.

        The short options take precedence over the overrides, and those over the file. An error about an override names
        its source, `overrides_given_as`.
        """
        assignments = list(overrides)
        if data_dir is not None:
            assignments.append(f"log.dirs={data_dir}")
        if listen is not None:
            if not _LISTENER.fullmatch(f"PLAINTEXT://{listen}"):
                raise ConfigError(f"--listen: expected HOST:PORT, got {listen!r}")
            assignments.append(f"listeners=PLAINTEXT://{listen}")
        text = read_config(config_path)
        return cls.from_static(load_static(text, str(config_path or ""), assignments, given_as=overrides_given_as))

    @classmethod
    def from_static(cls, static: dict[str, str]) -> "Settings":
        """Build settings from keys whose values are valid one by one; this checks that they fit together."""
        layers = BrokerLayers(static=static)
        directories = tuple(Path(item) for item in layers.items("log.dirs") or layers.items("log.dir") or () if item)
        if not directories or len(set(directories)) < len(directories):
            raise ConfigError("log.dirs must name at least one directory, and each only once")
        metadata_directory = layers.text("metadata.log.dir")
        node_id, roles = _node_id(layers), _roles(layers)
        _check_audit(layers, roles)
        controller_names = _controller_names(layers)
        protocols = _security_protocols(layers, controller_names)
        clients, controllers = _listeners(layers, roles, controller_names, protocols)
        advertised = _advertised(layers, [*clients, *controllers])
        membership = _membership(layers, node_id, roles, controller_names, controllers, advertised)
        inter_broker = _inter_broker_listener(
            layers, clients, controller_names, protocols, is_optional=membership.is_sole_voter
        )
        is_alone = membership.is_sole_voter and not controllers
        security = read_node_security(
            layers,
            {listener.name: protocols[listener.name.upper()] for listener in (*clients, *controllers)},
            inter_broker=None if is_alone else inter_broker,
            controller=None if is_alone else next(iter(controller_names), None),
            controller_protocol=protocols.get(next(iter(controller_names), "").upper()),
        )
        return cls(
            node_id=node_id,
            roles=roles,
            cluster_id=layers.text("cluster.id"),
            log_directories=directories,
            metadata_directory=Path(metadata_directory) if metadata_directory else directories[0],
            cordoned_directories=_cordoned(layers, directories),
            listeners=clients,
            controller_listeners=controllers,
            advertised=_with_own_voter(advertised, membership.voters, node_id, controllers),
            controller_listener_name=controller_names[0] if controller_names else None,
            inter_broker_listener=inter_broker,
            security=security.listeners,
            peer_security=security.peers,
            controller_security=security.controllers,
            voters=membership.voters,
            bootstrap_controllers=membership.bootstrap_controllers,
            is_sole_voter=membership.is_sole_voter,
            quorum=quorum_settings(layers),
            layers=BrokerLayers(static=_with_both_ids(static, node_id)),
            without_effect=tuple(ineffective(static) + _idle_registry_keys(layers)),
            unused_listener_keys=unused_listener_keys(
                static, [*(each.name for each in (*clients, *controllers)), *controller_names, inter_broker or ""]
            ),
        )

    @property
    def listener_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in (*self.listeners, *self.controller_listeners))

    @property
    def has_registry(self) -> bool:
        return bool(self.layers.items(REGISTRY_LISTENERS))

    @property
    def is_alone(self) -> bool:
        return self.is_sole_voter and not self.controller_listeners

    @property
    def is_broker(self) -> bool:
        return Role.BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return Role.CONTROLLER in self.roles


def _cordoned(layers: BrokerLayers, directories: Sequence[Path]) -> frozenset[Path]:
    """Return the log directories that get no new partitions (KIP-1066)."""
    names = layers.items("cordoned.log.dirs") or ()
    if "*" in names and len(names) == 1:
        return frozenset(directories)
    cordoned = frozenset(map(Path, names))
    if not cordoned <= set(directories):
        raise ConfigError(f"cordoned.log.dirs must be * or name some of log.dirs, got {','.join(names)}")
    return cordoned


def _idle_registry_keys(layers: BrokerLayers) -> list[str]:
    """Return the keys of the schema registry that have no effect because it is not enabled."""
    if layers.items(REGISTRY_LISTENERS):
        return []
    return sorted(name for name in layers.static if name.startswith(REGISTRY_PREFIX))


class _Membership(NamedTuple):
    voters: VoterSet | None
    bootstrap_controllers: tuple[Address, ...]
    is_sole_voter: bool


def _membership(
    layers: BrokerLayers,
    node_id: NodeId,
    roles: frozenset[Role],
    controller_names: Sequence[str],
    controllers: Sequence[ListenerAddress],
    advertised: dict[str, ListenerAddress],
) -> _Membership:
    """Return the quorum that this node belongs to; ConfigError if it could not find it, or could not be found."""
    servers = parse_bootstrap_servers(layers.items(BOOTSTRAP_SERVERS) or ())
    voters = parse_voters(layers.items(VOTERS) or (), next(iter(controller_names), ""))
    _check_own_voter(voters, node_id, roles)
    if len(voters):
        finds_only_itself = voters.is_only_voter(ReplicaKey(node_id))
    else:
        finds_only_itself = all(_is_own_address(server, controllers, advertised) for server in servers)
    if roles == frozenset(Role) and finds_only_itself:
        has_endpoint = len(voters) > 0 and len(controller_names) > 0
        return _Membership(voters if has_endpoint else sole_voter(node_id), servers, is_sole_voter=True)
    if not (len(voters) or servers):
        raise ConfigError(
            f"process.roles={','.join(sorted(roles))} needs the addresses of the controllers: set "
            f"{BOOTSTRAP_SERVERS}=host:port,... or {VOTERS}=id@host:port,..., the same on all nodes"
        )
    if not controller_names:
        raise ConfigError(
            f"{CONTROLLER_LISTENERS} is not set, but this node has to talk to other controllers. "
            f"Set {CONTROLLER_LISTENERS}=CONTROLLER, the same on all nodes"
        )
    return _Membership(voters if len(voters) else None, servers, is_sole_voter=False)


def _check_own_voter(voters: VoterSet, node_id: NodeId, roles: frozenset[Role]) -> None:
    """A voter that never votes, or a controller that no voter knows, would leave the quorum smaller than it looks."""
    is_voter = voters.get(node_id) is not None
    if is_voter and Role.CONTROLLER not in roles:
        raise ConfigError(
            f"{VOTERS} names node {node_id}, but process.roles=broker. "
            f"Remove {node_id} from it, add controller to process.roles, or give this broker another node.id."
        )
    if len(voters) and not is_voter and Role.CONTROLLER in roles:
        raise ConfigError(
            f"{VOTERS} does not name node {node_id}, which is a controller. "
            f"Add {node_id}@host:port to it on all nodes, or set process.roles=broker."
        )


def _is_own_address(
    server: Address, controllers: Sequence[ListenerAddress], advertised: dict[str, ListenerAddress]
) -> bool:
    for listener in controllers:
        known = advertised.get(listener.name)
        if known is not None and (known.host, known.port) == server:
            return True
        if listener.port == server.port:
            hosts = (*_LOOPBACK, socket.gethostname()) if listener.listens_everywhere else (listener.host,)
            if server.host in hosts or (server.host in _LOOPBACK and listener.host in _LOOPBACK):
                return True
    return False


def _roles(layers: BrokerLayers) -> frozenset[Role]:
    roles = frozenset(Role(item) for item in layers.items("process.roles") or ())
    if not roles:
        raise ConfigError("process.roles must be broker, controller, or both")
    return roles


def _check_audit(layers: BrokerLayers, roles: frozenset[Role]) -> None:
    """Refuse an audit log that could not be written, before anything is opened."""
    problem = audit_problem(
        layers.text(AUDIT_SINK) or "",
        layers.text(AUDIT_FILE),
        layers.text(AUTHORIZER),
        is_broker=Role.BROKER in roles,
    )
    if problem is not None:
        raise ConfigError(problem)


def _node_id(layers: BrokerLayers) -> NodeId:
    older_name = layers.integer("broker.id")
    return older_name if older_name >= 0 and "node.id" not in layers.static else layers.integer("node.id")


def _with_both_ids(static: dict[str, str], node_id: NodeId) -> dict[str, str]:
    """Return `static` with the node's id under both of its keys: DescribeConfigs shows both as set."""
    ids = {"broker.id": str(node_id)}
    if "broker.id" in static:
        ids["node.id"] = str(node_id)
    return static | ids


def _controller_names(layers: BrokerLayers) -> tuple[str, ...]:
    return tuple(name for name in layers.items(CONTROLLER_LISTENERS) or () if name)


def _listeners(
    layers: BrokerLayers,
    roles: frozenset[Role],
    controller_names: Sequence[str],
    protocols: dict[str, SecurityProtocol],
) -> tuple[tuple[ListenerAddress, ...], tuple[ListenerAddress, ...]]:
    """Return the listeners for clients and those for controllers, each fit for the roles of this node."""
    everything = _parse_listeners("listeners", layers.items("listeners") or ())
    for name in {listener.name: None for listener in everything} | dict.fromkeys(controller_names):
        _check_protocol(name, protocols)
    clients = tuple(listener for listener in everything if listener.name not in controller_names)
    controllers = tuple(listener for listener in everything if listener.name in controller_names)
    if Role.BROKER in roles and not clients:
        raise ConfigError("listeners must name at least one address for clients, such as PLAINTEXT://127.0.0.1:9092")
    if Role.BROKER not in roles and clients:
        names = ", ".join(listener.name for listener in clients)
        raise ConfigError(
            f"listeners: {names} is for clients, but process.roles=controller. "
            f"Name only those of {CONTROLLER_LISTENERS}, such as CONTROLLER://:9093, or add broker to process.roles."
        )
    if Role.CONTROLLER not in roles and controllers:
        names = ", ".join(listener.name for listener in controllers)
        raise ConfigError(
            f"listeners: {names} is for controllers, but process.roles=broker. "
            "Remove it from listeners, or add controller to process.roles."
        )
    if Role.CONTROLLER in roles and controller_names and not controllers:
        raise ConfigError(
            f"{CONTROLLER_LISTENERS}={','.join(controller_names)}, but listeners has none of them. "
            f"Add an address such as {controller_names[0]}://:9093 to listeners."
        )
    return clients, controllers


def _check_protocol(name: str, protocols: dict[str, SecurityProtocol]) -> None:
    if name.upper() not in protocols:
        raise ConfigError(
            f"listeners: {name} has no security protocol in {PROTOCOL_MAP}. "
            f"Add {name}:PLAINTEXT to it, or name it in {CONTROLLER_LISTENERS} if it is for controllers."
        )


def _inter_broker_listener(
    layers: BrokerLayers,
    clients: Sequence[ListenerAddress],
    controller_names: Sequence[str],
    protocols: dict[str, SecurityProtocol],
    *,
    is_optional: bool,
) -> str | None:
    """Return the name of the listener that brokers connect to; None without the broker role.

    If `is_optional`, the first one is used unless another is chosen.
    """
    key, protocol_key = "inter.broker.listener.name", "security.inter.broker.protocol"
    if not clients:
        return None
    if key in layers.static and protocol_key in layers.static:
        raise ConfigError(f"{key} and {protocol_key} are both set. Leave out {protocol_key}.")
    names = [listener.name for listener in clients]
    chosen = layers.text(key) or layers.text(protocol_key) or ""
    if chosen in names:
        return chosen
    if layers.text(key) is None:
        # As in Kafka: the only listener with that protocol.
        fitting = [name for name in names if protocols[name.upper()].name == chosen]
        if len(fitting) == 1:
            return fitting[0]
    if chosen in controller_names:
        raise ConfigError(f"{key}={chosen}, which is a listener for controllers. Set it to one of: {', '.join(names)}.")
    if layers.text(key) is None and (is_optional or len(names) == 1):
        return names[0]
    raise ConfigError(f"{key}: {chosen} is not one of listeners. Set it to one of: {', '.join(names)}.")


def _parse_listeners(key: str, items: Sequence[str]) -> tuple[ListenerAddress, ...]:
    parsed = tuple(parse_listener(key, item) for item in items)
    names = [listener.name for listener in parsed]
    ports = [(listener.host, listener.port) for listener in parsed if listener.port]
    if len(set(names)) < len(names) or len(set(ports)) < len(ports):
        raise ConfigError(f"{key}: each listener needs its own name and address")
    return parsed


def parse_listener(key: str, text: str) -> ListenerAddress:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise ConfigError(f"{key}: expected NAME://host:port, got {text!r}")
    return ListenerAddress(match["name"], match["bracketed"] or match["host"] or "", int(match["port"]))


def _security_protocols(layers: BrokerLayers, controller_names: Sequence[str]) -> dict[str, SecurityProtocol]:
    """Return the protocol by the name of the listener, in upper case."""
    text = layers.text(PROTOCOL_MAP) or ""
    protocols: dict[str, SecurityProtocol] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, _, protocol = item.partition(":")
        if protocol.strip().upper() not in SecurityProtocol.__members__:
            names = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(f"{PROTOCOL_MAP}: {item!r} is not NAME:PROTOCOL with one of {names} as protocol")
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
    if PROTOCOL_MAP not in layers.static:
        # As in Kafka: with the default map, listeners for controllers need no entry.
        protocols = {name.upper(): SecurityProtocol.PLAINTEXT for name in controller_names} | protocols
    return protocols


def _advertised(layers: BrokerLayers, listeners: Sequence[ListenerAddress]) -> dict[str, ListenerAddress]:
    """Return the configured address per listener; a listener without one is advertised as it is bound."""
    advertised = {
        item.name: item for item in _parse_listeners("advertised.listeners", layers.items("advertised.listeners") or ())
    }
    unknown = advertised.keys() - {listener.name for listener in listeners}
    if unknown:
        raise ConfigError(f"advertised.listeners: {', '.join(sorted(unknown))} is not one of listeners")
    for listener in advertised.values():
        if listener.listens_everywhere:
            raise ConfigError(
                f"advertised.listeners: {listener.name} needs an address that clients and other nodes can connect to. "
                "Use the host's name or address."
            )
    return advertised


def _with_own_voter(
    advertised: dict[str, ListenerAddress],
    voters: VoterSet | None,
    node_id: NodeId,
    controllers: Sequence[ListenerAddress],
) -> dict[str, ListenerAddress]:
    """Add the address that `controller.quorum.voters` has for this node, unless another one is advertised."""
    voter = voters.get(node_id) if voters is not None else None
    if voter is None:
        return advertised
    names = {listener.name for listener in controllers}
    configured = {name: ListenerAddress(name, *endpoint) for name, endpoint in voter.endpoints.items() if name in names}
    return configured | advertised
