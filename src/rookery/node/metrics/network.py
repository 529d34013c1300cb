"""Metrics of listeners and their connections. The tag `networkProcessor` is always 0: there is one event loop."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from rookery.net.listener import Listener
from rookery.node.metrics.logins import LoginCounts
from rookery.telemetry import names
from rookery.telemetry.measurements import Definition, Family, Tags, Value

_PROCESSOR: Final = ("networkProcessor", "0")


def listener_families(listeners: Iterable[Listener], logins: LoginCounts) -> Iterator[Family]:
    found = list(listeners)
    points: dict[Definition, list[tuple[Tags, Value]]] = {}
    for listener in found:
        tags = (("listener", listener.name), _PROCESSOR)
        counts = listener.counts()
        for definition, value in (
            (names.CONNECTIONS, listener.connection_count),
            (names.CONNECTIONS_MADE, counts.made),
            (names.CONNECTIONS_CLOSED, counts.closed),
            (names.INCOMING_BYTES, counts.bytes_received),
            (names.OUTGOING_BYTES, counts.bytes_sent),
            (names.LOGINS, logins.succeeded[listener.name]),
            (names.FAILED_LOGINS, logins.failed[listener.name]),
        ):
            points.setdefault(definition, []).append((tags, value))
    for definition, values in points.items():
        yield Family(definition, values)
    yield Family(names.CLIENT_SOFTWARE, list(_software(found)))


def _software(listeners: Iterable[Listener]) -> Iterator[tuple[Tags, Value]]:
    for listener in listeners:
        infos = (connection.info for connection in listener.connections)
        counts = Counter((info.client_software_name, info.client_software_version) for info in infos)
        for (software, version), count in counts.items():
            tags = (
                ("clientSoftwareName", software),
                ("clientSoftwareVersion", version),
                ("listener", listener.name),
                _PROCESSOR,
            )
            yield tags, count
