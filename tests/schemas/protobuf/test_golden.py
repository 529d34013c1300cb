import pytest

from rookery.schemas.protobuf import parse
from tests.schemas.protobuf.golden_files import NAMES, read_golden_descriptor, read_text
from tests.schemas.protobuf.ordering import in_order


@pytest.mark.parametrize("name", NAMES)
def test_descriptors_equal_those_of_protoc(name: str) -> None:
    ours = parse(read_text(name)).descriptor
    golden = read_golden_descriptor(name)
    assert str(ours) == str(golden)
    assert ours.SerializeToString(deterministic=True) == golden.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_descriptor_stays_the_same_as_text(name: str) -> None:
    """Except for the order of the fields: in a text those of oneofs come last."""
    from_text = parse(read_text(name))
    from_descriptor = parse(from_text.formatted("serialized"))
    assert in_order(from_descriptor.descriptor) == in_order(from_text.descriptor)
    assert in_order(parse(from_descriptor.canonical).descriptor) == in_order(from_text.descriptor)


@pytest.mark.parametrize("name", NAMES)
def test_the_canonical_text_is_a_fixed_point(name: str) -> None:
    for schema in (parse(read_text(name)), parse(parse(read_text(name)).formatted("serialized"))):
        assert parse(schema.canonical).canonical == schema.canonical


@pytest.mark.parametrize("name", NAMES)
def test_the_normal_form_of_the_normal_form_is_the_same(name: str) -> None:
    normal = parse(read_text(name)).normalized()
    assert parse(normal.canonical).normalized().canonical == normal.canonical
    assert normal.normalized().canonical == normal.canonical


@pytest.mark.parametrize("name", NAMES)
def test_text_and_descriptor_have_one_normal_form(name: str) -> None:
    schema = parse(read_text(name))
    assert parse(schema.formatted("serialized")).normalized().canonical == schema.normalized().canonical


@pytest.mark.parametrize("name", NAMES)
def test_messages_can_be_read_and_written(name: str) -> None:
    schema = parse(read_text(name))
    assert schema.name is not None
    message_class = schema.message_class(schema.name)
    assert message_class.FromString(b"").SerializePartialToString() == b""
