import pytest

from rookery.schemas.avro import parse
from tests.schemas.avro.parsing_cases import NORMAL, Canonical
from tests.schemas.avro.shapes import field, fixed, parse_shape, record


@pytest.mark.parametrize("case", NORMAL, ids=lambda case: case.rule)
def test_normal_form(case: Canonical) -> None:
    assert parse(case.text).normalized().canonical == case.canonical


def test_normalizing_does_not_change_the_schema_itself() -> None:
    text = '{"type":"record","name":"A","doc":"","fields":[{"name":"f","type":"double","default":1,"z":1,"a":1}]}'
    schema = parse(text)
    schema.normalized()
    assert schema.canonical == text


def test_a_type_without_namespace_gets_none() -> None:
    shape = record("a.R", field("f", fixed("F", 1, namespace="")))
    assert parse_shape(shape).normalized().canonical == parse_shape(shape).canonical


def test_recursive_types() -> None:
    shape = record("R", field("f", ["null", "R"]), z=1, a=2)
    assert parse_shape(shape).normalized().canonical.endswith('"a":2,"z":1}')
