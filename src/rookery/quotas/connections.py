"""How fast new connections are accepted: rates of the broker, of its listeners, and of addresses.

A connection beyond the rate of the broker or its listener has to wait, and so have the later ones of that listener, as
behind Kafka's acceptor. One beyond the rate of its address is not accepted: it is closed after a delay, so that a
client that connects again at once gets no further. Each delay is at most one window.

Pure: the caller passes the time, in seconds of any monotonic clock.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.quotas.buckets import DEFAULT_WINDOWS, RateBucket
from rookery.quotas.table import BucketTable
from rookery.telemetry.sensors import Windows

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
UNLIMITED_RATE: Final = 2**31 - 1
# A connection that would have to wait longer is closed: its client would have given up before.
_WAIT_MAX_S: Final = 30.0


class Admission(NamedTuple):
    """After `delay_s`, the connection is served, or closed for `reason`."""

    delay_s: float = 0.0
    reason: str | None = None


_ADMITTED: Final = Admission()


class _Gate:
    """The rate of a listener, and the time when it accepts the next connection."""

    def __init__(self, windows: Windows) -> None:
        self.bucket = RateBucket(UNLIMITED_RATE, windows)
        self.opens_s = 0.0


class ConnectionRates:
    """The rates of new connections of one node. `protected` is a listener that has no part in the broker's rate."""

    def __init__(self, windows: Windows = DEFAULT_WINDOWS, *, protected: str | None = None) -> None:
        self._windows = windows
        self._protected = protected
        self._broker = RateBucket(UNLIMITED_RATE, windows)
        self._gates: dict[str, _Gate] = {}
        self._addresses = BucketTable(lambda limit: RateBucket(limit, windows))
        self._address_rates: dict[str, float] = {}
        self._default_rate: float | None = None
        self._is_active = False

    def configure(self, broker_rate: int, listener_rates: Mapping[str, int]) -> None:
        """Apply the rates of the broker and of its listeners."""
        self._broker.limit = broker_rate
        for name, rate in listener_rates.items():
            self._gate(name).bucket.limit = rate
        self._update()

    def configure_addresses(self, limits: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply the rates of addresses among the quotas of the image."""
        rates = {entity.ip: values.get(CONNECTION_CREATION_RATE) for entity, values in limits.items() if entity.ip}
        self._default_rate = rates.pop(DEFAULT, None)
        self._address_rates = {_normal(str(ip)): rate for ip, rate in rates.items() if rate is not None}
        self._update()

    def admit(self, listener: str, host: str, now_s: float) -> Admission:
        """Count a new connection of an address to a listener."""
        if not self._is_active:
            return _ADMITTED
        gate = self._gate(listener)
        accepted_s = max(now_s, gate.opens_s)
        throttle_ms = gate.bucket.use(1, accepted_s)
        if listener != self._protected:
            throttle_ms = max(throttle_ms, self._broker.use(1, accepted_s))
        delay_s = accepted_s - now_s + self._bounded_s(throttle_ms)
        if delay_s > _WAIT_MAX_S:
            self._take_back(listener, gate, accepted_s)
            return Admission(0.0, "max.connection.creation.rate is exceeded, and too many connections wait")
        gate.opens_s = now_s + delay_s
        return self._admit_address(listener, gate, host, delay_s, gate.opens_s)

    def _admit_address(self, listener: str, gate: _Gate, host: str, delay_s: float, now_s: float) -> Admission:
        rate = self._address_rates.get(host, self._default_rate)
        if rate is None:
            return Admission(delay_s)
        bucket = self._addresses.get(host, rate, now_s)
        throttle_ms = bucket.use(1, now_s)
        if not throttle_ms:
            return Admission(delay_s)
        bucket.note(-1, now_s)
        self._take_back(listener, gate, now_s)
        reason = f"the address has a connection_creation_rate of {rate:g}"
        return Admission(delay_s + self._bounded_s(throttle_ms), reason)

    def _take_back(self, listener: str, gate: _Gate, now_s: float) -> None:
        """Do not count a connection that is not accepted."""
        gate.bucket.note(-1, now_s)
        if listener != self._protected:
            self._broker.note(-1, now_s)

    def _bounded_s(self, throttle_ms: int) -> float:
        return min(throttle_ms / 1000, self._windows.length_s)

    def _gate(self, listener: str) -> _Gate:
        gate = self._gates.get(listener)
        if gate is None:
            gate = self._gates[listener] = _Gate(self._windows)
        return gate

    def _update(self) -> None:
        buckets = (self._broker, *(gate.bucket for gate in self._gates.values()))
        has_rates = any(bucket.limit < UNLIMITED_RATE for bucket in buckets)
        self._is_active = has_rates or bool(self._address_rates) or self._default_rate is not None


def _normal(address: str) -> str:
    """Return an address as connections have it. A name of a host stays as it is, and matches none."""
    try:
        return str(ip_address(address))
    except ValueError:
        return address
