"""`produce` and `consume` with a registry: JSON on the command line, encoded bytes in the topic."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from rookery.testing import EmbeddedBroker

pytestmark = pytest.mark.rookery(schema_registry=True)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    ],
}
JSON_ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
PROTO_ORDER = 'syntax = "proto3"; message Order { int32 id = 1; string note = 2; } message Other { int32 x = 1; }'
SCHEMAS = {
    "avro": ("order.avsc", json.dumps(ORDER)),
    "json-schema": ("order.json", json.dumps(JSON_ORDER)),
    "protobuf": ("order.proto", PROTO_ORDER),
}


def run(broker: EmbeddedBroker, *words: str, stdin: str | None = None) -> Result:
    addresses = ["-b", broker.bootstrap_servers, "--registry", broker.schema_registry_url]
    return CliRunner().invoke(app, [*words, *addresses], input=stdin)


def produce(broker: EmbeddedBroker, line: str, *words: str) -> Result:
    return run(broker, "produce", "orders", *words, stdin=line + "\n")


def consume(broker: EmbeddedBroker, *words: str) -> str:
    done = run(broker, "consume", "orders", "--from", "beginning", "--until-end", *words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("form", SCHEMAS)
def test_each_format_is_encoded_and_decoded(rookery: EmbeddedBroker, tmp_path: Path, form: str) -> None:
    name, text = SCHEMAS[form]
    (tmp_path / name).write_text(text)
    done = produce(rookery, '{"id": 7, "note": "big"}', "--value-format", form, "--value-schema", str(tmp_path / name))
    assert done.exit_code == 0, done.output
    # The schema is registered now: auto uses its format.
    assert produce(rookery, '{"id": 8}', "--value-format", "auto").exit_code == 0
    for shown_as in (form, "auto"):
        lines = consume(rookery, "--value-format", shown_as).splitlines()
        assert [json.loads(line)["id"] for line in lines] == [7, 8]
    record = json.loads(consume(rookery, "--value-format", form, "--json").splitlines()[0])
    assert record["value"]["note"] == "big"


def test_keys_with_a_format(rookery: EmbeddedBroker) -> None:
    rookery.register_schema("orders-key", '"string"')
    done = produce(rookery, '"ada":three apples', "--key-separator", ":", "--key-format", "avro")
    assert done.exit_code == 0, done.output
    assert consume(rookery, "--key-format", "avro", "--format", "%k=%v\\n") == '"ada"=three apples\n'
    assert rookery.records("orders")[0].key == b"\0\0\0\0\x01\x06ada"


def test_confluents_serializers_agree(rookery: EmbeddedBroker) -> None:
    registry = SchemaRegistryClient({"url": rookery.schema_registry_url})
    context = SerializationContext("orders", MessageField.VALUE)
    theirs = AvroSerializer(registry, json.dumps(ORDER))({"id": 1, "note": "theirs"}, context)
    rookery.produce("orders", theirs)
    assert json.loads(consume(rookery, "--value-format", "avro")) == {"id": 1, "note": "theirs", "day": "1970-01-01"}
    ours = '{"id": 2, "note": {"string": "tagged"}, "day": "2026-03-01"}'
    assert produce(rookery, ours, "--value-format", "avro").exit_code == 0
    read = AvroDeserializer(registry)(rookery.records("orders")[1].value, context)
    assert read["note"] == "tagged"
    assert read["day"].isoformat() == "2026-03-01"


def test_auto_shows_values_without_a_schema(rookery: EmbeddedBroker) -> None:
    rookery.produce("orders", "plain", b"\0\0\0\0\x63unknown id")
    assert consume(rookery, "--value-format", "auto").splitlines()[0] == "plain"
    failed = run(rookery, "consume", "orders", "--from", "beginning", "--until-end", "--value-format", "avro")
    assert failed.exit_code == 1
    assert "orders-0 at offset 0" in failed.output


def test_a_message_of_a_protobuf_file_is_chosen(rookery: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "order.proto").write_text(PROTO_ORDER)
    schema = ["--value-schema", str(tmp_path / "order.proto")]
    assert produce(rookery, '{"x": 5}', *schema, "--value-message", "Other").exit_code == 0
    assert json.loads(consume(rookery, "--value-format", "protobuf")) == {"x": 5}
    wrong = produce(rookery, '{"x": 5}', *schema, "--value-message", "Missing")
    assert "has no message Missing" in wrong.output


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("hello", "line 1: the value is not JSON .* a text needs quotes"),
        ('{"id": "seven"}', "line 1: .*id"),
        ('{"idd": 7}', "line 1: .*Order has no field idd, only id, note, day"),
        ('{"id": 7, "day": "yesterday"}', "line 1: .*'yesterday' is not a valid date"),
    ],
)
def test_a_line_that_does_not_fit_is_reported(rookery: EmbeddedBroker, line: str, what: str) -> None:
    rookery.register_schema("orders-value", ORDER)
    rookery.create_topic("orders")
    failed = produce(rookery, line, "--value-format", "avro")
    assert failed.exit_code == 1
    assert not rookery.records("orders")
    assert re.search(what, failed.output, re.DOTALL), failed.output


def test_a_subject_without_a_schema_is_reported(rookery: EmbeddedBroker) -> None:
    failed = produce(rookery, "{}", "--value-format", "avro")
    assert failed.exit_code == 1
    assert "orders-value" in failed.output
