"""`rookery dlq` against a running broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.base.clock import SystemClock
from rookery.base.types import TopicPartition
from rookery.cli import dlq
from rookery.cli.commands import app
from rookery.cli.dlq_tables import preview
from rookery.client.sync import Consumer, Producer
from rookery.dead_letters.plan import MAX_ATTEMPTS
from rookery.dead_letters.standard import ATTEMPT, Failure, Origin, headers_of
from rookery.serdes import RegistryClient, Schema
from rookery.testing.embedded import EmbeddedBroker
from tests.support.waiting import eventually

NOW_MS = SystemClock().now_ms()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(schema_registry=True) as running:
        yield running


def rookery(broker: EmbeddedBroker, *arguments: str, exit_code: int = 0) -> Result:
    environment = {"ROOKERY_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    result = CliRunner(env=environment).invoke(app, ["dlq", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic whose records 0 to 3 failed (record 0 twice), and one dead letter without headers."""
    name: str = request.node.originalname.removeprefix("test_")
    broker.create_topic(name)
    broker.create_topic(f"{name}.dlq")
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for offset, error in ((0, "KeyError"), (0, "KeyError"), (1, "a.b.DataError"), (2, "KeyError"), (3, "KeyError")):
            origin = Origin(name, 0, offset, NOW_MS + offset)
            why = Failure(origin, error, f"bad {offset}", "TRANSFORMATION", "billing", attempt=offset or 1)
            value = b"\x00\x00\x00\x00\x07\xff" if offset == 3 else b'{"n": %d}' % offset
            producer.send(f"{name}.dlq", value, key=b"k", headers=[("own", b"x"), *headers_of(why)])
        producer.send(f"{name}.dlq", b"no headers")
        producer.flush()
    return name


def returned(broker: EmbeddedBroker, topic: str) -> list[Any]:
    with Consumer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as consumer:
        return list(consumer.read_arrow(topic).to_pylist())


def test_list_counts_failed_records_once(broker: EmbeddedBroker, topic: str) -> None:
    (found,) = json.loads(rookery(broker, "list", f"{topic}.dlq", "--json").stdout)
    assert found.pop("newest_ms") >= NOW_MS
    errors = {"KeyError": 3, "": 1, "a.b.DataError": 1}
    assert found == {"topic": f"{topic}.dlq", "failed": 5, "waiting": 5, "letters": 6, "errors": errors}
    rookery(broker, "redrive", f"{topic}.dlq", "--error", "DataError", "--yes")
    (row,) = [line for line in rookery(broker, "list").stdout.splitlines() if line.startswith(f"{topic}.dlq ")]
    assert row.split()[1:4] == ["5", "4", "6"]
    assert row.endswith("KeyError 3, unknown 1, DataError 1")
    assert "missing.dlq" in rookery(broker, "list", "missing.dlq", exit_code=1).stderr


def test_show_prints_origins_and_errors(broker: EmbeddedBroker, topic: str) -> None:
    lines = rookery(broker, "show", f"{topic}.dlq").stdout.splitlines()
    assert len(lines) == 7
    assert lines[0].split() == ["AT", "FAILED", "ORIGIN", "STAGE", "ERROR", "TRIED", "PIPELINE", "KEY", "VALUE"]
    (line,) = [line for line in lines if line.startswith("0:2 ")]
    assert f"{topic}-0:1  TRANSFORMATION  DataError: bad 1" in line
    assert line.endswith('billing   k    {"n": 1}')
    assert [line for line in lines if line.endswith("schema 7: ff")]
    assert len(rookery(broker, "show", f"{topic}.dlq", "--limit", "2").stdout.splitlines()) == 3


def test_show_filters_and_prints_json(broker: EmbeddedBroker, topic: str) -> None:
    def shown(*arguments: str) -> list[dict[str, Any]]:
        lines = rookery(broker, "show", f"{topic}.dlq", "--json", *arguments).stdout.splitlines()
        return [json.loads(line) for line in lines]

    (found,) = shown("--error", "DataError")
    assert found["origin"] == {"topic": topic, "partition": 0, "offset": 1, "timestamp_ms": NOW_MS + 1}
    assert (found["error_class"], found["message"], found["value"]) == ("a.b.DataError", "bad 1", '{"n": 1}')
    assert (found["stage"], found["pipeline"], found["attempt"]) == ("TRANSFORMATION", "billing", 1)
    assert found["headers"][0] == {"name": "own", "value": "x"}
    assert [row["offset"] for row in shown("--offset", "0:1-2", "--offset", "0:5")] == [1, 2, 5]
    assert len(shown("--stage", "transformation", "--pipeline", "billing", "--origin", topic)) == 5
    assert shown("--origin", "elsewhere") == []
    assert shown("--until", str(NOW_MS - 60_000)) == []
    assert len(shown("--since", "2001-01-01T00:00Z")) == 6
    assert "neither" in rookery(broker, "show", f"{topic}.dlq", "--offset", "5", exit_code=2).stderr


