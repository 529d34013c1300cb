"""The part of a node's configuration that protects its listeners and its connections to other nodes. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rookery.base.codes import SecurityProtocol
from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.security.listener_security import ListenerSecurity, read_listener, read_peers
from rookery.security.sasl import SCRAM_MECHANISMS
from rookery.security.settings import PLAINTEXT, SecuritySettings

INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"


class NodeSecurity(NamedTuple):
    """`listeners` by name; `peers` and `controllers`: how this node connects to other brokers and to controllers."""

    listeners: dict[str, ListenerSecurity]
    peers: SecuritySettings
    controllers: SecuritySettings


def read_node_security(
    layers: BrokerLayers,
    protocols: Mapping[str, SecurityProtocol],
    *,
    inter_broker: str | None,
    controller: str | None,
    controller_protocol: SecurityProtocol | None,
) -> NodeSecurity:
    """Read the security of a node. `protocols` has those of its own listeners.

    `inter_broker` and `controller` are the listeners of other nodes that this one connects to; None if there are none.
    """
    listeners = {name: read_listener(layers, name, protocol) for name, protocol in protocols.items()}
    peers, controllers = PLAINTEXT, PLAINTEXT
    if inter_broker is not None:
        peers = read_peers(layers, inter_broker, protocols[inter_broker], INTER_BROKER_MECHANISM)
        _check_own_login(listeners[inter_broker], peers, INTER_BROKER_MECHANISM)
    if controller is not None and controller_protocol is not None:
        controllers = read_peers(layers, controller, controller_protocol, CONTROLLER_MECHANISM)
        if controllers.sasl is not None and controllers.sasl.mechanism in SCRAM_MECHANISMS:
            raise ConfigError(
                f"{CONTROLLER_MECHANISM} is {controllers.sasl.mechanism}, but controllers have no users of SCRAM "
                "before they have read the metadata: set it to PLAIN, or use SSL with ssl.client.auth=required"
            )
        if controller in listeners:
            _check_own_login(listeners[controller], controllers, CONTROLLER_MECHANISM)
    return NodeSecurity(listeners, peers, controllers)


def _check_own_login(listener: ListenerSecurity, client: SecuritySettings, key: str) -> None:
    """All nodes are configured alike: a mechanism that this listener does not offer, others do not offer either."""
    if listener.sasl is None or client.sasl is None:
        return
    offered = listener.sasl.mechanisms
    if client.sasl.mechanism not in offered:
        raise ConfigError(
            f"{key} is {client.sasl.mechanism}, but listener {listener.name} offers only {', '.join(offered)}: add it "
            "to sasl.enabled.mechanisms, or choose another one"
        )
