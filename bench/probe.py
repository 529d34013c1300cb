"""Requests over a plain socket that check whether a broker serves.

A client library would add its connection set-up, retries and back-offs to the measured time; these frames do not.
"""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bench.model import Broker

POLL_INTERVAL_S = 0.005
READY_TIMEOUT_S = 180.0
_CONNECT_TIMEOUT_S = 10.0

_API_VERSIONS, _METADATA, _LIST_OFFSETS = 18, 3, 2
_METADATA_VERSION = 1
_LIST_OFFSETS_VERSION = 1
_LATEST = -1
_CLIENT_ID = b"bench"

T = TypeVar("T")


class NotReadyError(Exception):
    """The broker responded, but is not ready yet."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The part of a Metadata response that is needed here."""

    brokers: int
    # The number of partitions of each topic that have a leader and no error.
    led_partitions: dict[str, int]
    partitions: dict[str, int]


class Probe:
    """One connection, one request at a time."""

    def __init__(self, port: int, *, timeout_s: float = _CONNECT_TIMEOUT_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def api_versions(self) -> int:
        """Return the number of APIs that the broker serves."""
        body = self._request(_API_VERSIONS, 0, b"")
        error, count = struct.unpack_from(">hi", body)
        if error:
            raise NotReadyError(f"ApiVersions: error {error}")
        return int(count)

    def metadata(self, topics: list[str] | None = None) -> Topology:
        """Request the metadata of the named topics, or of all."""
        if topics is None:
            request = struct.pack(">i", -1)
        else:
            request = struct.pack(">i", len(topics)) + b"".join(_string(topic) for topic in topics)
        return _read_topology(_Reader(self._request(_METADATA, _METADATA_VERSION, request)))

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the partition's high watermark, with ListOffsets."""
        request = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">iiq", 1, partition, _LATEST)
        reader = _Reader(self._request(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, request))
        reader.array_length()
        reader.string()
        reader.array_length()
        _, error, _, offset = reader.unpack(">ihqq")
        if error:
            raise NotReadyError(f"ListOffsets: error {error}")
        return offset

    def _request(self, api_key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        size_bytes, correlation_id = struct.unpack(">ii", self._receive(8))
        if correlation_id != self._correlation_id:
            raise ConnectionError(f"the response has the id {correlation_id} instead of {self._correlation_id}")
        return self._receive(size_bytes - 4)

    def _receive(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            chunk = self._socket.recv(size_bytes - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)


class NotServingError(Exception):
    """The broker ended, or did not become ready in time."""


def await_broker(broker: Broker, check: Callable[[Probe], T], *, timeout_s: float = READY_TIMEOUT_S) -> T:
    """Wait like `await_ready`, but only while the broker's process runs."""
    return await_ready(broker.port, check, timeout_s=timeout_s, is_running=broker.is_running)


def await_ready(
    port: int,
    check: Callable[[Probe], T],
    *,
    timeout_s: float = READY_TIMEOUT_S,
    is_running: Callable[[], bool] = lambda: True,
) -> T:
    """Call `check` with a new connection every 5 ms until it does not raise; returns its result."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with Probe(port) as probe:
                return check(probe)
        except (OSError, NotReadyError) as error:
            if not is_running():
                raise NotServingError("the broker ended instead of serving") from error
            if time.monotonic() > deadline:
                raise NotServingError(f"port {port} did not serve within {timeout_s:.0f} s: {error!r}") from error
        time.sleep(POLL_INTERVAL_S)


def serves(probe: Probe) -> None:
    """Check that ApiVersions and Metadata succeed, and that the broker is in the cluster that it describes."""
    probe.api_versions()
    if not probe.metadata([]).brokers:
        raise NotReadyError("no broker in the cluster yet")


def serves_partitions(expected: dict[str, int], *, missing_max: int = 0) -> Callable[[Probe], int]:
    """Return a check that the expected partitions have leaders; it returns how many have none, up to `missing_max`."""

    def check(probe: Probe) -> int:
        # First a cheap request: repeated large responses would slow down the start that is measured.
        serves(probe)
        topology = probe.metadata()
        led = {topic: topology.led_partitions.get(topic, 0) for topic in expected}
        missing = sum(expected.values()) - sum(led.values())
        if missing > missing_max:
            raise NotReadyError(f"{sum(led.values())} of {sum(expected.values())} partitions have a leader")
        return missing

    return check


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return values

    def array_length(self) -> int:
        return self.unpack(">i")[0]

    def string(self) -> str:
        length = self.unpack(">h")[0]
        start = self._position
        self._position += max(0, length)
        return self._data[start : self._position].decode()

    def skip_integers(self) -> None:
        # Two statements: in one, `position` would be evaluated before the length is read.
        length = self.array_length()
        self._position += 4 * length


def _read_topology(reader: _Reader) -> Topology:
    """Metadata v1."""
    brokers = reader.array_length()
    for _ in range(brokers):
        reader.unpack(">i")
        reader.string()
        reader.unpack(">i")
        reader.string()
    reader.unpack(">i")
    partitions: dict[str, int] = {}
    led: dict[str, int] = {}
    for _ in range(reader.array_length()):
        reader.unpack(">h")
        topic = reader.string()
        reader.unpack(">b")
        partitions[topic] = reader.array_length()
        led[topic] = sum(_reads_led_partition(reader) for _ in range(partitions[topic]))
    return Topology(brokers, led, partitions)


def _reads_led_partition(reader: _Reader) -> bool:
    error, _, leader = reader.unpack(">hii")
    reader.skip_integers()
    reader.skip_integers()
    return error == 0 and leader >= 0
