"""From configuration to a listener's limits."""

from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.net.listener import ListenerSettings

# One for the socket, one for the duplicate that `sendfile` goes by.
_DESCRIPTORS_PER_CONNECTION = 2


def listener_settings(name: str, layers: BrokerLayers, *, connections_max: int | None = None) -> ListenerSettings:
    """`connections_max` holds even where `max.connections` allows more."""
    configured = layers.integer("max.connections")
    return ListenerSettings(
        name=name,
        socket_request_max_bytes=layers.integer("socket.request.max.bytes"),
        socket_send_buffer_bytes=layers.integer("socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=layers.integer("socket.receive.buffer.bytes"),
        socket_listen_backlog_size=layers.integer("socket.listen.backlog.size"),
        max_connections=configured if connections_max is None else min(configured, connections_max),
        max_connections_per_ip=layers.integer("max.connections.per.ip"),
        max_connections_per_ip_overrides=_limits_by_address(layers.text("max.connections.per.ip.overrides") or ""),
        connections_max_idle_ms=layers.integer("connections.max.idle.ms"),
    )


def affordable_connections(descriptor_limit: int, listener_count: int) -> int:
    """Half of the descriptors is left to files: a disk that cannot open one counts as failed."""
    return descriptor_limit // (2 * _DESCRIPTORS_PER_CONNECTION * listener_count)


def _limits_by_address(text: str) -> dict[str, int]:
    """`127.0.0.1:10,[::1]:5`"""
    limits = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        address, _, count = item.rpartition(":")
        if not address or not count.isdigit():
            raise ConfigError(f"max.connections.per.ip.overrides: expected address:count, got {item!r}")
        limits[address.strip("[]")] = int(count)
    return limits
