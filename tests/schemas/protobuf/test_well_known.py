import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.types import decimal_pb2
from google.protobuf import descriptor_pb2

from rookery.schemas.protobuf import parse
from rookery.schemas.protobuf.well_known import WELL_KNOWN_FILES


@pytest.mark.parametrize("name", sorted(WELL_KNOWN_FILES))
def test_every_file_can_be_imported(name: str) -> None:
    file = WELL_KNOWN_FILES[name]
    first = file.messages[0].name if file.messages else file.enums[0].name
    schema = parse(f'syntax = "proto3"; import "{name}"; message M {{ {file.package}.{first} a = 1; }}')
    assert schema.message_class("M").DESCRIPTOR.fields_by_name["a"].number == 1


def test_the_number_of_files() -> None:
    assert len(WELL_KNOWN_FILES) == len(list(WELL_KNOWN_FILES)) == 29
    assert WELL_KNOWN_FILES.get("google/protobuf/nothing.proto") is None


def _fields(file: descriptor_pb2.FileDescriptorProto) -> set[tuple[str, str, int, int]]:
    return {(each.name, field.name, field.number, field.type) for each in file.message_type for field in each.field}


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("confluent/meta.proto", meta_pb2.DESCRIPTOR), ("confluent/type/decimal.proto", decimal_pb2.DESCRIPTOR)],
)
def test_the_files_of_confluent(name: str, theirs: object) -> None:
    """The files of Confluent's Python client may be older, but must not differ."""
    schema = parse(f'syntax = "proto3"; import "{name}"; message M {{}}')
    file = descriptor_pb2.FileDescriptorProto.FromString(theirs.serialized_pb)  # type: ignore[attr-defined]  # generated
    ours = schema.descriptors[name]
    assert _fields(file) <= _fields(ours)
    assert {(each.name, each.number, each.extendee) for each in file.extension} <= {
        (each.name, each.number, each.extendee) for each in ours.extension
    }
