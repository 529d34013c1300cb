"""Queries: pure functions from a state to a response. They raise RegistryError; the docstrings list the error codes.

Subjects are decoded but otherwise as in the URL: the queries resolve aliases and contexts. Versions are text: a number,
"latest" or "-1". `offset` and `limit` select a part of a list; a limit that is not positive means no limit, except for
`list_schemas`, which has a maximum.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from rookery.registry.candidates import (
    LATEST,
    canonicalize,
    compare,
    find_registered,
    formatted,
    propose,
    with_defaults,
)
from rookery.registry.entities import (
    CompatibilityCheckResponse,
    Config,
    Mode,
    RegisterSchemaRequest,
    Schema,
    SchemaReference,
    SchemaString,
    SubjectVersion,
)
from rookery.registry.errors import (
    RegistryError,
    config_not_found,
    invalid_schema,
    invalid_version,
    mode_not_found,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from rookery.registry.records import SchemaValue
from rookery.registry.scopes import (
    actual_subject,
    config_in_scope,
    mode_in_scope,
    own_config,
    own_mode,
    setting_name,
)
from rookery.registry.state import State
from rookery.registry.subjects import (
    ANY_CONTEXT,
    DEFAULT_CONTEXT,
    QualifiedSubject,
    context_of,
    has_prefix,
    qualify,
    split,
)

T = TypeVar("T")
_SCHEMAS_MAX: Final = 1000
VERSION_MAX: Final = 2**31 - 1


def list_subjects(
    state: State,
    *,
    prefix: str = ANY_CONTEXT,
    deleted: bool = False,
    deleted_only: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[str]:
    """Return the subjects whose name starts with `prefix`, sorted. The prefix ":*:" means any context."""

    def is_selected(subject: str) -> bool:
        is_live = state.has_subject(subject, deleted=False)
        return (not is_live if deleted_only else is_live or deleted) and has_prefix(subject, prefix)

    return _page(sorted(filter(is_selected, state.subjects())), offset, limit)


def list_versions(
    state: State,
    subject: str,
    *,
    deleted: bool = False,
    deleted_only: bool = False,
    deleted_as_negative: bool = False,
    offset: int = 0,
    limit: int = -1,
) -> list[int]:
    """Return the versions of a subject. Error codes: 40401."""
    subject = actual_subject(state, subject)
    if not state.has_subject(subject, deleted=deleted or deleted_only):
        raise subject_not_found(subject)
    versions = state.versions(subject)
    if deleted_as_negative:
        numbers = [-value.version if value.deleted else value.version for value in versions]
    elif deleted_only:
        numbers = [value.version for value in versions if value.deleted]
    else:
        numbers = [value.version for value in versions if deleted or not value.deleted]
    return _page(numbers, offset, limit)


def get_version(
    state: State,
    subject: str,
    version: str,
    *,
    deleted: bool = False,
    format: str = "",
    reference_format: str = "",
) -> Schema:
    """Return a version of a subject; "latest" is never a deleted one. Error codes: 40401, 40402, 42202."""
    value = find_version(state, actual_subject(state, subject), parse_version(version), deleted=deleted)
    return _to_schema(state, value, format=format, reference_format=reference_format)


def get_latest_with_metadata(
    state: State, subject: str, *, properties: Mapping[str, str], deleted: bool = False, format: str = ""
) -> Schema:
    """Return the latest version whose metadata has all the properties. Error codes: 40401, 40403."""
    subject = actual_subject(state, subject)
    for value in reversed(state.versions(subject)):
        found = None if value.metadata is None else value.metadata.properties or {}
        if found is not None and (deleted or not value.deleted) and properties.items() <= found.items():
            return _to_schema(state, value, format=format)
    raise _no_such_schema(state, subject, deleted=deleted)


def get_by_id(
    state: State,
    schema_id: int,
    *,
    subject: str | None = None,
    format: str = "",
    reference_format: str = "",
    fetch_max_id: bool = False,
) -> SchemaString:
    """Return a schema by its id, also a deleted one. `subject` selects the context. Error codes: 40403."""
    value = _find_by_id(state, schema_id, subject)
    if value is None:
        raise schema_not_found(schema_id)
    return SchemaString(
        schema_type=value.schema_type,
        schema=formatted(state, value, format),
        references=_references(value, reference_format),
        metadata=value.metadata,
        rule_set=value.rule_set,
        max_id=state.max_id(context_of(value.subject)) if fetch_max_id else None,
    )


def subjects_of(
    state: State, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[str]:
    """Return the subjects that have the schema. Error codes: 40403."""
    versions = versions_of(state, schema_id, subject=subject, deleted=deleted)
    return _page(list(dict.fromkeys(version.subject for version in versions)), offset, limit)


def versions_of(
    state: State, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[SubjectVersion]:
    """Return the versions that have the schema. Error codes: 40403."""
    found = _find_by_id(state, schema_id, subject)
    if found is None:
        raise schema_not_found()
    values = [
        SubjectVersion(subject=value.subject, version=value.version)
        for value in state.with_id(context_of(found.subject), schema_id)
        if deleted or not value.deleted
    ]
    return _page(values, offset, limit)


def referenced_by(
    state: State, subject: str, version: str, *, deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[int]:
    """Return the ids of the schemas that refer to the version. Error codes: 40401, 40402, 42202."""
    value = find_version(state, actual_subject(state, subject), parse_version(version), deleted=True)
    referrers = state.referrers(value.subject, value.version, deleted=deleted)
    ids = sorted({(context_of(referrer.subject), referrer.id) for referrer in referrers})
    return _page([schema_id for _, schema_id in ids], offset, limit)


def list_schemas(
    state: State,
    *,
    prefix: str = "",
    aliases: bool = False,
    deleted: bool = False,
    latest_only: bool = False,
    rule_type: str = "",
    offset: int = 0,
    limit: int = -1,
) -> list[Schema]:
    """Return the schemas, sorted by subject and version; at most 1,000."""
    names = _aliases(state, prefix) if aliases else {}
    subjects = {subject for subject in state.subjects() if has_prefix(subject, prefix)} | names.keys()
    found: list[SchemaValue] = []
    for subject in sorted(subjects):
        versions = state.versions(subject) if deleted else state.live_versions(subject)
        found += versions[-1:] if latest_only else versions
    if rule_type:
        found = [value for value in found if _has_rule_of_type(value, rule_type)]
    page = _page(found, offset, limit if 0 < limit < _SCHEMAS_MAX else _SCHEMAS_MAX)
    return [_to_schema(state, value, aliases=names.get(value.subject, ())) for value in page]


def list_contexts(state: State, *, prefix: str = "", offset: int = 0, limit: int = -1) -> list[str]:
    """Return the contexts, the default context "." first."""
    contexts = [DEFAULT_CONTEXT, *sorted(state.listed_contexts() - {DEFAULT_CONTEXT})]
    return _page([context for context in contexts if context.startswith(prefix)], offset, limit)


def get_config(state: State, subject: str | None, *, default_to_global: bool = False) -> Config:
    """Return the config of a subject or, for None, of the whole registry. Error codes: 40408."""
    name = setting_name(subject)
    config = config_in_scope(state, name) if default_to_global else own_config(state, name)
    if config is None:
        raise config_not_found(str(name))
    return config


def get_mode(state: State, subject: str | None, *, default_to_global: bool = False) -> Mode:
    """Return the mode of a subject or, for None, of the whole registry. Error codes: 40409."""
    name = setting_name(subject)
    mode = mode_in_scope(state, name) if default_to_global else own_mode(state, name)
    if mode is None:
        raise mode_not_found(str(name))
    return Mode(mode=mode)


def look_up(
    state: State,
    subject: str,
    request: RegisterSchemaRequest,
    *,
    normalize: bool = False,
    deleted: bool = False,
    format: str = "",
) -> Schema:
    """Return the version that has this schema. Error codes: 40401, 40403, 42201."""
    subject = actual_subject(state, subject)
    for name in _with_other_contexts(state, subject):
        try:
            value = _look_up_in(state, propose(name, request), normalize=normalize, deleted=deleted)
        except RegistryError:
            # Its references may exist in one context and not in another.
            if name == subject:
                raise
            continue
        if value is not None:
            return _to_schema(state, value, format=format)
    raise _no_such_schema(state, subject, deleted=deleted)


def _look_up_in(state: State, proposed: SchemaValue, *, normalize: bool, deleted: bool) -> SchemaValue | None:
    config = config_in_scope(state, proposed.subject)
    populated = with_defaults(config, proposed, state.latest(proposed.subject))
    # First as it was sent, then as it would have been registered.
    for attempt in (proposed,) if populated == proposed else (proposed, populated):
        candidate = canonicalize(state, attempt, normalize=normalize or bool(config.normalize), is_new=False)
        if candidate is not None and (found := find_registered(state, candidate, deleted=deleted)) is not None:
            return found
    return None


def test_compatibility(
    state: State,
    subject: str,
    request: RegisterSchemaRequest,
    *,
    version: str | None,
    normalize: bool,
    verbose: bool,
) -> CompatibilityCheckResponse:
    """Check whether the schema is compatible with one version or, for None, with those that the level requires.

    Error codes: 40402, 42201 (if `verbose`, a message in the response instead), 42202.
    """
    subject = actual_subject(state, subject)
    versions = state.live_versions(subject) if version is None else _one_version(state, subject, parse_version(version))
    config = config_in_scope(state, subject)
    try:
        normalize = normalize or bool(config.normalize)
        candidate = canonicalize(state, propose(subject, request), normalize=normalize, is_new=True)
        if candidate is None:
            raise invalid_schema("Empty schema")
        messages = compare(state, config, candidate, versions)
    except RegistryError as error:
        if not verbose:
            raise
        messages = [error.message]
    return CompatibilityCheckResponse(is_compatible=not messages, messages=tuple(messages) if verbose else None)


def _one_version(state: State, subject: str, version: int) -> list[SchemaValue]:
    """Return the version in a list, which is empty for the latest version of a subject that has none."""
    value = state.latest(subject) if version == LATEST else state.find(subject, version)
    if value is not None and not value.deleted:
        return [value]
    if version == LATEST:
        return []
    raise version_not_found(version)


def parse_version(text: str) -> int:
    """Return the number of a version; -1 for the latest. Error codes: 42202."""
    stripped = text.strip()
    if stripped.lower() == "latest":
        return LATEST
    try:
        number = int(stripped) if stripped.lstrip("+-").isdecimal() else None
    except ValueError:
        number = None
    if number is None or not (1 <= number <= VERSION_MAX or number == LATEST):
        raise invalid_version(text if number is None else str(number))
    return number


def find_version(state: State, subject: str, version: int, *, deleted: bool) -> SchemaValue:
    """Return a version. A subject of the default context is also looked up in the others. Error codes: 40401, 40402."""
    for name in _with_other_contexts(state, subject):
        value = state.latest(name) if version == LATEST else state.find(name, version)
        if value is not None and (deleted or not value.deleted):
            return value
    raise version_not_found(version) if state.has_subject(subject, deleted=deleted) else subject_not_found(subject)


def _no_such_schema(state: State, subject: str, *, deleted: bool) -> RegistryError:
    return schema_not_found() if state.has_subject(subject, deleted=deleted) else subject_not_found(subject)


def _with_other_contexts(state: State, subject: str) -> Iterator[str]:
    yield subject
    context, own = split(subject)
    if context == DEFAULT_CONTEXT:
        names = (QualifiedSubject(other, own).name for other in sorted(state.contexts))
        yield from filter(state.is_visible, names)


def _find_by_id(state: State, schema_id: int, subject: str | None) -> SchemaValue | None:
    """Look up an id in the subject, then in the subject of that name in other contexts, then in the default context."""
    if subject is None:
        return state.any_with_id(DEFAULT_CONTEXT, schema_id)
    subject = actual_subject(state, subject)
    context, own = split(subject)
    if not own:
        return state.any_with_id(context, schema_id)
    for name in filter(state.is_visible, _with_other_contexts(state, subject)):
        for value in reversed(state.versions(name)):
            if value.id == schema_id:
                return value
    return state.any_with_id(context, schema_id) if context == DEFAULT_CONTEXT else None


def _page(values: list[T], offset: int, limit: int) -> list[T]:
    start = max(offset, 0)
    return values[start : start + limit] if limit > 0 else values[start:]


def _aliases(state: State, prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the aliases that start with the prefix, by the subjects that they refer to."""
    found: dict[str, tuple[str, ...]] = {}
    for name, config in sorted(state.configs.items(), key=str):
        if name is not None and config.alias and has_prefix(name, prefix):
            target = qualify(config.alias, name)
            if state.is_visible(name) and state.is_visible(target):
                found[target] = (*found.get(target, ()), name)
    return found


def _has_rule_of_type(value: SchemaValue, rule_type: str) -> bool:
    rules = value.rule_set
    if rules is None:
        return False
    every = (*(rules.migration_rules or ()), *(rules.domain_rules or ()), *(rules.encoding_rules or ()))
    return any(rule.type == rule_type for rule in every)


def _to_schema(
    state: State, value: SchemaValue, *, format: str = "", reference_format: str = "", aliases: tuple[str, ...] = ()
) -> Schema:
    return Schema(
        subject=value.subject,
        version=value.version,
        id=value.id,
        schema_type=value.schema_type,
        references=_references(value, reference_format),
        metadata=value.metadata,
        rule_set=value.rule_set,
        schema=formatted(state, value, format),
        aliases=aliases,
    )


def _references(value: SchemaValue, reference_format: str) -> tuple[SchemaReference, ...]:
    references = value.references or ()
    if reference_format != "qualified":
        return references
    return tuple(
        SchemaReference(
            name=reference.name, subject=qualify(reference.subject or "", value.subject), version=reference.version
        )
        for reference in references
    )
