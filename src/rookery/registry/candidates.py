"""Schemas of requests: parsed, in canonical form, with resolved references, and compared with the registered ones."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from rookery.registry.entities import AVRO, Config, RegisterSchemaRequest, SchemaReference
from rookery.registry.errors import RegistryError, invalid_schema
from rookery.registry.records import SchemaValue
from rookery.registry.rules import (
    merge_metadata,
    merge_rule_sets,
    reserved_fields,
    version_property,
    without_version_property,
)
from rookery.registry.state import State, content_key
from rookery.registry.subjects import qualify
from rookery.schemas.formats import SCHEMA_TYPES, find_format, top_level_fields
from rookery.schemas.interface import InvalidSchemaError, ParsedSchema, Policy, Reference, SchemaType
from rookery.schemas.levels import Level, Version, check_compatibility

LATEST: Final = -1
NO_VERSION: Final = 0
NO_ID: Final = -1
_REFERENCE_DEPTH_MAX: Final = 100
# A parsed schema takes about twenty times the memory of its text, so the cache takes at most about 80 MB.
_PARSED_SCHEMAS_MAX: Final = 128
_CACHED_LENGTH_MAX: Final = 32 * 1024
# Maps the hash of a version to the hash of its canonical text.
_canonical_hashes: Final[dict[int, int]] = {}
_CANONICAL_HASHES_MAX: Final = 50_000


class Candidate(NamedTuple):
    """A parsed schema of a request. `value` has the canonical text, and the request's version and id, if any."""

    value: SchemaValue
    parsed: ParsedSchema


def propose(subject: str, request: RegisterSchemaRequest) -> SchemaValue:
    """Return the request as a value, without parsing it. A missing text becomes empty."""
    return SchemaValue(
        subject=subject,
        version=NO_VERSION if request.version is None else request.version,
        id=NO_ID if request.id is None or request.id < 0 else request.id,
        schema_type=None if request.schema_type == AVRO else request.schema_type,
        references=request.references or None,
        metadata=request.metadata and request.metadata.sorted(),
        rule_set=request.rule_set,
        schema=request.schema or "",
    )


def with_defaults(config: Config, proposed: SchemaValue, previous: SchemaValue | None) -> SchemaValue:
    """Return the value with the defaults and overrides of the config. Missing metadata and rules are those of the
    previous version."""
    metadata, rule_set = proposed.metadata, proposed.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rule_set = previous.rule_set if rule_set is None else rule_set
    return replace(
        proposed,
        metadata=merge_metadata(config.default_metadata, metadata, config.override_metadata),
        rule_set=merge_rule_sets(config.default_rule_set, rule_set, config.override_rule_set),
    )


def canonicalize(state: State, proposed: SchemaValue, *, is_new: bool, normalize: bool = False) -> Candidate | None:
    """Parse a schema and return it in canonical form; None if it has no text. Error codes: 42201.

    A new schema (`is_new`) must be strictly valid, and must not refer to deleted schemas. A schema that is registered
    already, here or elsewhere, may have been accepted by a registry that was less strict.
    """
    if not proposed.schema.strip():
        return None
    parsed = _parse(state, proposed, is_new=is_new)
    if normalize:
        parsed = _normalized(parsed)
    value = replace(
        proposed,
        schema=parsed.canonical,
        references=tuple(
            SchemaReference(name=reference.name, subject=reference.subject, version=reference.version)
            for reference in parsed.references
        )
        or None,
    )
    return Candidate(value, parsed)


def parse_stored(state: State, value: SchemaValue) -> ParsedSchema:
    """Parse a registered schema. Error codes: 42201, if another registry accepted it and this one cannot parse it."""
    return _parse(state, value, is_new=False)


def formatted(state: State, value: SchemaValue, format: str) -> str:
    """Return the text in the requested form; the stored text if `format` is empty."""
    return parse_stored(state, value).formatted(format) if format.strip() else value.schema


def is_same_schema(state: State, candidate: Candidate, stored: SchemaValue) -> bool:
    """Whether both are the same schema. They may differ in two ways: one of the two has its version in the metadata, or
    the candidate contains in its text what the stored one refers to."""
    if candidate.value.type_name != stored.type_name or not _is_same_but_for_text(candidate.value, stored):
        return False
    if (candidate.value.references or ()) == (stored.references or ()):
        return candidate.value.schema == stored.schema or _is_canonical_text(state, stored, candidate.value.schema)
    if candidate.value.references:
        return False
    try:
        return candidate.value.schema == parse_stored(state, stored).formatted("resolved")
    except RegistryError:
        # Another registry may have written a schema that this one cannot parse.
        return False


