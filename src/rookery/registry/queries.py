"""Reading: pure functions from a state to an answer. What is not there or not valid is a RegistryError.

Subjects are given as they are in the URL, decoded: aliases and contexts are resolved here. Versions are text: a number,
"latest" or "-1". `offset` and `limit` select a part of a list; a limit that is not positive means "as many as a list
may have".
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
    """The subjects whose name starts with the prefix, in order. ":*:" stands for any context."""

    def is_wanted(subject: str) -> bool:
        is_live = state.has_subject(subject, deleted=False)
        return (not is_live if deleted_only else is_live or deleted) and has_prefix(subject, prefix)

    return _page(sorted(filter(is_wanted, state.subjects())), offset, limit)


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
    """40401."""
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
    """40401, 40402, 42202. "latest" never is a deleted version. The raw text is the answer's `schema`."""
    value = find_version(state, actual_subject(state, subject), parse_version(version), deleted=deleted)
    return _to_schema(state, value, format=format, reference_format=reference_format)


def get_latest_with_metadata(
    state: State, subject: str, *, properties: Mapping[str, str], deleted: bool = False, format: str = ""
) -> Schema:
    """The latest version whose metadata has all the properties. 40401, 40403."""
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
    """40403. The subject selects the context. Deleted schemas have ids too."""
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
    """The subjects that have the schema. 40403."""
    versions = versions_of(state, schema_id, subject=subject, deleted=deleted)
    return _page(list(dict.fromkeys(version.subject for version in versions)), offset, limit)


def versions_of(
    state: State, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
) -> list[SubjectVersion]:
    """The versions that have the schema. 40403."""
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
    """The ids of the schemas that refer to the version. 40401, 40402, 42202."""
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
    """By subject and version; at most 1,000."""
    names = _aliases(state, prefix) if aliases else {}
    wanted = {subject for subject in state.subjects() if has_prefix(subject, prefix)} | names.keys()
    found: list[SchemaValue] = []
    for subject in sorted(wanted):
        versions = state.versions(subject) if deleted else state.live_versions(subject)
        found += versions[-1:] if latest_only else versions
    if rule_type:
        found = [value for value in found if _has_rule_of_type(value, rule_type)]
    page = _page(found, offset, limit if 0 < limit < _SCHEMAS_MAX else _SCHEMAS_MAX)
    return [_to_schema(state, value, aliases=names.get(value.subject, ())) for value in page]


def list_contexts(state: State, *, prefix: str = "", offset: int = 0, limit: int = -1) -> list[str]:
    """The default context "." first."""
    contexts = [DEFAULT_CONTEXT, *sorted(state.contexts - {DEFAULT_CONTEXT})]
    return _page([context for context in contexts if context.startswith(prefix)], offset, limit)


def get_config(state: State, subject: str | None, *, default_to_global: bool = False) -> Config:
    """None is the whole registry. 40408."""
    name = setting_name(subject)
    config = config_in_scope(state, name) if default_to_global else own_config(state, name)
    if config is None:
        raise config_not_found(str(name))
    return config


def get_mode(state: State, subject: str | None, *, default_to_global: bool = False) -> Mode:
    """None is the whole registry. 40409."""
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
    """The version that has this schema. 40401, 40403, 42201."""
    subject = actual_subject(state, subject)
    for name in _with_other_contexts(state, subject):
        try:
            value = _look_up_in(state, propose(name, request), normalize=normalize, deleted=deleted)
        except RegistryError:
            # Its references may be there in one context and not in another.
            if name == subject:
                raise
            continue
        if value is not None:
            return _to_schema(state, value, format=format)
    raise _no_such_schema(state, subject, deleted=deleted)


def _look_up_in(state: State, proposed: SchemaValue, *, normalize: bool, deleted: bool) -> SchemaValue | None:
    config = config_in_scope(state, proposed.subject)
    populated = with_defaults(config, proposed, state.latest(proposed.subject))
    # As it was sent, then as it would have been registered.
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
    """Whether the schema could be registered, as compared with one version or (None) with those that the level asks
    for. 40402, 42201 (a message of the answer if verbose), 42202."""
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
    """None if the latest is asked for and there is no version yet."""
    value = state.latest(subject) if version == LATEST else state.find(subject, version)
    if value is not None and not value.deleted:
        return [value]
    if version == LATEST:
        return []
    raise version_not_found(version)


def parse_version(text: str) -> int:
    """-1 for the latest. 42202."""
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
    """40401, 40402. A subject without a context is looked for in the others too."""
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
        for other in sorted(state.contexts):
            yield QualifiedSubject(other, own).name


def _find_by_id(state: State, schema_id: int, subject: str | None) -> SchemaValue | None:
    """In the subject, or in the subject of that name in another context, or else anywhere in the default context."""
    if subject is None:
        return state.any_with_id(DEFAULT_CONTEXT, schema_id)
    subject = actual_subject(state, subject)
    context, own = split(subject)
    if not own:
        return state.any_with_id(context, schema_id)
    for name in _with_other_contexts(state, subject):
        for value in reversed(state.versions(name)):
            if value.id == schema_id:
                return value
    return state.any_with_id(context, schema_id) if context == DEFAULT_CONTEXT else None


def _page(values: list[T], offset: int, limit: int) -> list[T]:
    start = max(offset, 0)
    return values[start : start + limit] if limit > 0 else values[start:]


def _aliases(state: State, prefix: str) -> dict[str, tuple[str, ...]]:
    """Names that start with the prefix, by the subjects that they stand for."""
    found: dict[str, tuple[str, ...]] = {}
    for name, config in sorted(state.configs.items(), key=str):
        if name is not None and config.alias and has_prefix(name, prefix):
            target = qualify(config.alias, name)
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
