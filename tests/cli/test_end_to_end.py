"""The commands against a running broker, over real sockets."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from rookery.client import Consumer, Producer
from rookery.testing import EmbeddedBroker
from tests.support.broker import BrokerProcess, start_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start_broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of three partitions for one test."""
    name = request.node.originalname.removeprefix("test_")
    rookery(broker, "topics", "create", name, "--partitions", "3")
    yield name
    rookery(broker, "topics", "delete", name, "--yes", "--if-exists")


def rookery(broker: BrokerProcess, *arguments: str, stdin: str | bytes = b"", exit_code: int = 0) -> Result:
    environment = {"ROOKERY_BOOTSTRAP_SERVER": broker.address}
    result = CliRunner(env=environment).invoke(app, arguments, input=stdin)
    assert result.exit_code == exit_code, result.output
    return result


def consumed(broker: BrokerProcess, topic: str, *arguments: str) -> list[dict[str, object]]:
    result = rookery(broker, "consume", topic, "--until-end", "--json", *arguments)
    return [json.loads(line) for line in result.stdout.splitlines()]


def command(broker: BrokerProcess, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "rookery.cli.main", *arguments],
        env={**os.environ, "ROOKERY_BOOTSTRAP_SERVER": broker.address},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_topics_are_created_and_deleted(broker: BrokerProcess) -> None:
    created = rookery(broker, "topics", "create", "coming", "going", "-p", "2", "--set", "retention.ms=60000")
    assert created.stdout == "created coming\ncreated going\n"
    listed = json.loads(rookery(broker, "topics", "list", "--json").stdout)
    assert {"coming", "going"} <= {row["topic"] for row in listed}
    assert "coming" in rookery(broker, "topics", "list").stdout
    rookery(broker, "topics", "delete", "going", "--yes")
    assert "going" not in rookery(broker, "topics", "list").stdout


def test_creating_twice_fails_without_if_not_exists(broker: BrokerProcess, topic: str) -> None:
    failed = rookery(broker, "topics", "create", topic, exit_code=1)
    assert failed.stderr.startswith(f"error: {topic}: ")
    rookery(broker, "topics", "create", topic, "--if-not-exists")
    rookery(broker, "topics", "delete", "missing", "--yes", exit_code=1)
    rookery(broker, "topics", "delete", "missing", "--yes", "--if-exists")


def test_validating_creates_nothing(broker: BrokerProcess) -> None:
    rookery(broker, "topics", "create", "imagined", "--validate-only")
    rookery(broker, "topics", "describe", "imagined", exit_code=1)


def test_describe_and_alter(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, "--partition", "1", stdin="a\nb\n")
    rookery(broker, "topics", "alter", topic, "--partitions", "5", "--set", "segment.ms=777000")
    (described,) = json.loads(rookery(broker, "topics", "describe", topic, "--json").stdout)
    assert described["configs"] == {"segment.ms": "777000"}
    assert [row["latest_offset"] for row in described["partitions"]] == [0, 2, 0, 0, 0]
    rookery(broker, "topics", "alter", topic, "--delete", "segment.ms")
    text = rookery(broker, "topics", "describe", topic).stdout
    assert "configs: none set" in text
    rookery(broker, "topics", "alter", topic, "--partitions", "2", exit_code=1)
    rookery(broker, "topics", "alter", topic, "--set", "no.such.config=1", exit_code=1)