def test_a_dead_letter_without_an_origin_needs_a_topic(broker: EmbeddedBroker) -> None:
    broker.create_topic("sums")
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        why = Failure(None, "PostgresError", "too long", "TASK_PUT", "billing")
        producer.send("sums.dlq", b'{"n": 1}', headers=headers_of(why))
        producer.flush()
    line = rookery(broker, "show", "sums.dlq", "--stage", "task_put").stdout.splitlines()[1]
    assert line.split()[-9:] == ["TASK_PUT", "PostgresError:", "too", "long", "1", "billing", "-", '{"n":', "1}"]
    (found,) = rookery(broker, "show", "sums.dlq", "--json").stdout.splitlines()
    assert (json.loads(found)["origin"], json.loads(found)["message"]) == (None, "too long")
    assert "no origin in its headers" in rookery(broker, "redrive", "sums.dlq", "--dry-run").stdout
    rookery(broker, "redrive", "sums.dlq", "--to", "sums", "--yes")
    assert [row["value"] for row in returned(broker, "sums")] == [b'{"n": 1}']


def test_show_decodes_values_with_registered_schemas(broker: EmbeddedBroker) -> None:
    name, servers = "decoded", {"bootstrap.servers": broker.bootstrap_servers}
    schemas = [
        Schema('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'),
        Schema('{"type": "object"}', "JSON"),
        Schema('syntax = "proto3"; message M { int32 n = 1; }', "PROTOBUF"),
    ]
    with RegistryClient(broker.schema_registry_url) as registry:
        numbers = [registry.register(f"{name}-{index}", schema) for index, schema in enumerate(schemas)]
    data = [b"\x0e", b'{"n": 7}', b"\x00\x08\x07"]
    framed = [b"\x00" + number.to_bytes(4) + rest for number, rest in zip(numbers, data, strict=True)]
    with Producer[bytes, bytes](servers) as producer:
        for value in [*framed, framed[0][:5], b"\x00\x00\x00\x27\x0fx", b"text"]:
            producer.send(f"{name}.dlq", value, key=framed[0])
        producer.flush()
    arguments = ["show", f"{name}.dlq", "--registry", broker.schema_registry_url]
    shown = rookery(broker, *arguments).stdout.splitlines()[1:]
    assert [line.split('{"n": 7}', 1)[1].strip() for line in shown[2:]] == [
        '{"n": 7}',
        "schema 1:",
        "schema 9999: 78",
        "text",
    ]
    assert [line.count('{"n": 7}') for line in shown] == [2, 2, 2, 1, 1, 1]
    first = json.loads(rookery(broker, *arguments, "--json").stdout.splitlines()[0])
    assert (first["key_decoded"], first["value_decoded"]) == ('{"n": 7}', '{"n": 7}')
    # Without a reachable registry, values are shown undecoded.
    unreachable = rookery(broker, "show", f"{name}.dlq", "--registry", "http://127.0.0.1:1").stdout
    assert "schema 1: 0e" in unreachable


def test_redrive_previews_and_then_sends(broker: EmbeddedBroker, topic: str) -> None:
    planned = json.loads(rookery(broker, "redrive", f"{topic}.dlq", "--dry-run", "--json").stdout)
    left_out = {"duplicate": 1, "too_often": 1, "no_origin": 1}
    assert planned == {"executed": False, "sent": {topic: 3}, "left_out": left_out}
    assert returned(broker, topic) == []
    assert "--yes" in rookery(broker, "redrive", f"{topic}.dlq", exit_code=1).stderr
    # The dead letter without headers cannot be sent.
    text = rookery(broker, "redrive", f"{topic}.dlq", "--yes", exit_code=1).stdout
    assert f"sent            3  to {topic}" in text
    rows = returned(broker, topic)
    assert [row["value"] for row in rows] == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']
    assert [(header["key"], header["value"]) for header in rows[2]["headers"]] == [("own", b"x"), (ATTEMPT, b"3")]
    again = json.loads(rookery(broker, "redrive", f"{topic}.dlq", "--yes", "--json", exit_code=1).stdout)
    assert again["sent"] == {}
    # With nothing to send, no confirmation is needed.
    assert "left out" in rookery(broker, "redrive", f"{topic}.dlq", exit_code=1).stdout
    assert len(returned(broker, topic)) == 3


