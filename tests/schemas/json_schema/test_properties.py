"""Properties of any schema."""

from random import Random
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.json_schema import check, parse
from rookery.schemas.json_schema.dialects import DIALECTS
from tests.schemas.json_schema.strategies import changed, make_instance, roots
from tests.schemas.json_schema.test_comparison import make

_KEYWORDS = """
    $ref $id id $schema $defs definitions $anchor $dynamicRef $recursiveRef type enum const not if then else allOf
    anyOf oneOf properties required additionalProperties patternProperties propertyNames dependencies dependentRequired
    dependentSchemas unevaluatedProperties items prefixItems additionalItems contains minContains maxItems uniqueItems
    unevaluatedItems minimum exclusiveMinimum multipleOf pattern maxLength format title default connect.type
"""
KEYWORDS = st.sampled_from(_KEYWORDS.split())
URIS = st.sampled_from(
    ["#", "#/definitions/a", "#/$defs/a", "#/properties/a", "a.json", "http://[", "urn:a", "#a", "/a"]
)
WORDS = st.sampled_from(["a", "b", "string", "object", "array", "null", "[", "^a", *(each.uri for each in DIALECTS)])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | URIS | WORDS,
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(KEYWORDS, children, max_size=4)
        | st.dictionaries(st.sampled_from("abc"), children, max_size=3)
    ),
    max_leaves=20,
)


@given(TREES | st.dictionaries(KEYWORDS, TREES, max_size=4))
def test_a_tree_is_valid_or_rejected(tree: Any) -> None:
    try:
        schema = make(tree)
    except InvalidSchemaError:
        return
    assert check(schema, schema) == []
    assert parse(schema.canonical) == schema
    assert parse(schema.canonical).canonical == schema.canonical


@given(
    st.text()
    | st.binary().map(lambda data: data.decode("latin-1"))
    | st.text(alphabet='{}[]":,tf01e.-\\u "', max_size=30)
)
def test_a_text_is_valid_or_rejected(text: str) -> None:
    try:
        schema = parse(text)
    except InvalidSchemaError:
        return
    assert parse(schema.canonical).canonical == schema.canonical


@given(roots)
def test_a_schema_is_compatible_with_itself(tree: Any) -> None:
    schema = make(tree)
    assert check(schema, schema) == []
    normal = schema.normalized()
    assert normal.normalized().canonical == normal.canonical
    assert check(normal, schema) == check(schema, normal) == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data(), st.integers(0, 1000))
def test_compatible_readers_accept_what_matches_the_writer(data: st.DataObject, seed: int) -> None:
    random = Random(seed)
    writer_tree = data.draw(roots, "writer")
    reader_tree = data.draw(changed(writer_tree), "reader")
    writer, reader = make(writer_tree), make(reader_tree)
    # A schema that excludes itself has no meaning.
    assume(not ('"not"' in writer.canonical + reader.canonical and "$ref" in writer.canonical + reader.canonical))
    assume(check(reader, writer) == [])
    takes, accepts = writer.validator(), reader.validator()
    for _ in range(100):
        instance = make_instance(random, writer_tree, writer_tree)
        if takes.is_valid(instance):
            assert accepts.is_valid(instance), msgspec.json.encode(instance)