def _is_canonical_text(state: State, stored: SchemaValue, text: str) -> bool:
    """Whether `text` is the canonical text of a stored schema, which another registry may have printed differently.

    This is called for all versions of a subject for every new schema. The hashes of canonical texts are cached, so that
    most versions do not have to be parsed.
    """
    key = hash((stored.subject, stored.version, *content_key(stored)))
    known = _canonical_hashes.get(key)
    if known is not None and known != hash(text):
        return False
    try:
        canonical = parse_stored(state, stored).canonical
    except RegistryError:
        # Another registry may have written a schema that this one cannot parse.
        return False
    if len(_canonical_hashes) >= _CANONICAL_HASHES_MAX:
        _canonical_hashes.clear()
    _canonical_hashes[key] = hash(canonical)
    return canonical == text


def _is_same_but_for_text(new: SchemaValue, stored: SchemaValue) -> bool:
    if new.rule_set != stored.rule_set:
        return False
    new_version, stored_version = version_property(new.metadata), version_property(stored.metadata)
    if (new_version is None) == (stored_version is None):
        return new.metadata == stored.metadata
    if new_version is not None and new_version != str(stored.version):
        return False
    return without_version_property(new.metadata) == without_version_property(stored.metadata)


def find_registered(
    state: State, candidate: Candidate, *, deleted: bool = False, latest_only: bool = False
) -> SchemaValue | None:
    """Return the version of the candidate's subject that has its schema; the latest if there are several."""
    subject = candidate.value.subject
    latest = state.latest(subject)
    if latest_only:
        return latest if latest is not None and is_same_schema(state, candidate, latest) else None
    everything = [*state.versions(subject), *state.with_schema(candidate.value)][::-1]
    visible = (each for each in everything if deleted or not each.deleted)
    return next((each for each in visible if is_same_schema(state, candidate, each)), None)


def compare(state: State, config: Config, candidate: Candidate, versions: Sequence[SchemaValue]) -> list[str]:
    """Return the incompatibilities of the candidate with `versions` (from the oldest to the latest) under `config`."""
    level = cast(Level, config.compatibility_level)
    messages = _check_reserved_fields(candidate, versions[-1:]) if config.validate_fields else []
    if level != "NONE":
        messages += _check_level(state, config, candidate, versions)
    if not messages:
        return []
    is_validated = str(bool(config.validate_fields)).lower()
    return [*messages, f"{{validateFields: '{is_validated}', compatibility: '{level}'}}"]


def _check_reserved_fields(candidate: Candidate, previous: Sequence[SchemaValue]) -> list[str]:
    reserved = reserved_fields(candidate.value.metadata)
    before = set().union(*(reserved_fields(version.metadata) for version in previous))
    return [
        *(
            f"The new schema has reserved field {name} removed from its metadata which is present in the old schema's "
            "metadata."
            for name in sorted(before - reserved)
        ),
        *(
            f"The new schema has field that conflicts with the reserved field {name}."
            for name in sorted(reserved & top_level_fields(candidate.parsed))
        ),
    ]


def _check_level(state: State, config: Config, candidate: Candidate, versions: Sequence[SchemaValue]) -> list[str]:
    level = cast(Level, config.compatibility_level)
    group = config.compatibility_group
    if group:
        own_group = _property(candidate.value, group)
        versions = [version for version in versions if _property(version, group) == own_group]
    if not level.endswith("_TRANSITIVE"):
        versions = versions[-1:]
    parsed = [Version(version.version, _parse_earlier(state, version)) for version in versions]
    policy = cast(Policy, config.compatibility_policy or "STRICT")
    return check_compatibility(level, candidate.parsed, parsed, policy)


def _parse_earlier(state: State, value: SchemaValue) -> ParsedSchema:
    """Parse an earlier version. Error codes: 42201, with the version in the message: it is not the schema that was
    sent."""
    try:
        return parse_stored(state, value)
    except RegistryError as error:
        name = f"Version {value.version} of subject '{value.subject}'"
        raise invalid_schema(f"{name} cannot be parsed: {error.message}") from error


def _property(value: SchemaValue, name: str) -> str | None:
    return None if value.metadata is None else (value.metadata.properties or {}).get(name)