def test_redrive_to_another_topic(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(f"{topic}-repaired")
    arguments = ["redrive", f"{topic}.dlq", "--to", f"{topic}-repaired", "--max-attempts", "9", "--yes"]
    rookery(broker, *arguments)
    assert len(returned(broker, f"{topic}-repaired")) == 5
    refused = rookery(broker, "redrive", f"{topic}.dlq", "--to", f"{topic}.dlq", exit_code=2)
    assert "dead-letter topic itself" in refused.stderr


def test_skipped_records_fail_the_command(broker: EmbeddedBroker, topic: str) -> None:
    arguments = ["redrive", f"{topic}.dlq", "--json", "--offset", "0:0"]
    failed = rookery(broker, *arguments, "--to", "nope", "--yes", exit_code=1)
    assert json.loads(failed.stdout) == {"executed": True, "sent": {}, "left_out": {"no_topic": 1, "not_selected": 5}}
    rookery(broker, *arguments, "--to", "nope", "--dry-run")
    rookery(broker, *arguments, "--yes")


def test_redrive_with_the_current_time(broker: EmbeddedBroker) -> None:
    broker.create_topic("brief", config={"retention.ms": "60000"})
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        why = Failure(Origin("brief", 0, 0, NOW_MS - 3_600_000), "E", "m", "s")
        producer.send("brief.dlq", b"old", headers=headers_of(why))
        producer.flush()
    assert "older than the retention of its topic" in rookery(broker, "redrive", "brief.dlq", "--dry-run").stdout
    rookery(broker, "redrive", "brief.dlq", "--yes", exit_code=1)
    rookery(broker, "redrive", "brief.dlq", "--yes", "--now")
    assert [row["value"] for row in returned(broker, "brief")] == [b"old"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_redrive_is_continued_by_the_next(broker: EmbeddedBroker, stop: signal.Signals) -> None:
    name, count = f"stopped-{stop.name.lower()}", 6000
    broker.create_topic(name)
    config = {"bootstrap.servers": broker.bootstrap_servers}
    with Producer[bytes, bytes](config) as producer:
        for number in range(count):
            why = Failure(Origin(name, 0, number, NOW_MS), "E", "m", "s")
            producer.send(f"{name}.dlq", b"%d" % number, headers=headers_of(why))
        producer.flush()
    arguments = ["dlq", "redrive", f"{name}.dlq", "--yes", "-b", broker.bootstrap_servers]
    running = subprocess.Popen([sys.executable, "-m", "rookery.cli.main", *arguments], stdout=subprocess.DEVNULL)
    tp = TopicPartition(name, 0)
    with Consumer[bytes, bytes]({**config, "isolation.level": "read_committed"}) as consumer:
        eventually(lambda: consumer.end_offsets([tp])[tp] > 0, "the redrive sends")
    running.send_signal(stop)
    assert running.wait(30) in (0, 130, -signal.SIGKILL)
    rookery(broker, "redrive", f"{name}.dlq", "--yes")
    with Consumer[bytes, bytes]({**config, "isolation.level": "read_committed"}) as consumer:
        returned = consumer.read_arrow(name).column("value").to_pylist()
    assert sorted(map(int, returned)) == list(range(count))


def test_the_default_of_max_attempts_is_that_of_the_plan() -> None:
    assert dlq._MAX_ATTEMPTS == MAX_ATTEMPTS


def test_previews_are_short_and_printable() -> None:
    assert preview(None) is None
    assert preview(b"") == ""
    assert preview(b"a\x1b[2J\nb") == "a [2J b"
    assert preview("ä".encode() * 100) == "ä" * 47 + "…"
    assert preview(b"\xff\xfe") == "fffe"
    assert preview(b"\x00\x00\x00\x01\x00abc") == "schema 256: 616263"
