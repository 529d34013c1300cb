"""Parsing: invalid schemas, canonical text, references."""

from typing import Any

import msgspec
import pytest

from rookery.schemas.interface import InvalidSchemaError, ParsedSchema, Reference
from rookery.schemas.json_schema import check, parse

MODERN = '"$schema":"https://json-schema.org/draft/2020-12/schema"'


def _error_text(text: str, **resolved: str) -> str:
    with pytest.raises(InvalidSchemaError) as caught:
        parse(text, resolved)
    return str(caught.value)


def test_a_schema_implements_the_interface() -> None:
    references = (Reference("other.json", "other", 1),)
    schema: ParsedSchema = parse('{ "title": "Point", "$ref": "other.json" }', {"other.json": "{}"}, references)
    assert schema.schema_type == "JSON"
    assert schema.name == "Point"
    assert schema.references == references
    assert schema.canonical == '{"title":"Point","$ref":"other.json"}'
    assert schema.formatted("") == schema.formatted("resolved") == schema.canonical
    assert schema.raw == {"title": "Point", "$ref": "other.json"}


@pytest.mark.parametrize("text", ["true", "false", "{}", ' {"type" : "string"} '])
def test_schemas_without_a_title_have_no_name(text: str) -> None:
    schema = parse(text)
    assert schema.name is None
    assert schema.canonical == text.replace(" ", "")


def test_schemas_are_equal_by_text_and_references() -> None:
    reference = Reference("a", "b", 1)
    assert parse('{"type": "null"}') == parse('{"type":"null"}')
    assert parse('{"type":"null"}') != parse('{"type":"null"}', {}, (reference,))
    assert parse('{"type":"null"}') != parse('{"type":"string"}')


def test_the_normal_form_has_sorted_names_and_unique_references() -> None:
    first, second = Reference("z", "a", 2), Reference("y", "a", 10)
    third = Reference("x", "b", 1)
    text = '{"type":"object","properties":{"b":{"type":"null"},"a":{"enum":["z","y"]}}}'
    normal = parse(text, {}, (third, second, first, third)).normalized()
    assert normal.canonical == '{"properties":{"a":{"enum":["z","y"]},"b":{"type":"null"}},"type":"object"}'
    assert normal.references == (first, second, third)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "truncated"),
        ("{", "truncated"),
        ('{"a":1} x', "trailing characters"),
        ("null", "expected an object or boolean, found NULL"),
        ("[]", "found ARRAY"),
        ('"string"', "found STRING"),
        ("5", "found NUMBER"),
        (
            '{"type":"strin"}',
            "\"strin\" is not valid under any of the schemas listed in the 'anyOf' keyword at '#/type'",
        ),
        ('{"properties":{"a":{"type":3}}}', "at '#/properties/a/type'"),
        ('{"minLength":-1}', "-1 is less than the minimum of 0 at '#/minLength'"),
        ('{"title":5}', "at '#/title'"),
        ('{"$schema":5}', "at '#/$schema'"),
        ('{"pattern":"["}', "'[' is not a valid pattern"),
        ('{"patternProperties":{"[":{}}}', "'[' is not a valid pattern"),
        ('{"$ref":"#/definitions/a"}', "unresolved $ref '#/definitions/a'"),
        ('{"items":{"$ref":"other.json"}}', "unresolved $ref 'other.json'"),
        ('{"items":{"$ref":"http://example.com/other.json"}}', "unresolved $ref 'http://example.com/other.json'"),
        ('{"$ref":"#"}', "$ref '#' leads back to itself"),
        ('{"$ref":"#/title","title":"a"}', "expected an object or boolean, found STRING"),
        ('{"$ref":"#/examples/0","examples":[{"type":"strin"}]}', "at '#/type'"),
        ('{"$schema":"http://json-schema.org/draft-04/schema#","$ref":5}', "is not a string"),
        ('{"exclusiveMinimum":true}', "at '#/exclusiveMinimum'"),
        ("{" + MODERN + ',"items":[{}]}', "at '#/items'"),
        ('{"default":' * 2000 + "1" + "}" * 2000, "it is nested too deeply"),
        ('{"default":' * 50_000 + "1" + "}" * 50_000, "it is nested too deeply"),
        ('{"default":"\ud800"}', "surrogates not allowed"),
    ],
)
def test_invalid_schemas_are_rejected_with_a_reason(text: str, part: str) -> None:
    refusal = _error_text(text)
    assert refusal.startswith("Invalid JSON schema: ")
    assert part in refusal


