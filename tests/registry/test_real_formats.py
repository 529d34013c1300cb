"""The registry with the formats that it is made for. What they say about schemas is tested where they are."""

import pytest

from rookery.registry import decisions, queries
from rookery.registry.entities import Metadata
from rookery.registry.records import SchemaValue, schema_record
from tests.registry.stage import Stage, refused, schema

CUSTOMER = (
    '{"type": "record", "namespace": "shop", "name": "Customer", "fields": ['
    '{"type": "string", "name": "name"}, {"name": "faxNumber", "type": ["null", "string"], "default": null}]}'
)
WITH_EMAIL = CUSTOMER.replace("faxNumber", "email")
WITH_MUST = CUSTOMER.replace('"faxNumber", "type": ["null", "string"], "default": null', '"email", "type": "string"')


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_avro_is_stored_in_canonical_form(stage: Stage) -> None:
    stage.register("s", CUSTOMER)
    text = queries.get_version(stage.state, "s", "1").schema
    assert text.startswith(
        '{"type":"record","name":"Customer","namespace":"shop","fields":[{"name":"name","type":"string"}'
    )
    assert stage.register("t", text) == 1
    assert stage.register("s", text) == 1


def test_avro_evolves(stage: Stage) -> None:
    stage.register("s", CUSTOMER)
    assert stage.register("s", WITH_EMAIL) == 2
    with refused(409, "READER_FIELD_MISSING_DEFAULT_VALUE"):
        stage.register("s", WITH_MUST.replace("email", "phone"))
    answer = queries.test_compatibility(stage.state, "s", schema(WITH_MUST), version="1", normalize=False, verbose=True)
    assert not answer.is_compatible
    assert answer.messages is not None
    assert "{oldSchemaVersion: 1}" in answer.messages


def test_avro_refers_to_other_subjects(stage: Stage) -> None:
    stage.register("customer", CUSTOMER)
    order = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"by","type":"shop.Customer"}]}'
    with refused(42201, "Invalid schema of type AVRO, details: "):
        stage.register("order", order)
    assert stage.register("order", order, ("shop.Customer", "customer", -1)) == 2
    resolved = queries.get_version(stage.state, "order", "latest", format="resolved").schema
    assert '"faxNumber"' in resolved
    # With everything in its text it is the same schema.
    assert stage.register("order", resolved) == 2


def test_json_schema(stage: Stage) -> None:
    text = '{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}'
    assert stage.register("s", text, schema_type="JSON") == 1
    assert queries.get_by_id(stage.state, 1).schema_type == "JSON"
    with refused(409, "TYPE_CHANGED"):
        stage.register("s", text.replace('"string"', '"integer"'), schema_type="JSON")
    with refused(42201):
        stage.register("t", "{", schema_type="JSON")


def test_protobuf(stage: Stage) -> None:
    text = 'syntax = "proto3";\nmessage A { string b = 1; }'
    assert stage.register("s", text, schema_type="PROTOBUF") == 1
    assert queries.look_up(stage.state, "s", schema(text, schema_type="PROTOBUF")).id == 1
    importing = 'syntax = "proto3";\nimport "a.proto";\nmessage C { A a = 1; }'
    assert stage.register("t", importing, ("a.proto", "s", 1), schema_type="PROTOBUF") == 2
    assert queries.referenced_by(stage.state, "s", "1") == [2]
    with refused(42201):
        stage.register("u", importing, schema_type="PROTOBUF")


def test_normal_forms_of_avro(stage: Stage) -> None:
    spaced = CUSTOMER.replace('"namespace": "shop", "name": "Customer"', '"name": "shop.Customer"')
    stage.register("s", CUSTOMER)
    found = queries.look_up(stage.state, "s", schema(spaced), normalize=True)
    assert found.version == 1
    assert decisions.register(stage.state, "s", schema(spaced), normalize=True).records == ()


def test_a_version_that_another_registry_took_can_be_followed_on(stage: Stage) -> None:
    """With a default that does not fit, which we refuse in what is new."""
    fields = '{"name":"a","type":"int","default":null}'
    text = '{"type":"record","name":"R","fields":[%s]}'
    with refused(42201, "Invalid default"):
        stage.register("s", text % fields)
    stage.state.replay(*schema_record(SchemaValue(subject="s", version=1, id=7, schema=text % fields)))
    fields += ',{"name":"b","type":"int","default":0}'
    stage.register("s", text % fields.replace("null", "1"))
    assert stage.versions("s") == [1, 2]


def test_a_producer_goes_on_with_what_another_registry_took(stage: Stage) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":null}]}'
    stage.state.replay(*schema_record(SchemaValue(subject="s", version=1, id=7, schema=text)))
    assert stage.register("s", text) == 7
    assert queries.look_up(stage.state, "s", schema(text)).id == 7
    assert stage.log == []


def test_blanks_that_another_registry_kept(stage: Stage) -> None:
    stage.state.replay(*schema_record(SchemaValue(subject="s", version=1, id=7, schema=CUSTOMER)))
    assert stage.register("s", CUSTOMER) == 7
    assert stage.log == []


RESERVING = Metadata(properties={"confluent:reserved": "name, gone"})


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("AVRO", CUSTOMER),
        ("JSON", '{"properties":{"name":{},"other":{}}}'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage A { string other = 1; }\nmessage B { string name = 1; }'),
    ],
)
def test_reserved_names_of_fields(stage: Stage, schema_type: str, text: str) -> None:
    conflict = "[The new schema has field that conflicts with the reserved field name., {validateFields: 'true', "
    stage.register("s", text, schema_type=schema_type, metadata=RESERVING)
    stage.configure(None, validate_fields=True, compatibility_level="NONE")
    with refused(409, conflict + "compatibility: 'NONE'}]"):
        stage.register("t", text, schema_type=schema_type, metadata=RESERVING)
    renamed = text.replace("name", "title", 1) if schema_type == "JSON" else text.replace("string name", "string title")
    renamed = renamed.replace('"name": "name"', '"name": "title"')
    assert stage.register("t", renamed, schema_type=schema_type, metadata=RESERVING) == 2
    # They stay reserved.
    fewer = Metadata(properties={"confluent:reserved": "gone"})
    answer = queries.test_compatibility(
        stage.state,
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
