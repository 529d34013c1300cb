"""Sorts descriptors, for comparisons that ignore the order of the text."""

from google.protobuf import descriptor_pb2 as pb


def in_order(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """Return a copy with fields sorted by tag, oneofs and imports by name."""
    copy = pb.FileDescriptorProto()
    copy.CopyFrom(file)
    public = {file.dependency[index] for index in file.public_dependency}
    copy.dependency.sort()
    copy.public_dependency[:] = [index for index, name in enumerate(copy.dependency) if name in public]
    for message in copy.message_type:
        _sort(message)
    copy.message_type.sort(key=lambda each: each.name)
    return copy


def _sort(message: pb.DescriptorProto) -> None:
    names = [each.name for each in message.oneof_decl]
    message.oneof_decl.sort(key=lambda each: each.name)
    new_names = [each.name for each in message.oneof_decl]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = new_names.index(names[field.oneof_index])
    message.field.sort(key=lambda each: each.number)
    message.nested_type.sort(key=lambda each: each.name)
    for nested in message.nested_type:
        _sort(nested)
