"""Commands that write: pure functions from a state to the records to append, and the result for the client.

The state does not change until the records are replayed. No records mean that the state is already as requested. A
command that is not allowed raises RegistryError, and nothing is written; the docstrings list the error codes.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast, get_args

from msgspec import UNSET, structs

from rookery.registry.candidates import (
    LATEST,
    NO_ID,
    NO_VERSION,
    Candidate,
    canonicalize,
    compare,
    find_registered,
    formatted,
    is_same_schema,
    propose,
    with_defaults,
)
from rookery.registry.entities import (
    Config,
    ConfigUpdateRequest,
    Metadata,
    Mode,
    ModeName,
    ModeUpdateRequest,
    RegisterSchemaRequest,
    RegisterSchemaResponse,
)
from rookery.registry.errors import (
    incompatible_schema,
    invalid_compatibility,
    invalid_mode,
    invalid_policy,
    invalid_schema,
    invalid_subject,
    invalid_version,
    operation_not_permitted,
    reference_exists,
    store_failed,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from rookery.registry.queries import VERSION_MAX, parse_version
from rookery.registry.records import (
    Record,
    SchemaValue,
    clear_subject_record,
    config_record,
    context_record,
    delete_subject_record,
    max_id_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from rookery.registry.rules import check_rule_set, version_property, with_version_property
from rookery.registry.scopes import (
    actual_subject,
    check_writable,
    config_in_scope,
    described,
    mode_in_scope,
    own_config,
    own_mode,
    setting_name,
)
from rookery.registry.state import State, VersionKey, content_key, fingerprint, reference_keys
from rookery.registry.subjects import (
    DEFAULT_CONTEXT,
    context_of,
    covers,
    is_default_context,
    is_valid,
    qualified_context,
)
from rookery.schemas.levels import find_level, find_policy

T = TypeVar("T")
_ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class PlannedWrite(Generic[T]):
    """The records to append, in this order, all or none of them; a value of None is a tombstone."""

    records: tuple[tuple[bytes, bytes | None], ...]
    result: T


def register(
    state: State, subject: str, request: RegisterSchemaRequest, *, normalize: bool = False, format: str = ""
) -> PlannedWrite[RegisterSchemaResponse]:
    """Register a schema. Error codes: 409, 42201, 42205, 42208, 42210.

    If the subject has the schema already, the result is its id, in every mode. If not, the schema gets the id that it
    has in another subject of the context, or the next free one, or (in the mode IMPORT) the id of the request.
    """
    check_rule_set(request.rule_set)
    if request.schema_tags_to_add or request.schema_tags_to_remove or request.propagate_schema_tags:
        raise invalid_schema("Schema tags are not supported")
    subject = actual_subject(state, subject)
    if not is_valid(subject):
        raise invalid_subject(subject)
    config = config_in_scope(state, subject)
    normalize = normalize or bool(config.normalize)
    proposed = propose(subject, request)
    registered = _find_as_requested(state, config, proposed, normalize=normalize)
    if registered is not None:
        return PlannedWrite((), RegisterSchemaResponse(id=registered.id))
    _check_register_mode(state, proposed)
    is_import = mode_in_scope(state, subject) == "IMPORT"
    populated = proposed if is_import else _populate(state, config, proposed)
    candidate = canonicalize(state, populated, normalize=normalize and not is_import, is_new=proposed.id < 0)
    if candidate is None:
        raise invalid_schema("Empty schema")
    value, records = _add_version(state, config, candidate, is_import=is_import)
    return PlannedWrite(records, _response(state, value, is_modified=populated != proposed, format=format))


def _response(state: State, value: SchemaValue, *, is_modified: bool, format: str) -> RegisterSchemaResponse:
    if not is_modified:
        return RegisterSchemaResponse(id=value.id)
    return RegisterSchemaResponse(
        id=value.id,
        version=value.version,
        schema_type=value.schema_type,
        references=value.references or (),
        metadata=value.metadata,
        rule_set=value.rule_set,
        schema=formatted(state, value, format),
    )


def _find_as_requested(state: State, config: Config, proposed: SchemaValue, *, normalize: bool) -> SchemaValue | None:
    """Return the version that has the requested schema already, with the requested id and version, if any."""
    if config.default_metadata or config.override_metadata or config.default_rule_set or config.override_rule_set:
        return None
    is_import = mode_in_scope(state, proposed.subject) == "IMPORT"
    candidate = canonicalize(state, proposed, normalize=normalize and not is_import, is_new=False)
    if candidate is None:
        return None
    if proposed.version in (NO_VERSION, LATEST):
        found = find_registered(state, candidate, latest_only=proposed.version == LATEST)
        return found if found is not None and (proposed.id < 0 or found.id == proposed.id) else None
    found = state.find(proposed.subject, proposed.version)
    has_id = found is not None and not found.deleted and found.id == proposed.id
    return found if has_id and found is not None and is_same_schema(state, candidate, found) else None


def _check_register_mode(state: State, proposed: SchemaValue) -> None:
    check_writable(state, proposed.subject)
    mode = mode_in_scope(state, proposed.subject)
    if proposed.id >= 0 and mode != "IMPORT":
        raise operation_not_permitted(f"{described(proposed.subject)} is not in import mode")
    if proposed.id < 0 and mode != "READWRITE":
        raise operation_not_permitted(f"{described(proposed.subject)} is not in read-write mode")


def _populate(state: State, config: Config, proposed: SchemaValue) -> SchemaValue:
    """Return the value with what the previous version and the config add. A missing text is the previous version's."""
    previous = state.latest(proposed.subject)
    populated = with_defaults(config, proposed, previous)
    if not populated.schema.strip() and previous is not None:
        populated = structs.replace(
            populated, schema=previous.schema, schema_type=previous.schema_type, references=previous.references
        )
    if proposed.version != NO_VERSION or version_property(populated.metadata) is not None:
        metadata = with_version_property(populated.metadata, _next_version(state, proposed.subject))
        populated = structs.replace(populated, metadata=metadata)
    return populated


