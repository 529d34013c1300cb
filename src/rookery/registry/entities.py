"""The bodies of requests and responses, with the names and the order of Confluent's JSON.

Values are immutable. Empty fields are omitted from the JSON, and so is the schema type AVRO. Unknown fields of a
request are ignored, as in Confluent's registry.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

AVRO: Final = "AVRO"
CONFLUENT_RESERVED: Final = "confluent:reserved"
CONFLUENT_VERSION: Final = "confluent:version"

ModeName: TypeAlias = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"]
# Java's int. Confluent's registry rejects numbers out of its range.
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class Entity(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The base class. Fields with their default value are omitted from the JSON."""


class SchemaReference(Entity, frozen=True, kw_only=True):
    """`name` is the name in the text of the referring schema. In a request fields may be missing; a stored reference
    has all of them."""

    name: str | None = None
    subject: str | None = None
    version: Int32 | None = None


class Metadata(Entity, frozen=True, kw_only=True):
    """Metadata of a schema. `sorted` sorts keys and sets, so that equal metadata has equal JSON."""

    tags: dict[str, tuple[str, ...] | None] | None = None
    properties: dict[str, str | None] | None = None
    sensitive: tuple[str, ...] | None = None

    def sorted(self) -> "Metadata":
        return Metadata(
            tags={name: tuple(sorted(set(tags or ()))) for name, tags in sorted((self.tags or {}).items())} or None,
            properties=dict(sorted((self.properties or {}).items())) or None,
            sensitive=tuple(sorted(set(self.sensitive or ()))) or None,
        )


class Rule(Entity, frozen=True, kw_only=True):
    """A rule with any kind and mode: a newer registry may have written it. The module `rules` checks new ones."""

    name: str | None = None
    doc: str | None = None
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    tags: tuple[str, ...] | None = None
    params: dict[str, str | None] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    # A default from a factory is never omitted.
    disabled: bool = field(default_factory=bool)


class RuleSet(Entity, frozen=True, kw_only=True):
    """Stored for the clients that execute rules; the registry itself executes none."""

    migration_rules: tuple[Rule, ...] | None = None
    domain_rules: tuple[Rule, ...] | None = None
    encoding_rules: tuple[Rule, ...] | None = None
    enable_at: str | None = None


class RegisterSchemaRequest(Entity, frozen=True, kw_only=True):
    """The request to register, to look up and to test a schema. The default type is Avro."""

    version: Int32 | None = None
    id: Int32 | None = None
    schema_type: str | None = None
    references: tuple[SchemaReference, ...] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema: str | None = None
    # Schema tags are not supported: a request with one of these is rejected.
    schema_tags_to_add: list[Any] | None = None
    schema_tags_to_remove: list[Any] | None = None
    propagate_schema_tags: bool | None = None


class RegisterSchemaResponse(Entity, frozen=True, kw_only=True):
    """Only the id, unless the stored schema differs from the request (defaults of the config, a previous schema)."""

    id: int
    version: int | None = None
    schema_type: str | None = None
    references: tuple[SchemaReference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema: str | None = None


class Schema(Entity, frozen=True, kw_only=True):
    """One version of a subject. `aliases` is set only in lists of schemas, on request."""

    subject: str
    version: int
    id: int
    schema_type: str | None = None
    references: tuple[SchemaReference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    schema: str
    aliases: tuple[str, ...] = ()


class SchemaString(Entity, frozen=True, kw_only=True):
    """A schema by its id."""

    schema_type: str | None = None
    schema: str
    references: tuple[SchemaReference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    max_id: int | None = None


class SubjectVersion(Entity, frozen=True, kw_only=True):
    subject: str
    version: int


class CompatibilityCheckResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`messages` is present, even if empty, if the request was verbose."""

    is_compatible: bool
    messages: tuple[str, ...] | None = None


class Config(Entity, frozen=True, kw_only=True):
    """The config of a subject, a context or the whole registry."""

    alias: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_rules: bool | None = None
    compatibility_level: str | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None


class ConfigUpdateRequest(Entity, frozen=True, kw_only=True):
    """A change of a config: absent fields stay unchanged, null deletes a field.

    It is also the response, with all fields that are set after the change.

    The level's name is `compatibility` here and `compatibilityLevel` in `Config`.
    """

    alias: str | UnsetType | None = UNSET
    normalize: bool | UnsetType | None = UNSET
    validate_fields: bool | UnsetType | None = UNSET
    validate_rules: bool | UnsetType | None = UNSET
    compatibility_level: str | UnsetType | None = field(default=UNSET, name="compatibility")
    compatibility_policy: str | UnsetType | None = UNSET
    compatibility_group: str | UnsetType | None = UNSET
    default_metadata: Metadata | UnsetType | None = UNSET
    override_metadata: Metadata | UnsetType | None = UNSET
    default_rule_set: RuleSet | UnsetType | None = UNSET
    override_rule_set: RuleSet | UnsetType | None = UNSET


class Mode(Entity, frozen=True, kw_only=True):
    mode: str


class ModeUpdateRequest(Entity, frozen=True, kw_only=True):
    """The request to change a mode, and its response. Null deletes the mode."""

    mode: str | UnsetType | None = UNSET


class ErrorMessage(Struct, frozen=True, kw_only=True):
    error_code: int
    message: str
