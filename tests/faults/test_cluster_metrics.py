"""Metrics of three brokers while one of them is killed: counters never fall, and what is missing is seen."""

from urllib.request import Request, urlopen

from prometheus_client.openmetrics import parser

from rookery.testing import EmbeddedCluster
from tests.support.waiting import eventually

TOPIC = "orders"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
MESSAGES = "kafka_server_brokertopicmetrics_messagesin_total"
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
RECORDS = [b"x" * 100] * 200


def scrape(cluster: EmbeddedCluster, node: int) -> dict[str, float]:
    """Return the values of all metrics without labels."""
    request = Request(f"{cluster.metrics_url(node)}/metrics", headers={"Accept": "application/openmetrics-text"})
    with urlopen(request, timeout=30) as response:
        text = response.read().decode()
    families = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def total(cluster: EmbeddedCluster, name: str) -> float:
    return sum(scrape(cluster, node)[name] for node in cluster.running)


def test_a_killed_broker_is_seen_and_counters_do_not_fall() -> None:
    with EmbeddedCluster(brokers=3, metrics=True, settings={"min.insync.replicas": "1"}) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        cluster.produce(TOPIC, *RECORDS)
        for partition in range(3):
            cluster.in_sync_replicas(TOPIC, partition, at_least=3)
        assert total(cluster, MESSAGES) == len(RECORDS)
        assert total(cluster, ACTIVE) == 1
        eventually(lambda: total(cluster, UNDER_REPLICATED) == 0, "replicas are not in sync")
        kept = {node: scrape(cluster, node)[MESSAGES] for node in (1, 2)}
        cluster.kill(3)
        eventually(lambda: total(cluster, UNDER_REPLICATED) > 0, "nothing is under-replicated")
        cluster.produce(TOPIC, *RECORDS)
        eventually(lambda: total(cluster, ACTIVE) == 1, "there is no active controller")
        now = {node: scrape(cluster, node)[MESSAGES] for node in (1, 2)}
        assert all(now[node] >= kept[node] for node in kept)
        assert sum(now.values()) == sum(kept.values()) + len(RECORDS), "the killed broker's counter starts at 0 again"
        cluster.start(3)
        eventually(lambda: total(cluster, UNDER_REPLICATED) == 0, "the replicas did not come back")
        assert sum(scrape(cluster, node)["kafka_server_replicamanager_isrexpands_total"] for node in (1, 2)) > 0
        with urlopen(f"{cluster.metrics_url(3)}/readyz", timeout=30) as response:  # a URL of this test
            assert response.read() == b"ready\n"
