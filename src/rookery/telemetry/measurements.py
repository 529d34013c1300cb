"""Metrics as Kafka identifies them, in a form from which every dialect of their names can be rendered.

In Kafka a metric is an attribute of an MBean: `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders`.
A `Definition` is that without the tags, with what the metric means; `telemetry.names` has all of them. A `Family` is a
definition with the measured values, one for each set of tags. Pure values.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from rookery.telemetry.histograms import Distribution


class Kind(Enum):
    """Kafka's kinds of metrics."""

    # A number that rises and falls.
    GAUGE = "gauge"
    # A number of events, bytes or the like since the start. Kafka's meters have rates as well.
    METER = "meter"
    # How values are distributed.
    HISTOGRAM = "histogram"
    # The share of time for which something was idle. Kafka measures it by a meter.
    IDLE = "idle"
    # An attribute of an MBean without a name, such as `connection-count` of `socket-server-metrics`.
    ATTRIBUTE = "attribute"
    # A metric of Rookery or of an exporter, whose name is the same in all dialects.
    PLAIN = "plain"
    PLAIN_COUNTER = "plain counter"


class Definition(NamedTuple):
    """What a metric is called and means. Without domain and type, `name` is its whole name."""

    domain: str
    type: str
    name: str
    kind: Kind
    help: str


class Idle(NamedTuple):
    """How long something was idle: in nanoseconds since the start, and as shares since the start and of late."""

    nanoseconds: float
    mean_share: float
    last_minute_share: float


Tags: TypeAlias = tuple[tuple[str, str], ...]
# A text is the state that something is in.
Value: TypeAlias = float | Distribution | Idle | str


class Family(NamedTuple):
    """The values of one metric."""

    definition: Definition
    points: Sequence[tuple[Tags, Value]]


def single(definition: Definition, value: Value, *tags: tuple[str, str]) -> Family:
    """Return the family of a metric with one value."""
    return Family(definition, [(tags, value)])