@pytest.mark.parametrize(
    "text",
    [
        '{"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":true,"minimum":3}',
        '{"$schema":"http://json-schema.org/draft-06/schema","const":1}',
        '{"$schema":"https://json-schema.org/draft-07/schema#","if":true}',
        '{"$schema":"https://json-schema.org/draft/2019-09/schema","items":[{}]}',
        "{" + MODERN + ',"prefixItems":[{}]}',
        '{"$schema":"http://example.com/own","if":true}',
        '{"pattern":"(?<year>\\\\d+)\\\\p{L}"}',
        '{"pattern":"^\\\\d++$"}',
    ],
)
def test_schemas_that_the_drafts_allow(text: str) -> None:
    schema = parse(text)
    assert check(schema, schema) == []
    assert parse(schema.canonical).canonical == schema.canonical


STRING = '{"type":"string"}'


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ('{"$ref":"s.json"}', {"s.json": STRING}),
        ('{"$ref":"s.json#/definitions/s"}', {"s.json": '{"definitions":{"s":{"type":"string"}}}'}),
        ('{"$ref":"s.json#/$defs/s"}', {"s.json": '{"definitions":{"s":{"type":"string"}}}'}),
        ('{"$ref":"a.json"}', {"s.json": STRING, "a.json": '{"$ref":"s.json"}'}),
        ('{"$ref":"http://example.com/s.json"}', {"http://example.com/s.json": STRING}),
        ('{"$ref":"http://example.com/s"}', {"s.json": '{"$id":"http://example.com/s","type":"string"}'}),
        ('{"$id":"http://example.com/root.json","allOf":[{"$ref":"s.json"}]}', {"s.json": STRING}),
        (
            '{"$ref":"a.json"}',
            {"s.json": STRING, "a.json": '{"$id":"http://example.com/a.json","allOf":[{"$ref":"s.json"}]}'},
        ),
        ("{" + MODERN + ',"$ref":"s.json#here"}', {"s.json": "{" + MODERN + ',"$anchor":"here","type":"string"}'}),
        (
            "{" + MODERN + ',"$ref":"s.json"}',
            {"s.json": '{"$schema":"http://json-schema.org/draft-04/schema#","type":"string"}'},
        ),
    ],
)
def test_references_to_other_schemas(text: str, resolved: dict[str, str]) -> None:
    schema = parse(text, resolved)
    assert check(schema, parse(STRING)) == []
    assert check(schema, parse('{"type":"number"}')) != []
    validator = schema.validator()
    assert validator.is_valid("a")
    assert not validator.is_valid(1)


def test_a_referenced_schema_must_be_valid() -> None:
    assert "truncated" in _error_text('{"$ref":"a"}', a="{")
    assert "at '#/type'" in _error_text('{"$ref":"a"}', a='{"type":"strin"}')


def test_a_pattern_that_the_validator_does_not_support_raises_when_validating() -> None:
    with pytest.raises(InvalidSchemaError):
        parse('{"pattern":"^\\\\d++$"}').validator()


def test_chains_of_references_are_followed_once() -> None:
    """Each property refers to another link of the chain."""
    count = 3_000
    definitions: dict[str, Any] = {f"d{index}": {"$ref": f"#/definitions/d{index + 1}"} for index in range(count)}
    properties = {f"p{index}": {"$ref": f"#/definitions/d{index}"} for index in range(count)}
    tree = {"definitions": {**definitions, f"d{count}": {"type": "string"}}, "properties": properties}
    root = parse(msgspec.json.encode(tree).decode()).root
    assert len({id(shape) for shape in root.properties.values()}) == 1


def test_deep_nesting_is_rejected() -> None:
    for depth in (200, 900, 100_000):
        with pytest.raises(InvalidSchemaError):
            parse('{"not":' * depth + "{}" + "}" * depth)
    assert parse('{"not":' * 150 + "{}" + "}" * 150).normalized()
