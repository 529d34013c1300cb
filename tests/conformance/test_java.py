"""Apache Kafka's tools with the broker: topics, records, configs, offsets, log directories."""

import json
import re
from pathlib import Path

import pytest

from tests.conformance.clients import Confluent
from tests.conformance.java_tools import run_tool
from tests.conformance.samples import CODECS, make_samples

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def topics(bootstrap: str, *arguments: str, fails: bool = False) -> str:
    return run_tool("topics", "--bootstrap-server", bootstrap, *arguments, fails=fails)


def console_consume(bootstrap: str, topic: str, count: int, *arguments: str, offset: str = "earliest") -> list[str]:
    output = run_tool(
        "console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", offset),
        *("--max-messages", str(count), "--timeout-ms", "30000", *arguments),
    )
    assert f"Processed a total of {count} messages" in output
    return output.splitlines()[:count]


def test_topics(bootstrap: str, topic: str) -> None:
    created = topics(bootstrap, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=600000")
    assert f"Created topic {topic}." in created
    assert topic in topics(bootstrap, "--list").split()
    described = topics(bootstrap, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention.ms=600000", described)
    topics(bootstrap, "--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in topics(bootstrap, "--describe", "--topic", topic)
    assert "already exists" in topics(bootstrap, "--create", "--topic", topic, fails=True)
    topics(bootstrap, "--delete", "--topic", topic)
    assert topic not in topics(bootstrap, "--list").split()


def test_topic_describe_filters(bootstrap: str, topic: str) -> None:
    """The lists of unhealthy partitions must be empty on a healthy broker."""
    topics(bootstrap, "--create", "--topic", topic)
    for question in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert "Topic:" not in topics(bootstrap, "--describe", question)


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_java_read_by_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"key-{index}\tvalue-{index}" for index in range(100)]
    run_tool(
        "console-producer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true"),
        text="\n".join(lines) + "\n",
    )
    read = Confluent().consume(bootstrap, topic, 100)
    assert [(sample.key or b"") + b"\t" + (sample.value or b"") for sample in read] == [line.encode() for line in lines]
    assert console_consume(bootstrap, topic, 100, "--formatter-property", "print.key=true") == lines


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_librdkafka_read_by_java(bootstrap: str, topic: str, codec: str) -> None:
    samples = make_samples(100)
    Confluent().produce(bootstrap, topic, samples, codec=codec)
    printed = ("key", "timestamp", "offset", "headers")
    arguments = [word for name in printed for word in ("--formatter-property", f"print.{name}=true")]
    lines = console_consume(bootstrap, topic, 100, *arguments)
    for offset, (line, sample) in enumerate(zip(lines, samples, strict=True)):
        headers = ",".join(f"{name}:{value.decode()}" for name, value in sample.headers) or "NO_HEADERS"
        key = "null" if sample.key is None else sample.key.decode()
        value = (sample.value or b"").decode()
        assert line == f"CreateTime:{sample.timestamp_ms}\tOffset:{offset}\t{headers}\t{key}\t{value}"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_recompressed_by_the_broker_read_by_java(bootstrap: str, topic: str, codec: str) -> None:
    """Java's readers, which are the strictest, must accept batches that the broker compresses."""
    topics(bootstrap, "--create", "--topic", topic, "--config", f"compression.type={codec}")
    samples = make_samples(100)
    Confluent().produce(bootstrap, topic, samples)
    assert console_consume(bootstrap, topic, 100) == [(sample.value or b"").decode() for sample in samples]


def test_consume_from_an_offset_and_from_the_end(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, make_samples(30))
    lines = console_consume(bootstrap, topic, 3, "--formatter-property", "print.offset=true", offset="20")
    assert [line.split("\t")[0] for line in lines] == ["Offset:20", "Offset:21", "Offset:22"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_perf_test(bootstrap: str, topic: str, acks: str) -> None:
    topics(bootstrap, "--create", "--topic", topic, "--partitions", "3")
    output = run_tool(
        "producer-perf-test",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1", "--command-property", f"acks={acks}"),
        *("--command-property", f"enable.idempotence={'true' if acks == 'all' else 'false'}"),
    )
    assert "20000 records sent" in output
    offsets = run_tool("get-offsets", "--bootstrap-server", bootstrap, "--topic", topic).split()
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == 20_000


def test_verifiable_producer(bootstrap: str, topic: str) -> None:
    """It prints one line for each acknowledged record."""
    output = run_tool(
        "verifiable-producer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "500", "--acks", "-1"),
    )
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    sent = [int(event["value"]) for event in events if event["name"] == "producer_send_success"]
    assert sorted(sent) == list(range(500))
    read = Confluent().consume(bootstrap, topic, 500)
    assert sorted(int(sample.value or b"") for sample in read) == list(range(500))


def test_get_offsets(bootstrap: str, topic: str) -> None:
    samples = make_samples(40)
    Confluent().produce(bootstrap, topic, samples)
    expected = {"earliest": 0, "latest": 40, "max-timestamp": 39, str(samples[12].timestamp_ms): 12}
    for time, offset in expected.items():
        output = run_tool("get-offsets", "--bootstrap-server", bootstrap, "--topic", topic, "--time", time)
        assert output.split() == [f"{topic}:0:{offset}"], time


def test_configs_of_topics(bootstrap: str, topic: str) -> None:
    topics(bootstrap, "--create", "--topic", topic)
    entity = ("--bootstrap-server", bootstrap, "--entity-type", "topics", "--entity-name", topic)
    run_tool("configs", *entity, "--alter", "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    described = run_tool("configs", *entity, "--describe")
    assert "retention.ms=60000" in described
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=60000" in described
    run_tool("configs", *entity, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in run_tool("configs", *entity, "--describe")
    assert "segment.bytes=1073741824" in run_tool("configs", *entity, "--describe", "--all")
    run_tool("configs", *entity, "--alter", "--add-config", "retention.ms=soon", fails=True)
    run_tool("configs", *entity, "--alter", "--add-config", "no.such.key=1", fails=True)


def test_configs_of_the_broker(bootstrap: str) -> None:
    cluster_wide = ("--bootstrap-server", bootstrap, "--entity-type", "brokers", "--entity-default")
    try:
        run_tool("configs", *cluster_wide, "--alter", "--add-config", "log.retention.ms=123456789")
        described = run_tool("configs", *cluster_wide, "--describe")
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=123456789" in described
    finally:
        run_tool("configs", *cluster_wide, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in run_tool("configs", *cluster_wide, "--describe")


def test_delete_records(bootstrap: str, topic: str, tmp_path: Path) -> None:
    Confluent().produce(bootstrap, topic, make_samples(20))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 15}]}))
    output = run_tool("delete-records", "--bootstrap-server", bootstrap, "--offset-json-file", str(plan))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 15", output)
    lines = console_consume(bootstrap, topic, 5, "--formatter-property", "print.offset=true")
    assert lines[0].startswith("Offset:15")


def test_log_directories(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, make_samples(20))
    output = run_tool("log-dirs", "--bootstrap-server", bootstrap, "--describe", "--topic-list", topic)
    brokers = json.loads(output.splitlines()[-1])["brokers"]
    (directory,) = [directory for directory in brokers[0]["logDirs"] if directory["partitions"]]
    assert directory["error"] is None
    assert [entry["partition"] for entry in directory["partitions"]] == [f"{topic}-0"]
    assert directory["partitions"][0]["size"] > 2_000


def test_api_versions(bootstrap: str) -> None:
    output = run_tool("broker-api-versions", "--bootstrap-server", bootstrap)
    for line in ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]", "Metadata(3): 0 to 13"):
        assert line in output


def test_cluster_id(bootstrap: str) -> None:
    assert "Cluster ID: " in run_tool("cluster", "cluster-id", "--bootstrap-server", bootstrap)
