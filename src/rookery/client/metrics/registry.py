"""Registries of metrics: each metric is a name and a function that returns its value at a given time.

A `Registry` belongs to one subject: a client, a topic, a node, a partition. Subjects that come and go, such as topics,
have their own registries in a `Family`, which removes idle ones. Reading copies the dictionaries that it iterates over:
the thread of a Prometheus server may read while the client runs.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, Protocol, TypeVar

from rookery.client.metrics.names import MetricName, metric_name
from rookery.telemetry.sensors import Sensor

# As in Kafka, a topic or node without events for this long is removed.
IDLE_S = 3600.0


class Registry:
    """The metrics of one group with the same tags."""

    __slots__ = ("_group", "_measures", "_tags")

    def __init__(self, group: str, tags: Mapping[str, str]) -> None:
        self._group = group
        self._tags = dict(tags)
        self._measures: dict[MetricName, Callable[[float], float]] = {}

    def add(self, name: str, measure: Callable[[float], float]) -> None:
        key = metric_name(name, self._group, **self._tags)
        assert key not in self._measures, key
        self._measures[key] = measure

    def add_average_and_maximum(self, name: str, sensor: Sensor) -> None:
        self.add(f"{name}-avg", sensor.average)
        self.add(f"{name}-max", sensor.maximum)

    def add_meter(self, name: str, sensor: Sensor) -> None:
        """Add the rate and the total of the values."""
        self.add(f"{name}-rate", sensor.rate)
        self.add(f"{name}-total", lambda _: sensor.total)

    def add_counter(self, name: str, sensor: Sensor) -> None:
        """Add the rate and the total of the events."""
        self.add(f"{name}-rate", sensor.count_rate)
        self.add(f"{name}-total", lambda _: float(sensor.count))

    def read(self, now_s: float) -> dict[MetricName, float]:
        return {name: measure(now_s) for name, measure in list(self._measures.items())}


class Member(Protocol):
    """One subject of a family."""

    registry: Registry

    def last_s(self) -> float:
        """Return the time of its last event."""
        ...


_Key = TypeVar("_Key", bound=Hashable)
_Member = TypeVar("_Member", bound=Member)


class Family(Generic[_Key, _Member]):
    """The metrics of topics, nodes or partitions, created at their first use."""

    __slots__ = ("_make", "_members")

    def __init__(self, make: Callable[[_Key, float], _Member]) -> None:
        """`make` creates a member from its key and the current time."""
        self._make = make
        self._members: dict[_Key, _Member] = {}

    def get(self, key: _Key, now_s: float) -> _Member:
        member = self._members.get(key)
        if member is None:
            self._forget_idle(now_s)
            member = self._members[key] = self._make(key, now_s)
        return member

    def forget(self, key: _Key) -> None:
        self._members.pop(key, None)

    def read(self, now_s: float) -> dict[MetricName, float]:
        result: dict[MetricName, float] = {}
        for member in list(self._members.values()):
            result |= member.registry.read(now_s)
        return result

    def _forget_idle(self, now_s: float) -> None:
        for key, member in list(self._members.items()):
            if now_s - member.last_s() >= IDLE_S:
                del self._members[key]
