"""A real Prometheus scrapes three brokers under load, while one of them is killed."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
import yaml

from rookery.testing import EmbeddedCluster
from rookery.testing.managed import reserve_port
from tests.support.dashboards import DASHBOARDS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]

DEPLOY = Path(__file__).parents[2] / "deploy"
TOPIC = "orders"
VALUES = [b"x" * 100] * 100
# Without errors, groups or changes in the last hour there is nothing to show.
MAY_BE_EMPTY = ("errors_total",)


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        with urlopen(f"{self._url}/api/v1/query?query={quote(expression)}", timeout=30) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
            return found

    def value(self, expression: str) -> float | None:
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=5):
                return True
        except OSError:
            return False


@contextmanager
def prometheus(directory: Path, targets: list[str]) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration in deploy/, but for the addresses and the intervals."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = targets
    shutil.copy(DEPLOY / "prometheus" / "alerts.yml", directory)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with reserve_port() as reserved, (directory / "log").open("wb") as log:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        command = [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
        ]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            server = Prometheus(f"http://{address}")
            eventually(server.is_ready, lambda: (directory / "log").read_text())
            yield server
        finally:
            process.terminate()
            process.wait()


def expressions() -> dict[str, str]:
    """Return the queries of our dashboard and alerts, with values for the dashboard's variables."""
    panels = json.loads((DEPLOY / "grafana" / "rookery.json").read_text())["panels"]
    found = {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "30s")
        for panel in panels
        for target in panel["targets"]
    }
    found = {title: re.sub(r"\$(cluster|instance)", ".*", expression) for title, expression in found.items()}
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    # An alert that does not fire has no result: without the comparison it has one.
    return found | {rule["alert"]: re.sub(r" (==|!=|>|<) [0-9.]+$", "", rule["expr"]) for rule in rules}


def test_promtool_accepts_the_alerts() -> None:
    subprocess.run(["promtool", "check", "rules", DEPLOY / "prometheus" / "alerts.yml"], check=True)


def test_every_query_has_data_and_counters_survive_a_kill(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3, metrics=True, settings={"min.insync.replicas": "1"}) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        targets = [urlsplit(cluster.metrics_url(node)).netloc for node in cluster.nodes]
        with prometheus(tmp_path, targets) as server:
            sent = 0

            def load() -> None:
                nonlocal sent
                cluster.produce(TOPIC, *VALUES)
                sent += len(VALUES)
                list(cluster.records(TOPIC, count=sent))

            def missing() -> dict[str, str]:
                load()
                queries = expressions() | {name: name for name in DASHBOARDS["strimzi"].split()}
                without = {title: text for title, text in queries.items() if not server.query(text)}
                return {title: text for title, text in without.items() if not text.endswith(MAY_BE_EMPTY)}

            eventually(lambda: set(missing()) <= {"Errors A"}, lambda: str(missing()), timeout_s=120)
            messages = f'sum(kafka_server_brokertopicmetrics_messagesin_total{{topic="{TOPIC}"}})'
            eventually(lambda: server.value(messages) == sent, lambda: f"{server.value(messages)} of {sent}")
            under = "sum(kafka_server_replicamanager_underreplicatedpartitions)"
            eventually(lambda: server.value(under) == 0, "replicas are not in sync")
            cluster.kill(3)
            eventually(lambda: (server.value(under) or 0) > 0, "the missing replicas are not seen", timeout_s=60)
            eventually(lambda: bool(server.query('up{job="rookery"} == 0')), "the node is not seen to be down")
            load()
            cluster.start(3)
            eventually(lambda: server.value(under) == 0, "the replicas are not back", timeout_s=60)
            # Prometheus takes a value that falls for a restart: only the node that was killed has had one.
            counter = f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{TOPIC}"}}'
            resets = server.query(f"resets({counter}[5m]) > 0")
            assert {each["metric"]["instance"] for each in resets} <= {targets[2]}
