"""Schemas and the descriptors that protoc 35 generated (`golden/NAME.proto`, `golden/NAME.descriptor.txt`)."""

import base64
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb

DIRECTORY = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.proto"))


def read_text(name: str) -> str:
    return (DIRECTORY / f"{name}.proto").read_text()


def read_golden_descriptor(name: str) -> pb.FileDescriptorProto:
    """Read protoc's descriptor, with the registries' file name, and without JSON names that follow from the names."""
    descriptor = pb.FileDescriptorProto.FromString(base64.b64decode((DIRECTORY / f"{name}.descriptor.txt").read_text()))
    descriptor.name = "default"
    for message in descriptor.message_type:
        _drop_json_names(message)
    _drop(descriptor.extension)
    return descriptor


def _drop_json_names(message: pb.DescriptorProto) -> None:
    _drop([*message.field, *message.extension])
    for nested in message.nested_type:
        _drop_json_names(nested)


def _drop(fields: list[pb.FieldDescriptorProto]) -> None:
    for field in fields:
        head, *rest = field.name.split("_")
        if field.json_name == head + "".join(part[:1].upper() + part[1:] for part in rest):
            field.ClearField("json_name")
