"""Java's consumer and tools with groups of the new protocol, and Kafka's dump tool with the group records."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.java_tools import run_tool
from tests.conformance.test_consumer_protocol import SETTINGS, Group
from tests.support.broker import BrokerProcess, start_broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start_broker(tmp_path_factory.mktemp("groups") / "data", *SETTINGS) as started:
        yield started


def fill(bootstrap: str, topic: str, count: int = 20) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for index in range(count):
        producer.produce(topic, b"value-%d" % index, partition=index % 4)
    assert producer.flush(30) == 0


def consume(bootstrap: str, group: str, count: int, *arguments: str) -> list[str]:
    output = run_tool(
        "console-consumer",
        *("--bootstrap-server", bootstrap, "--group", group, "--from-beginning", "--max-messages", str(count)),
        *("--timeout-ms", "30000", "--command-property", "group.protocol=consumer", *arguments),
    )
    assert f"Processed a total of {count} messages" in output
    return sorted(line for line in output.splitlines() if line.startswith("value-"))


def groups(bootstrap: str, *arguments: str) -> str:
    return run_tool("consumer-groups", "--bootstrap-server", bootstrap, *arguments)


def test_the_console_consumer_reads_and_commits(broker: BrokerProcess, topic: str) -> None:
    fill(broker.address, topic)
    group = f"java-{uuid.uuid4().hex[:8]}"
    values = consume(broker.address, group, 20, "--topic", topic)
    assert values == sorted(f"value-{index}" for index in range(20))
    described = groups(broker.address, "--describe", "--group", group, "--offsets")
    lags = re.findall(rf"{topic}\s+\d+\s+(?:\d+\s+)?(\d+)\s+(\d+)\s+(\d+)", described)
    assert lags == [("5", "5", "0")] * 4, described


def test_a_pattern_is_matched_by_the_broker(broker: BrokerProcess, topic: str) -> None:
    fill(broker.address, topic)
    group = f"java-{uuid.uuid4().hex[:8]}"
    assert len(consume(broker.address, group, 20, "--include", f"{topic[:-3]}.*")) == 20


def test_tools_show_a_group_at_work(broker: BrokerProcess, topic: str) -> None:
    group = Group(broker.address, topic)
    group.create_topic(topic, 4)
    group.join(client_id="someone")
    group.join(client_id="someone")
    group.wait_for_sizes(2, 2)
    try:
        state = groups(broker.address, "--describe", "--group", group.name, "--state")
        assert re.search(r"uniform\s+Stable\s+.*2", state), state
        members = groups(broker.address, "--describe", "--group", group.name, "--members", "--verbose")
        assert len(re.findall("someone", members)) == 2, members
        listed = groups(broker.address, "--list", "--type", "consumer", "--state", "stable")
        assert group.name in listed
        assert group.name not in groups(broker.address, "--list", "--type", "classic")
    finally:
        group.close()


def test_kafkas_dump_tool_reads_the_records(tmp_path: Path, topic: str) -> None:
    with start_broker(tmp_path / "data", *SETTINGS, "offsets.topic.num.partitions=1") as broker:
        group = Group(broker.address, topic)
        group.create_topic(topic, 4)
        group.join(f"^{topic}.*", group_instance_id="one")
        group.wait_for_sizes(4)
        group.join(protocol="classic", heartbeat_interval_ms="200")
        group.wait_for_sizes(2, 2)
        group.close()
    log = next((tmp_path / "data").rglob("__consumer_offsets-0/00000000000000000000.log"))
    dumped = run_tool("dump-log", "--files", str(log), "--offsets-decoder")
    for number in (3, 4, 5, 6, 7, 8, 16):
        assert f'key: {{"type":"{number}"' in dumped, dumped
    assert '"subscribedTopicRegex":"(^' in dumped
    assert '"classicMemberMetadata":{"sessionTimeoutMs"' in dumped
    assert "malformed" not in dumped.lower()
    assert "error" not in dumped.lower()