def _last_version(state: State, subject: str) -> int:
    return max((value.version for value in state.versions(subject)), default=0)


def _next_version(state: State, subject: str) -> int:
    version = _last_version(state, subject) + 1
    if version > VERSION_MAX:
        raise invalid_version(str(version))
    return version


def _add_version(
    state: State, config: Config, candidate: Candidate, *, is_import: bool
) -> tuple[SchemaValue, tuple[Record, ...]]:
    """Return the version that the candidate becomes, or is already, and the records to append for it."""
    value = candidate.value
    ids = [schema_id for schema_id in state.ids_of(value) if value.id in (NO_ID, schema_id)]
    schema_id = ids[0] if ids else value.id
    if value.version == NO_VERSION and (found := _find_live(state, candidate, schema_id)) is not None:
        return found, ()
    if not is_import:
        messages = compare(state, config, candidate, state.live_versions(value.subject))
        if messages:
            raise incompatible_schema(value.subject, f"[{', '.join(messages)}]")
    value = structs.replace(value, version=_choose_version(state, value, is_import=is_import))
    value = structs.replace(value, id=_next_id(state, value) if schema_id < 0 else schema_id)
    _check_id(state, value)
    _check_references(state, value)
    return value, _schema_records(state, value)


def _find_live(state: State, candidate: Candidate, schema_id: int) -> SchemaValue | None:
    """Return the live version that has the candidate's schema, with the requested id, if any."""
    for each in reversed(state.with_schema(candidate.value)):
        if not each.deleted and candidate.value.id in (NO_ID, each.id):
            return each
    for each in reversed(state.live_versions(candidate.value.subject)):
        if schema_id in (NO_ID, each.id) and is_same_schema(state, candidate, each):
            return each
    return None


def _choose_version(state: State, value: SchemaValue, *, is_import: bool) -> int:
    if value.version > 0 and is_import:
        return value.version
    following = _next_version(state, value.subject)
    if value.version > 0 and value.version != following:
        raise invalid_schema("Version is not one more than previous version")
    return following


def _next_id(state: State, value: SchemaValue) -> int:
    schema_id = state.max_id(context_of(value.subject)) + 1
    if schema_id > _ID_MAX:
        raise store_failed("Error while registering the schema due to generating an ID that is already in use.")
    return schema_id


def _check_id(state: State, value: SchemaValue) -> None:
    context = context_of(value.subject)
    known = state.any_with_id(context, value.id)
    if known is not None and fingerprint(known) != fingerprint(value):
        raise operation_not_permitted(
            f"Overwrite new schema with id {value.id} in context {qualified_context(context)} is not permitted."
        )


def _check_references(state: State, value: SchemaValue) -> None:
    """Check that an import that overwrites a version leaves all references intact. Error codes: 42201, 42206.

    The version must not refer to itself, directly or not, and its content must not change if other versions refer to
    it. A deleted version that refers to it counts: records with its id are still read.
    """
    if _is_circular(state, value):
        details = f'Circular reference to subject "{value.subject}" and version {value.version}'
        raise invalid_schema(f"Invalid schema of type {value.type_name}, details: {details}")
    overwritten = state.find(value.subject, value.version)
    is_changed = overwritten is not None and content_key(overwritten) != content_key(value)
    if is_changed and state.referrers(value.subject, value.version, deleted=True):
        raise reference_exists(value.subject, value.version)


