"""The listeners of a node, and their limits from the configuration."""

import socket
from collections.abc import Iterable, Sequence

from rookery.base.codes import SecurityProtocol
from rookery.base.config import BrokerLayers
from rookery.base.config_broker import parse_connection_limits
from rookery.metadata.records import BrokerEndpoint
from rookery.net.connection import Handler
from rookery.net.listener import Listener, ListenerSettings
from rookery.node.environment import Environment
from rookery.node.protection import Protection
from rookery.node.settings import ListenerAddress, Settings
from rookery.quotas.connections import UNLIMITED_RATE, ConnectionRates

# The socket, and the duplicate of it that `sendfile` uses.
_DESCRIPTORS_PER_CONNECTION = 2


def listener_settings(name: str, layers: BrokerLayers, *, connections_max: int | None = None) -> ListenerSettings:
    """Return the settings of a listener.

    The number of connections is limited by the smallest of `max.connections`, the same key for this listener, and
    `connections_max`.
    """
    per_listener = layers.listener_value(name, "max.connections")
    limits = [layers.integer("max.connections"), per_listener, connections_max]
    return ListenerSettings(
        name=name,
        socket_request_max_bytes=layers.integer("socket.request.max.bytes"),
        socket_send_buffer_bytes=layers.integer("socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=layers.integer("socket.receive.buffer.bytes"),
        socket_listen_backlog_size=layers.integer("socket.listen.backlog.size"),
        max_connections=min(limit for limit in limits if isinstance(limit, int)),
        max_connections_per_ip=layers.integer("max.connections.per.ip"),
        max_connections_per_ip_overrides=parse_connection_limits(layers.text("max.connections.per.ip.overrides") or ""),
        queued_max_request_bytes=layers.integer("queued.max.request.bytes"),
        connections_max_idle_ms=layers.integer("connections.max.idle.ms"),
    )


def affordable_connections(descriptor_limit: int, listener_count: int) -> int:
    """Return how many connections a listener may have, so that half of the file descriptors are left for files.

    Without this limit, many connections could use up the descriptors, and a log directory whose files cannot be opened
    counts as failed.
    """
    return descriptor_limit // (2 * _DESCRIPTORS_PER_CONNECTION * listener_count)


class Listeners:
    """The listeners of one role of a node: bound first, started when the role can serve."""

    def __init__(
        self,
        settings: Settings,
        addresses: Sequence[ListenerAddress],
        environment: Environment,
        rates: ConnectionRates,
        protection: Protection,
    ) -> None:
        self._settings = settings
        self._rates = rates
        self._protection = protection
        self._addresses = addresses
        self._environment = environment
        self._bound: list[tuple[ListenerAddress, Listener]] = []

    async def bind(self, layers: BrokerLayers, handle: Handler) -> None:
        """Bind the ports. Connections are accepted only after `start`."""
        self._configure_rates(layers)
        for address in self._addresses:
            limits = self._limits(address, layers)
            listener = Listener(
                address.host,
                address.port,
                handle,
                settings=limits,
                network=self._environment.network,
                rates=self._rates,
                guard=self._protection.guard(address.name),
            )
            self._bound.append((address, listener))
            await listener.bind()

    async def start(self) -> None:
        for _, listener in self._bound:
            await listener.start()

    def bound(self) -> Iterable[Listener]:
        return (listener for _, listener in self._bound)

    def configure(self, layers: BrokerLayers) -> None:
        self._configure_rates(layers)
        for address, listener in self._bound:
            listener.configure(self._limits(address, layers))

    def _configure_rates(self, layers: BrokerLayers) -> None:
        key = "max.connection.creation.rate"
        own = {each.name: layers.listener_value(each.name, key) for each in self._addresses}
        rates = {name: rate if isinstance(rate, int) else UNLIMITED_RATE for name, rate in own.items()}
        self._rates.configure(layers.integer(key), rates)

    async def close(self) -> None:
        for _, listener in self._bound:
            await listener.close()

    @property
    def address(self) -> str:
        """The advertised address of the first listener."""
        return self._text(self.advertised()[0])

    def address_with(self, protocol: SecurityProtocol) -> str | None:
        """Return the advertised address of the first listener with a security protocol; None if there is none."""
        security = self._settings.security
        fitting = (each for each in self.advertised() if security[each.name].protocol is protocol)
        return next(map(self._text, fitting), None)

    @staticmethod
    def _text(advertised: ListenerAddress) -> str:
        host = f"[{advertised.host}]" if ":" in advertised.host else advertised.host
        return f"{host}:{advertised.port}"

    def advertised(self) -> list[ListenerAddress]:
        """Return the addresses of the listeners in metadata responses.

        Each is the configured one, else the bound address, with this host's name if the listener is bound to all
        interfaces.
        """
        return [self._advertised(*pair) for pair in self._bound]

    def endpoints(self) -> tuple[BrokerEndpoint, ...]:
        """Return the advertised addresses with their security protocols, for the registration."""
        return tuple(
            BrokerEndpoint(each.name, each.host, each.port, self._settings.security[each.name].protocol)
            for each in self.advertised()
        )

    def _advertised(self, address: ListenerAddress, listener: Listener) -> ListenerAddress:
        advertised = self._settings.advertised.get(address.name)
        if advertised is not None:
            return advertised
        host = socket.gethostname() if address.listens_everywhere else address.host
        return ListenerAddress(address.name, host, listener.bound_port)

    def _limits(self, address: ListenerAddress, layers: BrokerLayers) -> ListenerSettings:
        descriptors = self._environment.descriptor_limit
        count = len(self._settings.listeners) + len(self._settings.controller_listeners)
        affordable = None if descriptors is None else affordable_connections(descriptors, count)
        return listener_settings(address.name, layers, connections_max=affordable)
