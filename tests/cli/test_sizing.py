"""The formulas of `rookery plan`: by hand, and what holds for any workload."""

import json
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from typer.testing import CliRunner

from rookery.base.errors import ConfigError
from rookery.cli import plan_measurement
from rookery.cli.commands import app
from rookery.cli.quantities import parse_bytes, parse_network, parse_seconds
from rookery.cli.sizing import (
    REPLICAS_PER_BROKER_MAX,
    SEGMENT_BYTES,
    Sizing,
    Workload,
    network_in_bytes_s,
    network_out_bytes_s,
    size,
    storage_bytes,
)
from rookery.testing import EmbeddedBroker

MB, TB = 10**6, 10**12
WORKLOAD = Workload(
    rate_bytes_s=50 * MB, retention_s=7 * 86_400, disk_bytes=4 * TB, network_bytes_s=1250 * MB, read_by=3
)


def values(sizing: Sizing) -> dict[str, float]:
    return {line.key: line.value for line in sizing.lines}


def test_an_example_by_hand() -> None:
    """50 MB/s for a week with three replicas are 91 TB, and 33 brokers with 2.8 TB of usable disk each."""
    sizing = size(WORKLOAD)
    found = values(sizing)
    assert (found["partitions_by_producers"], found["partitions_by_consumers"]) == (5, 5)
    assert sizing.bottleneck == "storage"
    assert sizing.brokers == 33
    assert sizing.partitions == 33, "a multiple of the brokers"
    assert found["storage_bytes"] == (50 * MB * 604_800 + 33 * SEGMENT_BYTES) * 3
    assert (found["network_in_bytes_s"], found["network_out_bytes_s"]) == (150 * MB, 250 * MB)
    assert found["page_cache_bytes_per_broker"] == 50 * MB * 3 * 30 / 32
    assert sizing.min_insync_replicas == 2


@pytest.mark.parametrize(
    ("changes", "bottleneck", "brokers"),
    [
        ({"retention_s": 3600}, "replication", 3),
        ({"retention_s": 3600, "network_bytes_s": 125 * MB}, "network", 4),
        ({"retention_s": 3600, "group_size": 8000, "disk_bytes": 40 * TB}, "replicas", 8),
        ({"retention_s": 60, "replication": 1, "survives": 0}, "replication", 1),
    ],
)
def test_what_decides_about_the_brokers(changes: dict[str, Any], bottleneck: str, brokers: int) -> None:
    sizing = size(replace(WORKLOAD, **changes))
    assert (sizing.bottleneck, sizing.brokers) == (bottleneck, brokers)


WORKLOADS = st.builds(
    Workload,
    rate_bytes_s=st.floats(1, 10**10),
    retention_s=st.floats(1, 10**8),
    replication=st.integers(2, 5),
    read_by=st.integers(0, 20),
    group_size=st.integers(1, 500),
    partition_bytes_s=st.floats(10**5, 10**9),
    consumer_bytes_s=st.floats(10**5, 10**9),
    disk_bytes=st.floats(10**11, 10**14),
    network_bytes_s=st.floats(10**7, 10**11),
    headroom=st.floats(0, 0.9),
    survives=st.integers(0, 1),
)


@given(WORKLOADS)
def test_every_result_fits_its_own_limits(workload: Workload) -> None:
    try:
        sizing = size(workload)
    except ConfigError:
        # More brokers than a cluster can have.
        reject()
    brokers, partitions = sizing.brokers, sizing.partitions
    share = 1 - workload.headroom
    network = max(network_in_bytes_s(workload), network_out_bytes_s(workload))
    assert partitions % brokers == 0
    assert partitions >= max(
        workload.group_size,
        ceil(workload.rate_bytes_s / workload.partition_bytes_s),
        ceil(workload.rate_bytes_s / workload.consumer_bytes_s),
    )
    assert brokers >= workload.replication
    assert storage_bytes(workload, partitions) <= brokers * workload.disk_bytes * share * 1.000001
    assert network <= (brokers - workload.survives) * workload.network_bytes_s * share * 1.000001
    assert partitions * workload.replication <= (brokers - workload.survives) * REPLICAS_PER_BROKER_MAX
    assert all(line.reason for line in sizing.lines)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rate_bytes_s": 0}, "the rate must be larger than 0"),
        ({"retention_s": 0}, "the retention must be larger"),
        ({"headroom": 1}, "the headroom must be"),
        ({"survives": 3}, "do not survive the loss of 3"),
        ({"disk_bytes": 10**9}, "the disk of a broker is too small"),
        ({"average_bytes_s": 10**12}, "not larger than the peak"),
        ({"rate_bytes_s": 10**15}, "split it over several clusters"),
        ({"rate_bytes_s": float("nan")}, "the rate must be larger than 0"),
    ],
)
def test_bad_input_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        size(replace(WORKLOAD, **changes))