def _is_circular(state: State, value: SchemaValue) -> bool:
    seen: set[VersionKey] = set()
    pending = reference_keys(value)
    while pending:
        key = pending.pop()
        seen.add(key)
        target = state.find(*key)
        pending |= set() if target is None else reference_keys(target) - seen
    return (value.subject, value.version) in seen


def _schema_records(state: State, value: SchemaValue) -> tuple[Record, ...]:
    context = context_of(value.subject)
    is_new_context = context != DEFAULT_CONTEXT and context not in state.contexts
    overwritten = state.find(value.subject, value.version)
    return (
        *([context_record(context)] if is_new_context else []),
        *([] if overwritten is None else _max_id_records(state, [overwritten])),
        *(schema_tombstone(each.subject, each.version) for each in _replaced_versions(state, value)),
        schema_record(value),
    )


def _replaced_versions(state: State, value: SchemaValue) -> Iterable[SchemaValue]:
    """Yield deleted versions of the same schema to which no version refers: they are not needed any more."""
    for each in state.versions(value.subject):
        is_older = each.deleted and each.id == value.id and each.version < value.version
        if is_older and not state.referrers(each.subject, each.version, deleted=True):
            yield each


def _max_id_records(state: State, removed: Iterable[SchemaValue]) -> list[Record]:
    """Return the records of the highest ids, which must be written before schemas are removed.

    Without them, compaction would lose the removed ids, and a new schema could get an id that data already uses.
    """
    contexts = sorted({context_of(value.subject) for value in removed})
    return [
        max_id_record(context, state.max_id(context)) for context in contexts if not state.is_max_id_written(context)
    ]


def delete_subject(state: State, subject: str, *, permanent: bool = False) -> PlannedWrite[list[int]]:
    """Delete a subject; the result is the deleted versions. Error codes: 40401, 40404, 40405, 42205, 42206.

    A soft deletion also deletes its config and mode. Versions of the subject that refer to each other do not prevent
    the deletion.
    """
    subject = actual_subject(state, subject)
    if not state.has_subject(subject, deleted=True):
        raise subject_not_found(subject)
    if not permanent and not state.has_subject(subject, deleted=False):
        raise subject_soft_deleted(subject)
    check_writable(state, subject)
    versions = state.versions(subject) if permanent else state.live_versions(subject)
    for value in versions:
        _check_unreferenced(state, value, permanent=permanent, removed={subject})
        if permanent and not value.deleted:
            raise subject_not_soft_deleted(subject)
    numbers = [value.version for value in versions]
    if permanent:
        return PlannedWrite(tuple(_removal_records(state, versions)), numbers)
    # Up to the last version, including those deleted already: this record replaces an earlier one with the same key.
    record = delete_subject_record(subject, _last_version(state, subject))
    return PlannedWrite((record, *_setting_tombstones(state, subject)), numbers)


def delete_version(state: State, subject: str, version: str, *, permanent: bool = False) -> PlannedWrite[int]:
    """Delete a version. Error codes: 40401, 40402, 40406, 40407, 42202, 42205, 42206.

    The soft deletion of the last live version also deletes the subject's config and mode.
    """
    number = parse_version(version)
    subject = actual_subject(state, subject)
    value = state.latest(subject) if number == LATEST else state.find(subject, number)
    if value is None:
        raise version_not_found(number) if state.has_subject(subject, deleted=True) else subject_not_found(subject)
    if value.deleted and not permanent:
        raise version_soft_deleted(subject, value.version)
    check_writable(state, subject)
    _check_unreferenced(state, value, permanent=permanent)
    if not permanent:
        settings = _setting_tombstones(state, subject) if state.live_versions(subject) == [value] else []
        return PlannedWrite((schema_record(structs.replace(value, deleted=True)), *settings), value.version)
    if not value.deleted:
        raise version_not_soft_deleted(subject, value.version)
    return PlannedWrite(tuple(_removal_records(state, [value])), value.version)


def _check_unreferenced(state: State, value: SchemaValue, *, permanent: bool, removed: Collection[str] = ()) -> None:
    """Check that no version refers to this one, except those of subjects in `removed`. Error codes: 42206.

    For a permanent removal, soft-deleted referrers count too: records with their ids are still read, and without the
    referenced schema their text cannot be parsed.
    """
    referrers = state.referrers(value.subject, value.version, deleted=permanent)
    if any(referrer.subject not in removed for referrer in referrers):
        raise reference_exists(value.subject, value.version)


