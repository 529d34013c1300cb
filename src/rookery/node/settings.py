"""The start-up configuration of a node, read and checked before anything is opened.

`Settings` has the values that cannot change while the node runs (identity, directories, addresses). All others are read
from `layers` and from the cluster image on each use, because they can be changed at run time.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rookery.base.config import BrokerLayers, ineffective, load_static
from rookery.base.config_registry import LISTENERS as REGISTRY_LISTENERS
from rookery.base.config_registry import REGISTRY_PREFIX
from rookery.base.errors import ConfigError
from rookery.base.properties import read_config
from rookery.base.types import NodeId
from rookery.base.values import value_class

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d{1,5})"
)
_ANY_ADDRESS = ("", "0.0.0.0", "::")


class ListenerAddress(NamedTuple):
    """An entry `NAME://host:port` of `listeners` or `advertised.listeners`; an empty host means all interfaces."""

    name: str
    host: str
    port: int

    @property
    def listens_everywhere(self) -> bool:
        return self.host in _ANY_ADDRESS


@value_class(kw_only=True)
class Settings:
    node_id: NodeId
    cluster_id: str | None
    log_directories: tuple[Path, ...]
    metadata_directory: Path
    listeners: tuple[ListenerAddress, ...]
    advertised: dict[str, ListenerAddress]
    layers: BrokerLayers
    without_effect: tuple[str, ...]

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
        _check_roles(layers)
        _check_security(layers)
        directories = tuple(Path(item) for item in layers.items("log.dirs") or layers.items("log.dir") or () if item)
        if not directories or len(set(directories)) < len(directories):
            raise ConfigError("log.dirs must name at least one directory, and each only once")
        metadata_directory = layers.text("metadata.log.dir")
        listeners = _client_listeners(layers)
        node_id = _node_id(layers)
        return cls(
            node_id=node_id,
            cluster_id=layers.text("cluster.id"),
            log_directories=directories,
            metadata_directory=Path(metadata_directory) if metadata_directory else directories[0],
            listeners=listeners,
            advertised=_advertised(layers, listeners),
            layers=BrokerLayers(static=_with_both_ids(static, node_id)),
            without_effect=tuple(ineffective(static) + _idle_registry_keys(layers)),
        )

    @property
    def has_registry(self) -> bool:
        return bool(self.layers.items(REGISTRY_LISTENERS))


def _idle_registry_keys(layers: BrokerLayers) -> list[str]:
    """Return the keys of the schema registry that have no effect because it is not enabled."""
    if layers.items(REGISTRY_LISTENERS):
        return []
    return sorted(name for name in layers.static if name.startswith(REGISTRY_PREFIX))


def _check_roles(layers: BrokerLayers) -> None:
    """Reject the configuration of a cluster with several nodes: each node would start as its own cluster."""
    if set(layers.items("process.roles") or ()) != {"broker", "controller"}:
        raise ConfigError("process.roles must be broker,controller: nodes with one role alone are not supported")
    voters = layers.items("controller.quorum.voters") or ()
    if len(voters) > 1:
        raise ConfigError("controller.quorum.voters names several nodes, but only a quorum of one is supported")


def _check_security(layers: BrokerLayers) -> None:
    """Reject settings that demand protection: a broker without it must not start, not even with a warning."""
    if layers.text("authorizer.class.name"):
        raise ConfigError("authorizer.class.name is set, but there is no authorizer: all clients may do everything")


def _node_id(layers: BrokerLayers) -> NodeId:
    older_name = layers.integer("broker.id")
    return older_name if older_name >= 0 and "node.id" not in layers.static else layers.integer("node.id")


def _with_both_ids(static: dict[str, str], node_id: NodeId) -> dict[str, str]:
    """Return `static` with the node's id under both of its keys: DescribeConfigs shows both as set."""
    ids = {"broker.id": str(node_id)}
    if "broker.id" in static:
        ids["node.id"] = str(node_id)
    return static | ids


def _client_listeners(layers: BrokerLayers) -> tuple[ListenerAddress, ...]:
    for_controllers = set(layers.items("controller.listener.names") or ())
    listeners = tuple(
        listener
        for listener in _parse_listeners("listeners", layers.items("listeners") or ())
        if listener.name not in for_controllers
    )
    if not listeners:
        raise ConfigError("listeners must name at least one address for clients, such as PLAINTEXT://127.0.0.1:9092")
    protocols = _security_protocols(layers)
    for listener in listeners:
        protocol = protocols.get(listener.name.upper())
        if protocol is None:
            raise ConfigError(f"listeners: {listener.name} has no security protocol in listener.security.protocol.map")
        if protocol != "PLAINTEXT":
            raise ConfigError(f"listeners: {listener.name} uses {protocol}, but only PLAINTEXT is supported")
    return listeners


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


def _security_protocols(layers: BrokerLayers) -> dict[str, str]:
    text = layers.text("listener.security.protocol.map") or ""
    pairs = [item.strip().partition(":") for item in text.split(",") if item.strip()]
    return {name.upper(): protocol for name, _, protocol in pairs}


def _advertised(layers: BrokerLayers, listeners: Sequence[ListenerAddress]) -> dict[str, ListenerAddress]:
    """Return the configured address per listener; a listener without one is advertised as it is bound."""
    advertised = {
        item.name: item for item in _parse_listeners("advertised.listeners", layers.items("advertised.listeners") or ())
    }
    unknown = (
        advertised.keys()
        - {listener.name for listener in listeners}
        - set(layers.items("controller.listener.names") or ())
    )
    if unknown:
        raise ConfigError(f"advertised.listeners: {', '.join(sorted(unknown))} is not one of listeners")
    for listener in advertised.values():
        if listener.listens_everywhere:
            raise ConfigError(f"advertised.listeners: {listener.name} needs an address that clients can connect to")
    return advertised
