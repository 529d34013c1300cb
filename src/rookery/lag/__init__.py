"""The lag of consumer groups, in records and in seconds, as seen from outside; docs/lag.md has examples."""

from rookery.lag.evaluation import Commit, Status, evaluate, worst
from rookery.lag.exporter import ExporterSample, exporter_samples
from rookery.lag.history import LagHistory
from rookery.lag.lags import GroupLag, LagReport, ObservedLag
from rookery.lag.monitor import LagMonitor
from rookery.lag.rates import Rates
from rookery.lag.sampler import LagSampler
from rookery.lag.samples import ClusterSample, GroupSample, LogSpan, Owner, PartitionSample, Unread

__all__ = [
    "ClusterSample",
    "Commit",
    "ExporterSample",
    "GroupLag",
    "GroupSample",
    "LagHistory",
    "LagMonitor",
    "LagReport",
    "LagSampler",
    "LogSpan",
    "ObservedLag",
    "Owner",
    "PartitionSample",
    "Rates",
    "Status",
    "Unread",
    "evaluate",
    "exporter_samples",
    "worst",
]
