"""The files that every schema may import without a reference, as in Confluent's registry."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.type import (
    calendar_period_pb2,
    color_pb2,
    date_pb2,
    datetime_pb2,
    dayofweek_pb2,
    decimal_pb2,
    expr_pb2,
    fraction_pb2,
    interval_pb2,
    latlng_pb2,
    money_pb2,
    month_pb2,
    phone_number_pb2,
    postal_address_pb2,
    quaternion_pb2,
    timeofday_pb2,
)

from rookery.schemas.protobuf.elements import File
from rookery.schemas.protobuf.from_descriptor import read_descriptor
from rookery.schemas.protobuf.parser import read_file

_GOOGLE: Final[dict[str, bytes]] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2),
        *(timestamp_pb2, type_pb2, wrappers_pb2, calendar_period_pb2, color_pb2, date_pb2, datetime_pb2),
        *(dayofweek_pb2, decimal_pb2, expr_pb2, fraction_pb2, interval_pb2, latlng_pb2, money_pb2, month_pb2),
        *(phone_number_pb2, postal_address_pb2, quaternion_pb2, timeofday_pb2),
    )
}
_META: Final = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_CONFLUENT: Final[dict[str, str]] = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
option java_outer_classname = "DecimalProto";
option java_multiple_files = true;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}


class _WellKnownFiles(Mapping[str, File]):
    """The well-known files by name. A file is parsed on first access."""

    def __getitem__(self, name: str) -> File:
        if name not in self:
            raise KeyError(name)
        return _read(name)

    def __contains__(self, name: object) -> bool:
        return name in _GOOGLE or name in _CONFLUENT

    def __iter__(self) -> Iterator[str]:
        return iter((*_GOOGLE, *_CONFLUENT))

    def __len__(self) -> int:
        return len(_GOOGLE) + len(_CONFLUENT)


WELL_KNOWN_FILES: Final = _WellKnownFiles()


@cache
def google_descriptor(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return the descriptor from Google's library; None for a file that is not Google's."""
    return descriptor_pb2.FileDescriptorProto.FromString(_GOOGLE[name]) if name in _GOOGLE else None


@cache
def _read(name: str) -> File:
    descriptor = google_descriptor(name)
    return read_file(_CONFLUENT[name]) if descriptor is None else read_descriptor(descriptor)
