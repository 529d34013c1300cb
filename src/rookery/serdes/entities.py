"""What a registry is asked and what it answers, with types; `client` takes and returns these.

The public ones are tuples. The others are the JSON of the answers, with the registry's names.
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
    """Return the type of the schema in a file, by the file's name; None if the name does not tell."""
    return _TYPES_BY_SUFFIX.get(path.suffix.lower())


class Schema(NamedTuple):
    """A schema as its writer gives it. `references` are the registered schemas that its text makes use of."""

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
    """Of a subject, or of all. `compatibility_level` is None where only something else was set; a
    `compatibility_policy` of None is STRICT."""

    compatibility_level: str | None
    normalize: bool | None = None
    compatibility_policy: str | None = None


class Compatibility(NamedTuple):
    """`messages` say what is incompatible, in the registry's words."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


class ReferenceJson(Struct):
    name: str
    subject: str
    version: int


class SchemaJson(Struct, omit_defaults=True):
    """A request's body, and the answers to look-ups; Avro is left out, as the registry does. Some say null instead."""

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
    """Answers to GET and DELETE name the level otherwise than PUT does."""

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
