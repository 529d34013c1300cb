from collections.abc import Callable

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
def test_what_is_no_schema(case: Invalid, parse: Callable[[str], object]) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        parse(case.text)
    assert case.message in str(caught.value)


@pytest.mark.parametrize(("type_", "valid", "invalid"), DEFAULTS)
def test_a_default_must_fit_in_a_new_schema(type_: str, valid: str, invalid: str) -> None:
    text = f'{{"type":"record","name":"A","fields":[{{"name":"f","type":{type_},"default":%s}}]}}'
    assert parse(text % valid).canonical
    assert parse_registered(text % invalid).canonical == text % invalid
    with pytest.raises(InvalidSchemaError, match="Invalid default for field f: "):
        parse(text % invalid)


def test_a_default_of_a_union_is_of_its_first_branch() -> None:
    with pytest.raises(InvalidSchemaError, match=r'Invalid default for field f: 1 not a \["null","int"\]'):
        parse_shape(one(["null", "int"], default=1))


def test_a_record_is_no_default_inside_of_itself() -> None:
    with pytest.raises(InvalidSchemaError, match="Invalid default"):
        parse_shape(one("R", default={}))


def test_names_beyond_ascii_are_for_old_schemas() -> None:
    text = text_of(record("Größe", field("Länge", enum("Maß", "ä"))))
    assert parse_registered(text).name == "Größe"
    with pytest.raises(InvalidSchemaError, match="Illegal character in: Größe"):
        parse(text)


def test_deep_nesting_is_refused() -> None:
    for depth in (200, 1_000, 100_000):
        with pytest.raises(InvalidSchemaError):
            parse('{"type":"array","items":' * depth + '"int"' + "}" * depth)


def test_nesting_that_people_write_is_not() -> None:
    shape: object = "int"
    for depth in range(30):
        shape = record(f"R{depth}", field("f", ["null", array(shape)]))
    assert parse_shape(parse_shape(shape).normalized().raw).canonical == parse_shape(shape).canonical


def test_large_schemas() -> None:
    symbols = [f"S{number}" for number in range(10_000)]
    fields = [field(f"f{number}", fixed(f"F{number}", 1)) for number in range(2_000)]
    assert len(parse_shape(record("R", *fields, field("e", enum("E", *symbols)))).raw["fields"]) == 2_001