def _removal_records(state: State, values: list[SchemaValue]) -> list[Record]:
    """Return the tombstones from the latest to the oldest: a version may refer to an older one of its subject."""
    return _max_id_records(state, values) + [
        schema_tombstone(value.subject, value.version) for value in reversed(values)
    ]


def _setting_tombstones(state: State, subject: str) -> list[Record]:
    tombstones = []
    if subject in state.modes:
        tombstones.append(mode_record(subject, None))
    if subject in state.configs:
        tombstones.append(config_record(subject, None))
    return tombstones


def put_config(state: State, subject: str | None, request: ConfigUpdateRequest) -> PlannedWrite[ConfigUpdateRequest]:
    """Change the config of a subject or, for None, of the whole registry. Error codes: 42203, 42205, 42208, 42210."""
    name = setting_name(subject)
    changes = {field: value for field, value in structs.asdict(request).items() if value is not UNSET}
    level, policy = changes.get("compatibility_level"), changes.get("compatibility_policy")
    if level is not None:
        changes["compatibility_level"] = find_level(level)
        if changes["compatibility_level"] is None:
            raise invalid_compatibility()
    if policy is not None:
        changes["compatibility_policy"] = find_policy(policy)
        if changes["compatibility_policy"] is None:
            raise invalid_policy(policy)
    for field in ("default_rule_set", "override_rule_set"):
        check_rule_set(changes.get(field))
    for field in ("default_metadata", "override_metadata"):
        if isinstance(metadata := changes.get(field), Metadata):
            changes[field] = metadata.sorted()
    if name is not None and not is_valid(name, for_settings=True):
        raise invalid_subject(name)
    check_writable(state, name)
    config = structs.replace(state.configs.get(name, Config()), **changes)
    given = {field: value for field, value in structs.asdict(config).items() if value is not None}
    return PlannedWrite((config_record(name, config),), ConfigUpdateRequest(**given))


def delete_config(state: State, subject: str | None) -> PlannedWrite[Config]:
    """Delete a config; the result is the deleted one. Error codes: 40401, 42205."""
    name = setting_name(subject)
    config = own_config(state, name)
    if config is None:
        raise subject_not_found(str(name))
    check_writable(state, name)
    return PlannedWrite((config_record(name, None),), config)


def put_mode(
    state: State, subject: str | None, request: ModeUpdateRequest, *, force: bool = False
) -> PlannedWrite[ModeUpdateRequest]:
    """Change the mode of a subject or, for None, of the whole registry; a mode of null deletes it.

    Error codes: 42204, 42205 (also if modes are immutable), 42206, 42208. The mode IMPORT requires that there are no
    live schemas, unless `force` is set; soft-deleted schemas are removed permanently.
    """
    name = setting_name(subject)
    if name is not None and not is_valid(name, for_settings=True):
        raise invalid_subject(name)
    mode = request.mode.upper() if isinstance(request.mode, str) else request.mode
    if mode not in (*get_args(ModeName), None):
        raise invalid_mode()
    _check_modes_mutable(state)
    records: list[Record] = []
    if mode == "IMPORT" and mode_in_scope(state, name) != "IMPORT" and not force:
        records = _clear_for_import(state, name)
    return PlannedWrite((*records, mode_record(name, cast(ModeName | None, mode))), request)


def _clear_for_import(state: State, name: str | None) -> list[Record]:
    subjects = sorted(subject for subject in state.subjects() if covers(name, subject))
    if any(state.has_subject(subject, deleted=False) for subject in subjects):
        raise operation_not_permitted("Cannot import since found existing subjects")
    values = [value for subject in subjects for value in state.versions(subject)]
    removed = set(subjects)
    for value in values:
        _check_unreferenced(state, value, permanent=True, removed=removed)
    return [*_removal_records(state, values), clear_subject_record(name)]


def delete_mode(state: State, subject: str | None) -> PlannedWrite[Mode]:
    """Delete a mode; the result is the deleted one. Error codes: 40401, 42205, 42208.

    The whole registry is None; the name of the default context is not accepted for it (42208).
    """
    if subject is not None and is_default_context(subject):
        raise invalid_subject(subject)
    name = setting_name(subject)
    mode = own_mode(state, name)
    if mode is None:
        raise subject_not_found(str(name))
    _check_modes_mutable(state)
    return PlannedWrite((mode_record(name, None),), Mode(mode=mode))


def _check_modes_mutable(state: State) -> None:
    if not state.modes_are_mutable:
        raise operation_not_permitted("Mode changes are not allowed")
