import msgspec
import pytest

from rookery.registry.entities import Metadata, RegisterSchemaRequest, Rule, Schema, SchemaReference


def test_a_request_with_everything() -> None:
    text = (
        b'{"version":1,"id":2,"schemaType":"JSON","references":[{"name":"n","subject":"s","version":3}],'
        b'"metadata":{"tags":{"a":["b"]}},"ruleSet":{"domainRules":[{"name":"r","onSuccess":"NONE"}]},'
        b'"schema":"{}","unknown":[]}'
    )
    request = msgspec.json.decode(text, type=RegisterSchemaRequest)
    assert (request.version, request.id, request.schema_type, request.schema) == (1, 2, "JSON", "{}")
    assert request.references == (SchemaReference(name="n", subject="s", version=3),)
    assert request.metadata == Metadata(tags={"a": ("b",)})
    assert request.rule_set is not None
    assert request.rule_set.domain_rules == (Rule(name="r", on_success="NONE"),)


def test_a_request_with_nothing() -> None:
    nulls = b'{"version":null,"id":null,"schemaType":null,"references":null,"metadata":null,"schema":null}'
    assert msgspec.json.decode(nulls, type=RegisterSchemaRequest) == RegisterSchemaRequest()
    assert msgspec.json.decode(b"{}", type=RegisterSchemaRequest) == RegisterSchemaRequest()


@pytest.mark.parametrize("text", [b'{"id":2147483648}', b'{"version":-2147483649}', b'{"schema":5}', b"[]", b"null"])
def test_invalid_requests(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=RegisterSchemaRequest)


def test_empty_fields_are_omitted() -> None:
    reference = SchemaReference(name="n", subject="t", version=1)
    full = Schema(subject="s", version=1, id=2, schema_type="JSON", references=(reference,), schema="{}")
    assert msgspec.json.encode(full) == (
        b'{"subject":"s","version":1,"id":2,"schemaType":"JSON",'
        b'"references":[{"name":"n","subject":"t","version":1}],"schema":"{}"}'
    )
    assert msgspec.json.encode(Rule(name="r")) == b'{"name":"r","disabled":false}'


def test_metadata_is_sorted() -> None:
    given = Metadata(tags={"b": ("y", "x", "y"), "a": ()}, properties={"b": "1", "a": "2"}, sensitive=("q", "p"))
    assert msgspec.json.encode(given.sorted()) == (
        b'{"tags":{"a":[],"b":["x","y"]},"properties":{"a":"2","b":"1"},"sensitive":["p","q"]}'
    )
    assert Metadata(tags={}, properties={}, sensitive=()).sorted() == Metadata()
