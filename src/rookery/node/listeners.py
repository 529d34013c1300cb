"""The limits of a listener, from the configuration."""

from rookery.base.config import BrokerLayers
from rookery.base.config_broker import parse_connection_limits
from rookery.net.listener import ListenerSettings

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
