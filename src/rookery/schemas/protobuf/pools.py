"""Descriptor pools, with which messages can be read and written without generated classes."""

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pool import DescriptorPool

from rookery.schemas.interface import InvalidSchemaError


def build_pool(files: Mapping[str, pb.FileDescriptorProto], wanted: Iterable[str]) -> DescriptorPool:
    """Return a new pool with the `wanted` files and all that they import. Raises InvalidSchemaError."""
    pool = DescriptorPool()
    for name in _in_order(files, wanted):
        try:
            pool.Add(files[name])
        except TypeError as error:
            raise InvalidSchemaError(str(error)) from None
    return pool


def _in_order(files: Mapping[str, pb.FileDescriptorProto], wanted: Iterable[str]) -> Iterator[str]:
    """Yield the wanted files and their imports, dependencies first."""
    seen: set[str] = set()
    pending = [(name, False) for name in wanted]
    while pending:
        name, has_its_imports = pending.pop()
        if has_its_imports:
            yield name
        elif name not in seen:
            seen.add(name)
            pending += [(name, True), *((each, False) for each in files[name].dependency)]
