"""The types of a registry's requests and responses. `client` accepts and returns the tuples, which are public.

The structs are the JSON of requests and responses, with the registry's field names.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from msgspec import Struct, field

from rookery.schemas.interface import Reference, SchemaType

_TYPES_BY_SUFFIX: Final[Mapping[str, SchemaType]] = {
    ".avsc": "AVRO",
    ".avro": "AVRO",
    ".json": "JSON",
    ".proto": "PROTOBUF",
}


def schema_type_of(path: PurePath) -> SchemaType | None:
    """Return the type of the schema in a file by the file's suffix; None if the suffix is unknown."""
    return _TYPES_BY_SUFFIX.get(path.suffix.lower())


class Schema(NamedTuple):
    """A schema as its author wrote it. `references` are the registered schemas that its text uses."""

    text: str
    schema_type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()


class RegisteredSchema(NamedTuple):
    subject: str
    version: int
    id: int
    schema: Schema


class SubjectVersion(NamedTuple):
    subject: str
    version: int


class Config(NamedTuple):
    """The settings of a subject, or the global settings.

    `compatibility_level` is None if only other settings were set. A `compatibility_policy` of None means STRICT.
    """

    compatibility_level: str | None
    normalize: bool | None = None
    compatibility_policy: str | None = None


class Compatibility(NamedTuple):
    """The result of a compatibility check. `messages` are the registry's descriptions of the incompatibilities."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


class ReferenceJson(Struct):
    name: str
    subject: str
    version: int


class SchemaJson(Struct, omit_defaults=True):
    """The body of a request, and of responses to look-ups.

    The type AVRO is omitted, as the registry itself does. Some registries send null for absent fields.
    """

    schema: str
    schema_type: SchemaType | None = field(default="AVRO", name="schemaType")
    references: list[ReferenceJson] | None = []

    @classmethod
    def of(cls, schema: Schema) -> "SchemaJson":
        return cls(schema.text, schema.schema_type, [ReferenceJson(*reference) for reference in schema.references])

    def to_schema(self) -> Schema:
        references = (Reference(each.name, each.subject, each.version) for each in self.references or ())
        return Schema(self.schema, self.schema_type or "AVRO", tuple(references))


class RegisteredJson(SchemaJson, kw_only=True):
    subject: str
    version: int
    id: int

    def to_registered(self) -> RegisteredSchema:
        return RegisteredSchema(self.subject, self.version, self.id, self.to_schema())


class IdJson(Struct):
    id: int


class SubjectVersionJson(Struct):
    subject: str
    version: int


class ConfigJson(Struct):
    """Responses to GET and DELETE have the level in `compatibilityLevel`, responses to PUT in `compatibility`."""

    compatibility_level: str | None = field(default=None, name="compatibilityLevel")
    compatibility: str | None = None
    normalize: bool | None = None
    compatibility_policy: str | None = field(default=None, name="compatibilityPolicy")

    def to_config(self) -> Config:
        return Config(self.compatibility_level or self.compatibility, self.normalize, self.compatibility_policy)


class ModeJson(Struct):
    mode: str


class CompatibilityJson(Struct):
    is_compatible: bool
    messages: list[str] | None = []


class ErrorJson(Struct):
    error_code: int
    message: str | None = ""
