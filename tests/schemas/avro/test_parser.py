from collections.abc import Callable
from typing import Any

import pytest

from rookery.schemas.avro import parse, parse_registered
from rookery.schemas.interface import InvalidSchemaError
from tests.schemas.avro.parsing_cases import CANONICAL, DEFAULTS, INVALID, Canonical, Invalid
from tests.schemas.avro.shapes import array, enum, field, fixed, one, parse_shape, record, text_of


@pytest.mark.parametrize("case", CANONICAL, ids=lambda case: case.rule)
def test_canonical_text(case: Canonical) -> None:
    schema = parse(case.text)
    assert schema.canonical == case.canonical
    assert parse(schema.canonical).canonical == case.canonical


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case.rule)
@pytest.mark.parametrize("parse", [parse, parse_registered])
def test_invalid_schemas(case: Invalid, parse: Callable[[str], object]) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        parse(case.text)
    assert case.message in str(caught.value)


@pytest.mark.parametrize(("type_", "valid", "invalid"), DEFAULTS)
def test_a_default_must_match_its_type_in_a_new_schema(type_: str, valid: str, invalid: str) -> None:
    text = f'{{"type":"record","name":"A","fields":[{{"name":"f","type":{type_},"default":%s}}]}}'
    assert parse(text % valid).canonical
    assert parse_registered(text % invalid).canonical == text % invalid
    with pytest.raises(InvalidSchemaError, match="Invalid default for field f: "):
        parse(text % invalid)


def test_a_default_of_a_union_matches_the_first_branch() -> None:
    with pytest.raises(InvalidSchemaError, match=r'Invalid default for field f: 1 not a \["null","int"\]'):
        parse_shape(one(["null", "int"], default=1))


def test_a_record_cannot_be_a_default_inside_itself() -> None:
    with pytest.raises(InvalidSchemaError, match="Invalid default"):
        parse_shape(one("R", default={}))


def test_names_beyond_ascii_are_valid_in_registered_schemas_only() -> None:
    text = text_of(record("Größe", field("Länge", enum("Maß", "ä"))))
    assert parse_registered(text).name == "Größe"
    with pytest.raises(InvalidSchemaError, match="Illegal character in: Größe"):
        parse(text)


def test_deep_nesting_is_rejected() -> None:
    for depth in (200, 1_000, 100_000):
        with pytest.raises(InvalidSchemaError):
            parse('{"type":"array","items":' * depth + '"int"' + "}" * depth)


def test_deep_nesting_of_attributes_and_defaults_is_rejected() -> None:
    for depth in (200, 900):
        nested = "[" * depth + "]" * depth
        with pytest.raises(InvalidSchemaError, match="nested too deeply"):
            parse(f'{{"type":"int","x":{nested}}}')
    tree = record("Tree", field("children", array("Tree")))
    default: dict[str, Any] = {"children": []}
    for _ in range(90):
        default = {"children": [default]}
    schema = parse_shape(record("Root", field("tree", tree, default=default)))
    assert parse(schema.normalized().canonical).canonical == schema.canonical


def test_references_may_not_make_a_schema_too_deep() -> None:
    chain = [record(f"R{number}", field("next", f"R{number - 1}" if number else "int")) for number in range(1_000)]
    text = text_of(record("Root", field("last", "R999")))
    one_by_one = {f"r{number}": text_of(each) for number, each in enumerate(chain)}
    for resolved in (one_by_one, {"all": text_of(chain)}):
        with pytest.raises(InvalidSchemaError, match="nested too deeply"):
            parse(text, resolved)
    assert parse(text, {"all": text_of([*chain[:3], record("R999")])}).canonical


def test_a_wrong_default_of_a_type_at_the_end_of_a_long_chain() -> None:
    chain = [record(f"R{number}", field("next", f"R{number - 1}" if number else "int")) for number in range(1_000)]
    with pytest.raises(InvalidSchemaError):
        parse_shape([*chain, record("Root", field("last", "R999", default=1))])


def test_defaults_of_defaults() -> None:
    """Each default contains two of the previous one."""
    types = [
        field(f"f{number}", record(f"R{number}", *(field(name, f"R{number - 1}", default={}) for name in "ab")))
        for number in range(1, 60)
    ]
    assert parse_shape(record("Root", field("f0", record("R0")), *types)).name == "Root"


def test_many_defaults_of_a_record_with_many_fields() -> None:
    many = record("Many", *(field(f"f{number}", "int", default=0) for number in range(5_000)))
    schema = record("Root", field("first", many), field("list", array("Many"), default=[{}] * 20_000))
    assert parse_shape(schema).name == "Root"


@pytest.mark.parametrize(
    "text", ["/*" * 500_000, '"' + '\\"' * 500_000, "/*/" * 300_000], ids=["comment", "text", "slash"]
)
def test_many_unterminated_strings_and_comments(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(text)


def test_definitions_that_are_repeated_after_references() -> None:
    """Each type contains all earlier ones: comparing whole definitions would take exponential time."""
    types = [
        record(f"R{number}", *(field(f"f{other}", f"R{other}") for other in range(number))) for number in range(80)
    ]
    assert parse(text_of(types), {"all": text_of(types)})
    with pytest.raises(InvalidSchemaError, match="Can't redefine: R79"):
        parse(text_of([*types[:-1], record("R79", field("f0", "R1"))]), {"all": text_of(types)})


def test_usual_nesting_is_accepted() -> None:
    shape: object = "int"
    for depth in range(30):
        shape = record(f"R{depth}", field("f", ["null", array(shape)]))
    assert parse_shape(parse_shape(shape).normalized().raw).canonical == parse_shape(shape).canonical


def test_large_schemas() -> None:
    symbols = [f"S{number}" for number in range(10_000)]
    fields = [field(f"f{number}", fixed(f"F{number}", 1)) for number in range(2_000)]
    assert len(parse_shape(record("R", *fields, field("e", enum("E", *symbols)))).raw["fields"]) == 2_001


@pytest.mark.parametrize("type_", ["float", "double"])
def test_a_default_beyond_the_range_of_floats(type_: str) -> None:
    text = text_of(one(type_, default=10**400))
    with pytest.raises(InvalidSchemaError, match="Invalid default for field f"):
        parse(text)
    assert '"default":"Infinity"' in parse_registered(text).normalized().canonical
