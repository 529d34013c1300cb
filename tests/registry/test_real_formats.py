"""The registry with the real formats. The formats themselves have their own tests."""

import pytest

from rookery.registry import commands, queries
from rookery.registry.entities import Metadata
from rookery.registry.records import SchemaValue, schema_record
from tests.registry.harness import Harness, raises_code, schema

CUSTOMER = (
    '{"type": "record", "namespace": "shop", "name": "Customer", "fields": ['
    '{"type": "string", "name": "name"}, {"name": "faxNumber", "type": ["null", "string"], "default": null}]}'
)
WITH_EMAIL = CUSTOMER.replace("faxNumber", "email")
WITH_MUST = CUSTOMER.replace('"faxNumber", "type": ["null", "string"], "default": null', '"email", "type": "string"')


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_avro_is_stored_in_canonical_form(harness: Harness) -> None:
    harness.register("s", CUSTOMER)
    text = queries.get_version(harness.state, "s", "1").schema
    assert text.startswith(
        '{"type":"record","name":"Customer","namespace":"shop","fields":[{"name":"name","type":"string"}'
    )
    assert harness.register("t", text) == 1
    assert harness.register("s", text) == 1


def test_avro_evolves(harness: Harness) -> None:
    harness.register("s", CUSTOMER)
    assert harness.register("s", WITH_EMAIL) == 2
    with raises_code(409, "READER_FIELD_MISSING_DEFAULT_VALUE"):
        harness.register("s", WITH_MUST.replace("email", "phone"))
    answer = queries.test_compatibility(
        harness.state, "s", schema(WITH_MUST), version="1", normalize=False, verbose=True
    )
    assert not answer.is_compatible
    assert answer.messages is not None
    assert "{oldSchemaVersion: 1}" in answer.messages


def test_avro_refers_to_other_subjects(harness: Harness) -> None:
    harness.register("customer", CUSTOMER)
    order = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"by","type":"shop.Customer"}]}'
    with raises_code(42201, "Invalid schema of type AVRO, details: "):
        harness.register("order", order)
    assert harness.register("order", order, ("shop.Customer", "customer", -1)) == 2
    resolved = queries.get_version(harness.state, "order", "latest", format="resolved").schema
    assert '"faxNumber"' in resolved
    # With all definitions in its text it is the same schema.
    assert harness.register("order", resolved) == 2


def test_json_schema(harness: Harness) -> None:
    text = '{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}'
    assert harness.register("s", text, schema_type="JSON") == 1
    assert queries.get_by_id(harness.state, 1).schema_type == "JSON"
    with raises_code(409, "TYPE_CHANGED"):
        harness.register("s", text.replace('"string"', '"integer"'), schema_type="JSON")
    with raises_code(42201):
        harness.register("t", "{", schema_type="JSON")


def test_protobuf(harness: Harness) -> None:
    text = 'syntax = "proto3";\nmessage A { string b = 1; }'
    assert harness.register("s", text, schema_type="PROTOBUF") == 1
    assert queries.look_up(harness.state, "s", schema(text, schema_type="PROTOBUF")).id == 1
    importing = 'syntax = "proto3";\nimport "a.proto";\nmessage C { A a = 1; }'
    assert harness.register("t", importing, ("a.proto", "s", 1), schema_type="PROTOBUF") == 2
    assert queries.referenced_by(harness.state, "s", "1") == [2]
    with raises_code(42201):
        harness.register("u", importing, schema_type="PROTOBUF")


def test_normal_forms_of_avro(harness: Harness) -> None:
    spaced = CUSTOMER.replace('"namespace": "shop", "name": "Customer"', '"name": "shop.Customer"')
    harness.register("s", CUSTOMER)
    found = queries.look_up(harness.state, "s", schema(spaced), normalize=True)
    assert found.version == 1
    assert commands.register(harness.state, "s", schema(spaced), normalize=True).records == ()


def test_a_version_that_another_registry_accepted_can_have_successors(harness: Harness) -> None:
    """Its default does not match its type, which is rejected in new schemas."""
    fields = '{"name":"a","type":"int","default":null}'
    text = '{"type":"record","name":"R","fields":[%s]}'
    with raises_code(42201, "Invalid default"):
        harness.register("s", text % fields)
    harness.state.replay(*schema_record(SchemaValue(subject="s", version=1, id=7, schema=text % fields)))
    fields += ',{"name":"b","type":"int","default":0}'
    harness.register("s", text % fields.replace("null", "1"))
    assert harness.versions("s") == [1, 2]


def test_a_producer_can_use_a_schema_that_another_registry_accepted(harness: Harness) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":null}]}'
    harness.state.replay(*schema_record(SchemaValue(subject="s", version=1, id=7, schema=text)))
    assert harness.register("s", text) == 7
    assert queries.look_up(harness.state, "s", schema(text)).id == 7
    assert harness.log == []


def test_spaces_that_another_registry_kept(harness: Harness) -> None:
    harness.state.replay(*schema_record(SchemaValue(subject="s", version=1, id=7, schema=CUSTOMER)))
    assert harness.register("s", CUSTOMER) == 7
    assert harness.log == []


RESERVING = Metadata(properties={"confluent:reserved": "name, gone"})


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("AVRO", CUSTOMER),
        ("JSON", '{"properties":{"name":{},"other":{}}}'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage A { string other = 1; }\nmessage B { string name = 1; }'),
    ],
)
def test_reserved_names_of_fields(harness: Harness, schema_type: str, text: str) -> None:
    conflict = "[The new schema has field that conflicts with the reserved field name., {validateFields: 'true', "
    harness.register("s", text, schema_type=schema_type, metadata=RESERVING)
    harness.configure(None, validate_fields=True, compatibility_level="NONE")
    with raises_code(409, conflict + "compatibility: 'NONE'}]"):
        harness.register("t", text, schema_type=schema_type, metadata=RESERVING)
    renamed = text.replace("name", "title", 1) if schema_type == "JSON" else text.replace("string name", "string title")
    renamed = renamed.replace('"name": "name"', '"name": "title"')
    assert harness.register("t", renamed, schema_type=schema_type, metadata=RESERVING) == 2
    # The names stay reserved.
    fewer = Metadata(properties={"confluent:reserved": "gone"})
    answer = queries.test_compatibility(
        harness.state,
        "t",
        schema(renamed, schema_type=schema_type, metadata=fewer),
        version=None,
        normalize=False,
        verbose=True,
    )
    assert answer.messages == (
        "The new schema has reserved field name removed from its metadata which is present in the old schema's "
        "metadata.",
        "{validateFields: 'true', compatibility: 'NONE'}",
    )
