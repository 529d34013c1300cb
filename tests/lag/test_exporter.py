"""The names and labels that public dashboards query."""

from rookery.base.types import TopicPartition
from rookery.lag import LagHistory, Owner, Unread, exporter_samples
from tests.lag.factories import cluster, partition

NOW_MS = 1_700_000_000_000
OWNER = Owner("member-1", "client-1", "/10.0.0.1")


def lines(*, cluster_name: str = "") -> dict[str, float]:
    sample = cluster(
        NOW_MS,
        partition(10, 25, start=3, unread=Unread(10, NOW_MS - 2_500), owner=OWNER),
        partition(30, 31, tp=TopicPartition("orders", 1), unread=Unread(30, NOW_MS - 1_000)),
        partition(None, 7, tp=TopicPartition("orders", 2)),
        members=2,
    )
    report = LagHistory(60_000).add(sample)
    return {
        f"{each.name}{{{','.join(f'{name}={value}' for name, value in each.labels.items())}}}": each.value
        for each in exporter_samples(report, cluster_name=cluster_name)
    }


def test_names_of_kafka_exporter() -> None:
    found = {line: value for line, value in lines().items() if "consumergroup=" in line}
    assert found == {
        "kafka_consumergroup_members{consumergroup=billing}": 2,
        "kafka_consumergroup_current_offset{consumergroup=billing,topic=orders,partition=0}": 10,
        "kafka_consumergroup_lag{consumergroup=billing,topic=orders,partition=0}": 15,
        "kafka_consumergroup_current_offset{consumergroup=billing,topic=orders,partition=1}": 30,
        "kafka_consumergroup_lag{consumergroup=billing,topic=orders,partition=1}": 1,
        "kafka_consumergroup_current_offset_sum{consumergroup=billing,topic=orders}": 40,
        "kafka_consumergroup_lag_sum{consumergroup=billing,topic=orders}": 16,
    }


def test_names_of_kafka_lag_exporter() -> None:
    group = "cluster_name=c,group=billing"
    owned = f"{group},topic=orders,partition=0,member_host=/10.0.0.1,consumer_id=member-1,client_id=client-1"
    free = f"{group},topic=orders,partition=1,member_host=,consumer_id=,client_id="
    found = {line: value for line, value in lines(cluster_name="c").items() if "cluster_name=c" in line}
    assert found == {
        f"kafka_consumergroup_group_offset{{{owned}}}": 10,
        f"kafka_consumergroup_group_lag{{{owned}}}": 15,
        f"kafka_consumergroup_group_lag_seconds{{{owned}}}": 2.5,
        f"kafka_consumergroup_group_offset{{{free}}}": 30,
        f"kafka_consumergroup_group_lag{{{free}}}": 1,
        f"kafka_consumergroup_group_lag_seconds{{{free}}}": 1.0,
        f"kafka_consumergroup_group_topic_sum_lag{{{group},topic=orders}}": 16,
        f"kafka_consumergroup_group_max_lag{{{group}}}": 15,
        f"kafka_consumergroup_group_sum_lag{{{group}}}": 16,
        f"kafka_consumergroup_group_max_lag_seconds{{{group}}}": 2.5,
        "kafka_partition_earliest_offset{cluster_name=c,topic=orders,partition=0}": 3,
        "kafka_partition_latest_offset{cluster_name=c,topic=orders,partition=0}": 25,
        "kafka_partition_earliest_offset{cluster_name=c,topic=orders,partition=1}": 0,
        "kafka_partition_latest_offset{cluster_name=c,topic=orders,partition=1}": 31,
        "kafka_partition_earliest_offset{cluster_name=c,topic=orders,partition=2}": 0,
        "kafka_partition_latest_offset{cluster_name=c,topic=orders,partition=2}": 7,
    }