def test_keys_headers_and_tombstones_come_back(broker: BrokerProcess, topic: str) -> None:
    lines = "a=1,b=2|k1:v:1\n|k2:NULL\n|k3:\n"
    options = ["-K", ":", "--headers-separator", "|", "-Z", "NULL", "-H", "from=test"]
    rookery(broker, "produce", topic, *options, stdin=lines)
    found = {record["key"]: record for record in consumed(broker, topic, "--from", "beginning")}
    assert [found[key]["value"] for key in ("k1", "k2", "k3")] == ["v:1", None, ""]
    assert found["k1"]["headers"] == [
        {"name": "from", "value": "test"},
        {"name": "a", "value": "1"},
        {"name": "b", "value": "2"},
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(broker: BrokerProcess, topic: str, compression: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(2000))
    rookery(broker, "produce", topic, "-p", "0", "--compression", compression, stdin=lines)
    assert rookery(broker, "consume", topic, "-f", "beginning", "-e", "-p", "0").stdout == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(broker: BrokerProcess, topic: str, acks: str) -> None:
    rookery(broker, "produce", topic, "--acks", acks, "-p", "0", stdin="x\n")
    found = rookery(broker, "consume", topic, "-f", "beginning", "--count", "1")
    assert found.stdout == "x\n"


def test_bytes_that_are_not_text(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"\xff\xfe\n\x00\x01")
    rookery(broker, "produce", topic, "--file", str(source), "-p", "2", "-k", "key")
    assert rookery(broker, "consume", topic, "-f", "beginning", "-e").stdout_bytes == b"\xff\xfe\n\x00\x01\n"
    assert [record.get("value_base64") for record in consumed(broker, topic, "-f", "beginning")] == ["//4=", None]


def test_starting_points(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    first = consumed(broker, topic, "--from", "beginning")
    assert [record["offset"] for record in first] == list(range(10))
    assert [record["offset"] for record in consumed(broker, topic, "--from", "-3")] == [7, 8, 9]
    assert [record["offset"] for record in consumed(broker, topic, "-f", "6", "-p", "0", "-n", "2")] == [6, 7]
    assert consumed(broker, topic, "--from", "end") == []
    since = f"timestamp:{first[0]['timestamp_ms']}"
    assert len(consumed(broker, topic, "--from", since)) == 10
    assert consumed(broker, topic, "--from", "2100-01-01T00:00Z") == []


def test_formats(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, "-p", "1", "-K", "=", stdin="k=v\n")
    text = rookery(broker, "consume", topic, "-f", "beginning", "-e", "--format", r"%t-%p@%o\t%k/%v/%h\n").stdout
    assert text == f"{topic}-1@0\tk/v/\n"


def test_missing_topics_and_partitions_are_reported(broker: BrokerProcess, topic: str) -> None:
    assert "no such topic" in rookery(broker, "consume", "missing", exit_code=1).stderr
    assert "and no partition 9" in rookery(broker, "consume", topic, "-p", "9", exit_code=1).stderr
    assert "only 3 partitions" in rookery(broker, "produce", topic, "-p", "9", stdin="x\n", exit_code=1).stderr
    rookery(broker, "produce", "bad name", stdin="x\n", exit_code=1)


def test_an_invalid_line_is_reported_and_the_lines_before_it_are_written(broker: BrokerProcess, topic: str) -> None:
    failed = rookery(broker, "produce", topic, "-K", ":", stdin="a:1\nb:2\nbroken\nc:3\n", exit_code=1)
    assert "line 3: there is no key separator ':'" in failed.stderr
    assert {record["key"] for record in consumed(broker, topic, "-f", "beginning")} == {"a", "b"}


def test_a_record_that_is_too_large_fails_the_command(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "configs", "alter", "topic", topic, "--set", "max.message.bytes=1000")
    failed = rookery(broker, "produce", topic, stdin="x" * 5000 + "\n", exit_code=1)
    assert "MESSAGE_TOO_LARGE" in failed.stderr


def test_configs_of_topics(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "configs", "alter", "topic", topic, "--set", "retention.ms=5000", "--set", "cleanup.policy=compact")
    changed = json.loads(rookery(broker, "configs", "describe", "topic", topic, "--changed", "--json").stdout)
    own = {entry["name"]: entry["value"] for entry in changed if entry["source"] == "DYNAMIC_TOPIC_CONFIG"}
    assert own == {"retention.ms": "5000", "cleanup.policy": "compact"}
    rookery(broker, "configs", "alter", "topic", topic, "--delete", "retention.ms", "--validate-only")
    assert "5000" in rookery(broker, "configs", "describe", "topic", topic).stdout
    rookery(broker, "configs", "alter", "topic", topic, "--delete", "retention.ms")
    assert "604800000" in rookery(broker, "configs", "describe", "topic", topic).stdout
    rookery(broker, "configs", "alter", "topic", topic, "--set", "retention.ms=soon", exit_code=1)
    rookery(broker, "configs", "describe", "topic", "missing", exit_code=1)
    documented = json.loads(rookery(broker, "configs", "describe", "topic", topic, "--doc", "--json").stdout)
    assert all(entry["documentation"] for entry in documented)


def test_configs_of_brokers(broker: BrokerProcess) -> None:
    (node_id,) = _leaders(broker)
    rookery(broker, "configs", "alter", "broker", "default", "--set", "log.retention.ms=86400000")
    entries = json.loads(rookery(broker, "configs", "describe", "broker", str(node_id), "--json").stdout)
    found = {entry["name"]: entry for entry in entries}["log.retention.ms"]
    assert (found["value"], found["source"]) == ("86400000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    rookery(broker, "configs", "alter", "broker", "default", "--delete", "log.retention.ms")


def _leaders(broker: BrokerProcess) -> set[int]:
    rookery(broker, "topics", "create", "leaders", "--if-not-exists")
    (described,) = json.loads(rookery(broker, "topics", "describe", "leaders", "--json").stdout)
    return {row["leader"] for row in described["partitions"]}


def test_following_a_topic_until_interrupted(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, stdin="first\n")
    follower = command(broker, "consume", topic, "--from", "beginning")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"first\n"
    rookery(broker, "produce", topic, stdin="second\n")
    assert follower.stdout.readline() == b"second\n"
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=30)
    assert (follower.returncode, errors) == (0, b"")


def test_a_closed_pipe_is_no_failure(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, stdin="x" * 100_000 + "\n" + "y\n")
    follower = command(broker, "consume", topic, "--from", "beginning")
    assert follower.stdout is not None
    follower.stdout.read(10)
    follower.stdout.close()
    rookery(broker, "produce", topic, stdin="z\n")
    assert follower.wait(timeout=30) == 0
    assert follower.stderr is not None
    assert follower.stderr.read() == b""
    follower.stderr.close()


def test_lines_are_written_as_they_are_typed(broker: BrokerProcess, topic: str) -> None:
    writer = command(broker, "produce", topic, "-p", "0")
    assert writer.stdin is not None
    writer.stdin.write(b"typed\n")
    writer.stdin.flush()
    assert rookery(broker, "consume", topic, "-f", "beginning", "-n", "1").stdout == "typed\n"
    _, errors = writer.communicate(b"last", timeout=30)
    assert (writer.returncode, errors) == (0, b"")
    assert rookery(broker, "consume", topic, "-f", "beginning", "-e").stdout == "typed\nlast\n"


def test_the_brokers_files_can_be_dumped(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, "-p", "0", "-z", "lz4", stdin="a\nb\n")
    directory = broker.log_path.with_suffix("") / f"{topic}-0"
    dumped = rookery(broker, "log", "dump", str(directory), "--records", "--json").stdout
    items = [json.loads(line) for line in dumped.splitlines()]
    assert [item["value"] for item in items if item["kind"] == "record"] == ["a", "b"]
    assert "partition metadata" in {item["kind"] for item in items}


def test_a_start_that_fails_says_why(broker: BrokerProcess, tmp_path: Path) -> None:
    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        started = [sys.executable, "-m", "rookery.cli.main", "start", *arguments]
        return subprocess.run(started, capture_output=True, text=True, timeout=60, check=False)

    unknown = start("--data-dir", str(tmp_path / "a"), "--set", "no.such.key=1")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no.such.key" in unknown.stderr
    port_in_use = start("--data-dir", str(tmp_path / "b"), "--listen", broker.address)
    assert (port_in_use.returncode, port_in_use.stdout) == (1, "")
    assert broker.address.rpartition(":")[2] in port_in_use.stderr
    held = start("--data-dir", str(broker.log_path.with_suffix("")), "--listen", "127.0.0.1:0")
    assert (held.returncode, held.stdout) == (1, "")


def test_read_committed_skips_aborted_records(broker: BrokerProcess, topic: str) -> None:
    rookery(broker, "produce", topic, "-p", "0", "--transactional-id", topic, stdin="1\n2\n")
    failed = rookery(
        broker, "produce", topic, "-p", "0", "-K", ":", "--transactional-id", topic, stdin="k:3\nbroken\n", exit_code=1
    )
    assert "line 2" in failed.stderr
    assert "nothing was written" in failed.stderr
    committed = consumed(broker, topic, "--from", "beginning", "--isolation-level", "read_committed")
    assert [record["value"] for record in committed] == ["1", "2"]


def test_settings_of_the_client_are_checked(broker: BrokerProcess, topic: str) -> None:
    mistyped = rookery(broker, "produce", topic, "--set", "linger.sm=5", stdin="x\n", exit_code=2)
    assert "linger.sm" in mistyped.stderr
    assert "linger.ms" in mistyped.stderr
    impossible = ("--set", "enable.idempotence=true", "--acks", "1")
    assert "enable.idempotence" in rookery(broker, "produce", topic, *impossible, stdin="x\n", exit_code=2).stderr


@pytest.mark.parametrize("columns", [(), ("--columns",)], ids=["records", "columns"])
def test_perf_counts_records_and_bytes(broker: BrokerProcess, topic: str, columns: tuple[str, ...]) -> None:
    produced = rookery(broker, "perf", "produce", topic, "-n", "2000", "-s", "50", "--json", *columns).stdout
    result = json.loads(produced)
    assert (result["records"], result["bytes"]) == (2000, 100_000)
    assert result["records_per_second"] > 0
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["max"]
    assert len(consumed(broker, topic, "--from", "beginning")) == 2000
    result = json.loads(rookery(broker, "perf", "consume", topic, "--json", *columns).stdout)
    assert (result["records"], result["bytes"]) == (2000, 100_000)
    result = json.loads(rookery(broker, "perf", "consume", topic, "--json", "--records", "1", *columns).stdout)
    assert (result["records"], result["bytes"]) == (1, 50)
    text = rookery(broker, "perf", "consume", topic, *columns).stdout
    assert "2,000 records" in text
    assert "polls took, ms: mean" in text
    assert "█" in text


def test_perf_keeps_a_rate_and_sends_a_file(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    (tmp_path / "payload").write_text("one\ntwo\n")
    payload = ("--payload-file", str(tmp_path / "payload"))
    text = rookery(broker, "perf", "produce", topic, "-n", "100", "--rate", "1000", *payload).stdout
    assert "100 records" in text
    assert "acknowledged after, ms" in text
    values = [record["value"] for record in consumed(broker, topic, "--from", "beginning")]
    assert (values.count("one"), values.count("two")) == (50, 50)
    empty = tmp_path / "empty"
    empty.touch()
    refused = rookery(broker, "perf", "produce", topic, "--payload-file", str(empty), exit_code=1)
    assert "has no lines" in refused.stderr
    assert "cannot be combined" in rookery(broker, "perf", "produce", topic, "--columns", "-r", "1", exit_code=2).stderr


@pytest.mark.parametrize("columns", [(), ("--columns",)], ids=["records", "columns"])
def test_perf_ends_where_offsets_have_no_records(broker: BrokerProcess, topic: str, columns: tuple[str, ...]) -> None:
    """A transaction marker has an offset, but is no record."""
    rookery(broker, "produce", topic, "-p", "0", "--transactional-id", topic, stdin="one\ntwo\n")
    measured = json.loads(rookery(broker, "perf", "consume", topic, "--json", *columns).stdout)
    assert (measured["records"], measured["bytes"]) == (2, 6)


def test_perf_of_an_empty_topic_ends(broker: BrokerProcess, topic: str) -> None:
    assert json.loads(rookery(broker, "perf", "consume", topic, "--json").stdout)["records"] == 0


def test_perf_loads_column_libraries_before_the_measurement(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    send_arrow, read_arrow, assign = Producer.send_arrow, Consumer.read_arrow, Consumer.assign

    async def sending(self: Any, batch: Any, topic: Any = None) -> Any:
        calls.append(f"send {batch.num_rows}")
        return await send_arrow(self, batch, topic)

    async def reading(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append("read")
        return await read_arrow(self, *arguments, **named)

    def assigning(self: Any, partitions: Any) -> None:
        calls.append("assign")
        assign(self, partitions)

    monkeypatch.setattr(Producer, "send_arrow", sending)
    monkeypatch.setattr(Consumer, "read_arrow", reading)
    monkeypatch.setattr(Consumer, "assign", assigning)
    rookery(broker, "perf", "produce", topic, "-n", "20", "--columns")
    rookery(broker, "perf", "consume", topic, "--columns")
    assert calls == ["send 0", "send 20", "read", "assign"]


def test_perf_fails_if_any_record_did(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    """The fourth record is not sampled."""
    rookery(broker, "configs", "alter", "topic", topic, "--set", "max.message.bytes=1000")
    lines = ["x"] * 10
    lines[3] = "x" * 5000
    (tmp_path / "payload").write_text("\n".join(lines))
    payload = ("--payload-file", str(tmp_path / "payload"))
    failed = rookery(broker, "perf", "produce", topic, "-n", "10", *payload, exit_code=1)
    assert "1 of 10 records were not acknowledged" in failed.stderr


def test_a_record_that_is_too_large_for_the_producer_names_its_setting(broker: BrokerProcess, topic: str) -> None:
    small = ("--set", "max.request.size=1000")
    failed = rookery(broker, "produce", topic, *small, stdin="x" * 5000 + "\n", exit_code=1)
    assert "max.request.size is 1000" in failed.stderr
    assert "max.message.bytes" not in failed.stderr


# The commands of the guide, with the command before the pipe.
GUIDE = Path(__file__).parents[2] / "docs" / "cli.md"
GUIDE_LINES = re.findall(
    r"^(?:(\S.*) \| )?rookery ((?:produce|consume|perf) .+?)(?:  +#.*)?$", GUIDE.read_text(), re.MULTILINE
)
# Commands that would run long or forever are limited.
GUIDE_LIMITS = {"produce": (), "consume": ("--until-end",), "perf": ("--records", "100")}


@pytest.fixture(scope="module")
def guided(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create the files, topics and schemas that the guide names; return the directory of the files."""
    rookery(broker, "topics", "create", "orders", "users", "greetings", "--if-not-exists")
    rookery(broker, "perf", "produce", "orders", "--records", "20")
    directory = tmp_path_factory.mktemp("guide")
    (directory / "users.tsv").write_text("ada\tenglish\n")
    (directory / "orders.txt").write_text("one\ntwo\n")
    order = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
    (directory / "order.avsc").write_text(order)
    (directory / "orders.jsonl").write_text('{"id": 7}\n')
    with EmbeddedBroker(schema_registry=True) as registry, pytest.MonkeyPatch.context() as environment:
        registry.register_schema("orders-value", order)
        registry.register_schema("orders-key", '"string"')
        environment.setenv("ROOKERY_SCHEMA_REGISTRY", registry.schema_registry_url)
        yield directory


@pytest.mark.parametrize(("source", "line"), GUIDE_LINES, ids=[line for _, line in GUIDE_LINES])
def test_the_commands_of_the_guide_work(
    broker: BrokerProcess, guided: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: str
) -> None:
    monkeypatch.chdir(guided)
    stdin = subprocess.run(["sh", "-c", source], capture_output=True, check=True).stdout if source else b""
    arguments = shlex.split(line)
    rookery(broker, *arguments, *GUIDE_LIMITS[arguments[0]], stdin=stdin)


def test_the_guide_has_commands() -> None:
    assert len(GUIDE_LINES) > 18
