"""`--value-format` and `--key-format`: records with schemas of a registry, as JSON on the command line.

`text` leaves the bytes unchanged. For the other formats, those of a schema registry, `consume` decodes records, and
`produce` encodes the JSON of each line.
"""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from rookery.cli.lines import Record
    from rookery.schemas.interface import SchemaType
    from rookery.serdes.client import RegistryClient


class Format(StrEnum):
    TEXT = "text"
    AUTO = "auto"
    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    PROTOBUF = "protobuf"


_SCHEMA_TYPES: "dict[Format, SchemaType]" = {
    Format.AVRO: "AVRO",
    Format.JSON_SCHEMA: "JSON",
    Format.PROTOBUF: "PROTOBUF",
}

ReadValueFormat = Annotated[
    Format, typer.Option("--value-format", help="The format of values; auto decodes each value that has a schema id.")
]
ReadKeyFormat = Annotated[Format, typer.Option("--key-format", help="The format of keys, as --value-format.")]
WriteValueFormat = Annotated[
    Format,
    typer.Option("--value-format", help="text, or the format in which JSON lines are encoded; auto: the subject's."),
]
WriteKeyFormat = Annotated[Format, typer.Option("--key-format", help="The format of keys, as --value-format.")]
ValueSchema = Annotated[
    Path | None,
    typer.Option(
        "--value-schema",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Register this schema (.avsc, .json, .proto) instead of using the subject's latest.",
    ),
]
KeySchema = Annotated[
    Path | None,
    typer.Option(
        "--key-schema", metavar="FILE", exists=True, dir_okay=False, help="The format of keys, as --value-format."
    ),
]
ValueMessage = Annotated[
    str | None,
    typer.Option("--value-message", metavar="NAME", help="The message of a Protobuf schema. Default: the first."),
]


class Side(NamedTuple):
    """The format and schema of a record's key or value."""

    format: Format
    schema: Path | None = None
    message: str | None = None

    @property
    def uses_registry(self) -> bool:
        return self.format is not Format.TEXT or self.schema is not None


Encode = Callable[[bytes | None], bytes | None]


def record_decoder(registry: "RegistryClient", *, key: Format, value: Format) -> "Callable[[Record], Record]":
    """Return a function that decodes keys and values; it raises CommandError for an undecodable record."""
    from msgspec.structs import replace

    read_key, read_value = _reader(registry, key, is_key=True), _reader(registry, value, is_key=False)

    def decode(record: "Record") -> "Record":
        from rookery.cli.errors import CommandError
        from rookery.serdes.errors import SerdesError

        try:
            return replace(record, key=read_key(record.topic, record.key), value=read_value(record.topic, record.value))
        except SerdesError as error:
            position = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise CommandError(f"{position}: {error}; --value-format auto shows such records undecoded") from error

    return decode


def _reader(registry: "RegistryClient", form: Format, *, is_key: bool) -> Callable[[str, Any], Any]:
    from rookery.cli.lines import Decoded
    from rookery.serdes.errors import NotRegisteredError, RegistryRequestError, WireFormatError
    from rookery.serdes.json_records import JsonReader

    if form is Format.TEXT:
        return lambda topic, data: data
    read = JsonReader(registry, is_key=is_key, schema_type=_SCHEMA_TYPES.get(form))

    def decode(topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return Decoded(read(topic, data))
        except (WireFormatError, NotRegisteredError, RegistryRequestError):
            # A topic may hold plain texts in addition to encoded records: auto shows these unchanged.
            if form is Format.AUTO:
                return data
            raise

    return decode


def line_encoder(registry: "RegistryClient", topic: str, side: Side, *, is_key: bool) -> Encode:
    """Return a function from the JSON of a line to a record's bytes; it raises LineError if it does not fit."""
    from rookery.cli.lines import LineError
    from rookery.serdes.errors import SerdesError
    from rookery.serdes.json_records import JsonWriter

    if not side.uses_registry:
        return lambda data: data
    write = JsonWriter(
        registry,
        topic,
        is_key=is_key,
        schema_type=_SCHEMA_TYPES.get(side.format),
        schema=None if side.schema is None else _read_schema(side),
        message=side.message,
    )

    def encode(data: bytes | None) -> bytes | None:
        if data is None:
            return None
        try:
            return write(json.loads(data))
        except ValueError as error:
            raise LineError(f"the {'key' if is_key else 'value'} is not JSON ({error}); a text needs quotes") from None
        except SerdesError as error:
            raise LineError(str(error)) from None

    return encode


def _read_schema(side: Side) -> Any:
    from rookery.cli.registry_access import read_schema

    assert side.schema is not None
    return read_schema(side.schema, _SCHEMA_TYPES.get(side.format), None)
