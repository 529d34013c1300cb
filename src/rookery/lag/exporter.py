"""Lags under the metric names of kafka_exporter and kafka-lag-exporter, which public dashboards query. Pure.

Partitions without a commit have no samples: no number would be true.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rookery.base.types import TopicName
from rookery.lag.lags import GroupLag, LagReport, ObservedLag

Labels = Mapping[str, str]


class ExporterSample(NamedTuple):
    """One line of an exposition. All of these metrics are gauges."""

    name: str
    labels: Labels
    value: float


def exporter_samples(report: LagReport, *, cluster_name: str = "") -> Iterator[ExporterSample]:
    """Yield the samples of a report. `cluster_name` is a label of kafka-lag-exporter's metrics."""
    for group in report.groups:
        yield from _kafka_exporter(group)
        yield from _lag_exporter(group, cluster_name)
    for tp, span in sorted(report.spans.items()):
        labels = {"cluster_name": cluster_name, "topic": tp.topic, "partition": str(tp.partition)}
        yield ExporterSample("kafka_partition_earliest_offset", labels, span.start)
        yield ExporterSample("kafka_partition_latest_offset", labels, span.end)


def _kafka_exporter(group: GroupLag) -> Iterator[ExporterSample]:
    name = {"consumergroup": group.group_id}
    yield ExporterSample("kafka_consumergroup_members", name, group.group.member_count)
    offset_sums: dict[TopicName, int] = {}
    for each in _known(group):
        topic, partition = each.partition
        labels = {**name, "topic": topic, "partition": str(partition)}
        if each.committed is not None:
            yield ExporterSample("kafka_consumergroup_current_offset", labels, each.committed)
            offset_sums[topic] = offset_sums.get(topic, 0) + each.committed
        if each.lag is not None:
            yield ExporterSample("kafka_consumergroup_lag", labels, each.lag)
    for topic, offset_sum in offset_sums.items():
        yield ExporterSample("kafka_consumergroup_current_offset_sum", {**name, "topic": topic}, offset_sum)
    for topic, lag_sum in _lag_sums(group).items():
        yield ExporterSample("kafka_consumergroup_lag_sum", {**name, "topic": topic}, lag_sum)


def _lag_exporter(group: GroupLag, cluster_name: str) -> Iterator[ExporterSample]:
    name = {"cluster_name": cluster_name, "group": group.group_id}
    known = _known(group)
    for each in known:
        labels = {**name, **_owned_partition(each)}
        if each.committed is not None:
            yield ExporterSample("kafka_consumergroup_group_offset", labels, each.committed)
        if each.lag is not None:
            yield ExporterSample("kafka_consumergroup_group_lag", labels, each.lag)
        if each.lag_s is not None:
            yield ExporterSample("kafka_consumergroup_group_lag_seconds", labels, each.lag_s)
    for topic, lag_sum in _lag_sums(group).items():
        yield ExporterSample("kafka_consumergroup_group_topic_sum_lag", {**name, "topic": topic}, lag_sum)
    lags = [each.lag for each in known if each.lag is not None]
    seconds = [each.lag_s for each in known if each.lag_s is not None]
    if lags:
        yield ExporterSample("kafka_consumergroup_group_max_lag", name, max(lags))
        yield ExporterSample("kafka_consumergroup_group_sum_lag", name, sum(lags))
    if seconds:
        yield ExporterSample("kafka_consumergroup_group_max_lag_seconds", name, max(seconds))


def _known(group: GroupLag) -> list[ObservedLag]:
    return [each for each in group.partitions if each.committed is not None]


def _lag_sums(group: GroupLag) -> dict[TopicName, int]:
    sums: dict[TopicName, int] = {}
    for each in group.partitions:
        if each.lag is not None:
            sums[each.partition.topic] = sums.get(each.partition.topic, 0) + each.lag
    return sums


def _owned_partition(each: ObservedLag) -> Labels:
    owner = each.sample.owner
    return {
        "topic": each.partition.topic,
        "partition": str(each.partition.partition),
        "member_host": "" if owner is None else owner.host,
        "consumer_id": "" if owner is None else owner.member_id,
        "client_id": "" if owner is None else owner.client_id,
    }
