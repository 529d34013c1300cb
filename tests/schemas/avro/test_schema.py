import pytest

from rookery.schemas.avro import parse
from rookery.schemas.interface import InvalidSchemaError, Reference
from tests.schemas.avro.shapes import array, enum, field, fixed, one, parse_shape, record, text_of

COUNTRY = text_of(enum("geo.Country", "AT", "DE"))
ADDRESS = text_of(record("geo.Address", field("country", "Country"), field("kind", enum("Kind", "HOME"))))
RESOLVED = {"geo.Country": COUNTRY, "geo.Address": ADDRESS}
REFERENCES = (Reference("geo.Address", "address", 2),)


def test_name() -> None:
    assert parse_shape(record("a.R")).name == "a.R"
    assert parse_shape(fixed("a.F", 1)).name is None
    assert parse('"int"').name is None


def test_type_and_references() -> None:
    schema = parse(text_of(one("geo.Address")), RESOLVED, REFERENCES)
    assert (schema.schema_type, schema.references) == ("AVRO", REFERENCES)


def test_referenced_types_are_named() -> None:
    schema = parse(text_of(record("geo.Person", field("home", "geo.Address"), field("of", "Country"))), RESOLVED)
    assert schema.canonical == (
        '{"type":"record","name":"Person","namespace":"geo","fields":[{"name":"home","type":"Address"},'
        '{"name":"of","type":"Country"}]}'
    )


def test_the_resolved_form_contains_all_definitions() -> None:
    schema = parse(text_of(one(["null", "geo.Address"])), RESOLVED)
    assert schema.formatted("") == schema.formatted("serialized") == schema.canonical
    assert schema.formatted("RESOLVED") == schema.formatted("resolved")
    assert parse(schema.formatted("resolved")).canonical == schema.formatted("resolved")
    assert schema.raw["fields"][0]["type"][1]["fields"][0]["type"]["symbols"] == ["AT", "DE"]


def test_inner_types_of_a_reference_are_defined() -> None:
    """As in Java, so that the text together with its references parses to the same schema."""
    schema = parse(text_of(record("R", field("f", "geo.Kind"), field("g", "geo.Address"))), RESOLVED)
    assert '"symbols":["HOME"]' in schema.canonical
    assert parse(schema.canonical, RESOLVED).canonical == schema.canonical


def test_a_referenced_type_cannot_be_defined_differently() -> None:
    other = text_of(array(enum("geo.Country", "CH")))
    with pytest.raises(InvalidSchemaError, match=r"Can't redefine: geo.Country \(at /items\)"):
        parse(other, RESOLVED)


def test_a_reference_as_the_whole_schema() -> None:
    schema = parse('"geo.Address"', RESOLVED)
    assert (schema.canonical, schema.name) == ('"geo.Address"', "geo.Address")


def test_a_reference_that_is_missing() -> None:
    with pytest.raises(InvalidSchemaError, match=r'Undefined name: "geo\.Address"'):
        parse(text_of(one("geo.Address")), {"geo.Country": COUNTRY})


def test_an_invalid_reference() -> None:
    with pytest.raises(InvalidSchemaError, match='Undefined name: "Country"'):
        parse(text_of(one("geo.Address")), {"geo.Address": ADDRESS})


def test_the_normal_form_sorts_references() -> None:
    first, second, third = Reference("x", "a", 2), Reference("y", "a", 10), Reference("geo.Address", "b", 1)
    schema = parse(text_of(one("geo.Address", z=1)), RESOLVED, (third, second, first, second))
    normal = schema.normalized()
    assert normal.references == (first, second, third)
    assert normal.canonical == schema.canonical
