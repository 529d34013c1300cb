"""From configuration to a listener's limits."""

from rookery.base.config import BrokerLayers
from rookery.base.config_broker import parse_connection_limits
from rookery.net.listener import ListenerSettings

# One for the socket, one for the duplicate that `sendfile` goes by.
_DESCRIPTORS_PER_CONNECTION = 2


def listener_settings(name: str, layers: BrokerLayers, *, connections_max: int | None = None) -> ListenerSettings:
    """`connections_max` holds even where `max.connections` allows more, for all listeners or for this one."""
    own = layers.listener_value(name, "max.connections")
    limits = [layers.integer("max.connections"), own, connections_max]
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
    """Half of the descriptors is left to files: a disk that cannot open one counts as failed."""
    return descriptor_limit // (2 * _DESCRIPTORS_PER_CONNECTION * listener_count)