@pytest.mark.parametrize(
    ("text", "expected"), [("500GB", 5e11), ("64MiB", 64 * 1024**2), ("50MB/s", 5e7), ("1.5 kB", 1500), ("7 B", 7)]
)
def test_sizes(text: str, expected: float) -> None:
    assert parse_bytes(text, "--x") == expected


def test_bandwidths_and_durations() -> None:
    assert parse_network("10Gbit", "--x") == 1.25e9
    assert parse_network("1Gbit/s", "--x") == parse_network("125MB/s", "--x")
    assert [parse_seconds(text, "--x") for text in ("7d", "36h", "30min", "90s", "2w")] == [
        604_800,
        129_600,
        1800,
        90,
        1_209_600,
    ]


def rookery_plan(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == exit_code, result.output
    return result.output


def test_the_command_prints_a_table_and_the_command_to_run() -> None:
    output = rookery_plan("--rate", "50MB/s", "--retention", "1h", "--topic", "orders")
    assert output.splitlines()[-1] == (
        "rookery topics create orders --partitions 6 --replication-factor 3 "
        "--set retention.ms=3600000 --set min.insync.replicas=2"
    )
    assert "The number of brokers is decided by: replication" in output


def test_json_and_a_load_in_records() -> None:
    arguments = ["--records-per-second", "50000", "--record-size", "1000", "--retention", "1h", "--json"]
    found = json.loads(rookery_plan(*arguments))
    assert (found["partitions"], found["brokers"], found["bottleneck"]) == (6, 3, "replication")
    assert found["commands"][0].startswith("rookery topics create my-topic --partitions 6")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give the load"),
        (["--rate", "50"], "must be a number with a unit"),
        (["--rate", "-5MB"], "must be a number with a unit"),
        (["--rate", "50 parsecs"], "must be a number with a unit"),
        (["--rate", "5MB", "--retention", "long"], "must be a number with a unit"),
        (["--rate", "5MB", "--measure", "--partition-rate", "5MB"], "give one or the other"),
        (["--rate", "5MB", "--replication", "1", "--survive", "1"], "do not survive"),
    ],
)
def test_wrong_usage(arguments: list[str], sentence: str) -> None:
    assert sentence in " ".join(rookery_plan(*arguments, exit_code=2).replace("│", " ").split())


def test_rates_are_measured_in_a_topic_that_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_measurement, "MEASURED_BYTES", 200_000)
    with EmbeddedBroker() as broker:
        cluster = ["-b", broker.bootstrap_servers, "--json"]
        found = json.loads(rookery_plan("--rate", "1GB/s", "--retention", "1h", "-r", "1", "--measure", *cluster))
        assert all("(measured)" in line["reason"] for line in found["lines"] if line["key"].startswith("partitions_by"))
        listed = CliRunner().invoke(app, ["topics", "list", *cluster])
        assert json.loads(listed.output) == []


def test_a_measurement_that_cannot_be_made_is_a_sentence() -> None:
    with EmbeddedBroker() as broker:
        output = rookery_plan("--rate", "5MB/s", "--measure", "-b", broker.bootstrap_servers, exit_code=1)
        assert "INVALID_REPLICATION_FACTOR" in output
