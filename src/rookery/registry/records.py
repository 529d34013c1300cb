"""The records of the `_schemas` topic, in the JSON of Confluent's registry: each registry can continue the other's log.

    key                                                            value
    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}       {"subject":"s","version":1,"id":1,"schema":"...","deleted":false}
    {"keytype":"CONFIG","subject":"s","magic":0}                   {"subject":"s","compatibilityLevel":"FULL"}
    {"keytype":"MODE","subject":"s","magic":0}                     {"subject":"s","mode":"READONLY"}
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}           {"subject":"s","version":3}: versions 1 to 3 are deleted
    {"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}            {"subject":"s"}: its deleted versions are gone
    {"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}    {"tenant":"default","context":".c"}
    {"keytype":"NOOP","magic":0}                                   anything
    {"keytype":"NOOP","context":".","magic":0}                     {"maxId":7}

Only Rookery writes the last one. Compaction drops the ids of schemas that were deleted permanently, and an id must
never be assigned twice; so the highest id is written before schemas are removed. Confluent's registry ignores it as a
NOOP. A config or mode without a subject is the whole registry's. A tombstone deletes what the key names.
"""  # noqa: E501 (a table)

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from rookery.registry.entities import AVRO, Config, Entity, Metadata, ModeName, RuleSet, SchemaReference

EntityT = TypeVar("EntityT", bound=Entity)
Record: TypeAlias = tuple[bytes, bytes | None]
# The ranges in a log. A schema of a request may have neither a version nor an id.
Version: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
SchemaId: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]

KeyType: TypeAlias = Literal["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT", "NOOP"]
_MAGIC = {"SCHEMA": 1}
_TENANT = "default"


class Key(Struct, frozen=True, omit_defaults=True):
    """A key of any type. Fields that a type does not have are None."""

    keytype: str
    subject: str | None = None
    version: int | None = None
    tenant: str | None = None
    context: str | None = None
    # A default from a factory is never omitted.
    magic: int = field(default_factory=int)


class SchemaValue(Entity, frozen=True, kw_only=True):
    """A version of a subject, with its canonical text. A `schema_type` of None means Avro."""

    subject: str
    version: Version
    id: SchemaId
    schema_type: str | None = None
    references: tuple[SchemaReference, ...] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema: str
    deleted: bool = field(default_factory=bool)

    @property
    def type_name(self) -> str:
        return AVRO if self.schema_type is None else self.schema_type


class UnreadableSchemaValue(Entity, frozen=True, kw_only=True):
    """A schema that cannot be decoded, except for its id."""

    id: SchemaId


class _SubjectValue(Entity, frozen=True, kw_only=True):
    subject: str | None = None


class ModeValue(_SubjectValue, frozen=True, kw_only=True):
    mode: ModeName


class DeleteSubjectValue(Entity, frozen=True, kw_only=True):
    subject: str
    version: int


class ClearSubjectValue(_SubjectValue, frozen=True, kw_only=True):
    """A subject of None means all subjects."""


class ContextValue(Entity, frozen=True, kw_only=True):
    tenant: str | None = None
    context: str


class MaxIdValue(Entity, frozen=True, kw_only=True):
    max_id: SchemaId


Value: TypeAlias = (
    SchemaValue
    | UnreadableSchemaValue
    | Config
    | ModeValue
    | DeleteSubjectValue
    | ClearSubjectValue
    | ContextValue
    | MaxIdValue
)

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.Encoder().encode
_decode_key = msgspec.json.Decoder(Key).decode
_DECODERS: dict[str, msgspec.json.Decoder[Value]] = {
    "SCHEMA": msgspec.json.Decoder(SchemaValue),
    "CONFIG": msgspec.json.Decoder(Config),
    "MODE": msgspec.json.Decoder(ModeValue),
    "DELETE_SUBJECT": msgspec.json.Decoder(DeleteSubjectValue),
    "CLEAR_SUBJECT": msgspec.json.Decoder(ClearSubjectValue),
    "CONTEXT": msgspec.json.Decoder(ContextValue),
    "NOOP": msgspec.json.Decoder(MaxIdValue),
}


def decode(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Decode a record. Returns None for an unknown type of key, and for a record that is not valid."""
    try:
        decoded = _decode_key(key)
        decoder = _DECODERS[decoded.keytype]
    except (*_UNDECODABLE, KeyError):
        return None
    if value is None:
        return decoded, None
    try:
        return decoded, decoder.decode(value)
    except _UNDECODABLE:
        part = _decode_part(value) if decoded.keytype == "SCHEMA" else None
        return None if part is None else (decoded, part)


def _decode_part(value: bytes) -> SchemaValue | UnreadableSchemaValue | None:
    """Decode a schema without metadata and rules, which may have an unknown form, or only its id.

    Without the id, a new schema could get it, and data of the undecodable schema would be read with the wrong one.
    """
    try:
        fields = msgspec.json.decode(value, type=dict[str, Any])
    except _UNDECODABLE:
        return None
    part = {name: field for name, field in fields.items() if name not in ("metadata", "ruleSet")}
    return _convert(part, SchemaValue) or _convert(part, UnreadableSchemaValue)


def _convert(fields: dict[str, Any], kind: type[EntityT]) -> EntityT | None:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        return None


def _key(keytype: KeyType, subject: str | None = None, version: int | None = None) -> bytes:
    return _encode(Key(keytype, subject or None, version, magic=_MAGIC.get(keytype, 0)))


def schema_record(value: SchemaValue) -> Record:
    return _key("SCHEMA", value.subject, value.version), _encode(value)


def schema_tombstone(subject: str, version: int) -> Record:
    return _key("SCHEMA", subject, version), None


def config_record(subject: str | None, config: Config | None) -> Record:
    key = _key("CONFIG", subject)
    if config is None:
        return key, None
    return key, _encode(({} if subject is None else {"subject": subject}) | msgspec.to_builtins(config))


def mode_record(subject: str | None, mode: ModeName | None) -> Record:
    return _key("MODE", subject), None if mode is None else _encode(ModeValue(subject=subject, mode=mode))


def delete_subject_record(subject: str, version: int) -> Record:
    return _key("DELETE_SUBJECT", subject), _encode(DeleteSubjectValue(subject=subject, version=version))


def clear_subject_record(subject: str | None) -> Record:
    return _key("CLEAR_SUBJECT", subject), _encode(ClearSubjectValue(subject=subject))


def context_record(context: str) -> Record:
    key = Key("CONTEXT", tenant=_TENANT, context=context)
    return _encode(key), _encode(ContextValue(tenant=_TENANT, context=context))


def max_id_record(context: str, max_id: int) -> Record:
    return _encode(Key("NOOP", context=context)), _encode(MaxIdValue(max_id=max_id))