class Source(NamedTuple):
    """Everything that the parser needs, so that another thread can parse while the state changes.

    `resolved` holds the names and texts of the references.
    """

    schema_type: SchemaType
    text: str
    resolved: tuple[tuple[str, str], ...]
    references: tuple[Reference, ...]

    @property
    def length(self) -> int:
        return len(self.text) + sum(len(text) for _, text in self.resolved)


def _parse(state: State, value: SchemaValue, *, is_new: bool) -> ParsedSchema:
    source = find_source(state, value, is_new=is_new)
    parse = parse_text if source.length <= _CACHED_LENGTH_MAX else parse_text.__wrapped__
    try:
        return parse(source, is_new=is_new)
    except InvalidSchemaError as error:
        raise _invalid(value.type_name, error) from error


def find_source(state: State, value: SchemaValue, *, is_new: bool) -> Source:
    """Return what is needed to parse `value`. Error codes: 42201, for an unknown type or an unresolvable reference."""
    if value.type_name not in SCHEMA_TYPES:
        raise invalid_schema(f"Invalid schema type {value.type_name}")
    try:
        resolution = _Resolution(state, deleted=not is_new)
        references = resolution.resolve(value.subject, value.references or ())
    except InvalidSchemaError as error:
        raise _invalid(value.type_name, error) from error
    return Source(value.type_name, value.schema, tuple(resolution.texts.items()), references)


def find_record_name(source: Source) -> str | None:
    """Return the record name of a registered schema. Uses no cache, so that any thread may call it.

    Raises InvalidSchemaError.
    """
    return parse_text.__wrapped__(source, is_new=False).name


@lru_cache(_PARSED_SCHEMAS_MAX)
def parse_text(source: Source, *, is_new: bool) -> ParsedSchema:
    """Parse a schema. Cached, because a schema is compared with many later ones. Raises InvalidSchemaError."""
    found = find_format(source.schema_type)
    parse = found.parse if is_new else found.parse_registered
    return parse(source.text, dict(source.resolved), source.references)


def _normalized(parsed: ParsedSchema) -> ParsedSchema:
    try:
        return parsed.normalized()
    except InvalidSchemaError as error:
        raise _invalid(parsed.schema_type, error) from error


def _invalid(schema_type: str, error: InvalidSchemaError) -> RegistryError:
    return invalid_schema(f"Invalid schema of type {schema_type}, details: {error}")


class _Resolution:
    """Resolves references. `texts` maps the names of references to the texts of their schemas, dependencies first."""

    def __init__(self, state: State, *, deleted: bool) -> None:
        self._state = state
        self._deleted = deleted
        self._path: list[tuple[str, int]] = []
        self._names: set[str] = set()
        self.texts: dict[str, str] = {}

    def resolve(self, subject: str, references: Sequence[SchemaReference]) -> tuple[Reference, ...]:
        """Return the references with their actual versions; -1 is replaced by the latest."""
        return tuple(self._resolve_one(subject, reference) for reference in references)

    def _resolve_one(self, subject: str, reference: SchemaReference) -> Reference:
        if reference.name is None or reference.subject is None or reference.version is None:
            raise InvalidSchemaError(f"Invalid reference: {_described(reference)}")
        target = self._find(qualify(reference.subject, subject), reference.version)
        if (target.subject, target.version) in self._path:
            raise InvalidSchemaError(f'Circular reference to subject "{target.subject}" and version {target.version}')
        if reference.name not in self._names:
            self._names.add(reference.name)
            self._follow(reference.name, target)
        return Reference(reference.name, reference.subject, target.version)

    def _find(self, subject: str, version: int) -> SchemaValue:
        state = self._state
        target = state.latest(subject) if version == LATEST else state.find(subject, version)
        if target is None or (target.deleted and not self._deleted):
            raise InvalidSchemaError(f'No schema reference found for subject "{subject}" and version {version}')
        return target

    def _follow(self, name: str, target: SchemaValue) -> None:
        if len(self._path) == _REFERENCE_DEPTH_MAX:
            raise InvalidSchemaError(f"References are nested more than {_REFERENCE_DEPTH_MAX} levels deep")
        self._path.append((target.subject, target.version))
        self.resolve(target.subject, target.references or ())
        self._path.pop()
        self.texts[name] = target.schema


def _described(reference: SchemaReference) -> str:
    return f"{{name='{reference.name}', subject='{reference.subject}', version={reference.version}}}"
