"""The registry's state: a fold over the records of the `_schemas` topic.

`replay` is its only mutation, and it depends only on the records and their order. The state parses no schemas: texts
are canonical when they are written. It keeps indexes, so that no query has to scan all schemas.

Invariants, which the commands that write the records maintain:
- an id denotes one schema in its context, forever; a record that contradicts this is ignored
- a log and its compacted form (the last value of each key, in order) result in equal states
"""

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import msgspec

from rookery.registry.entities import AVRO, Config, ModeName
from rookery.registry.records import (
    ClearSubjectValue,
    ContextValue,
    DeleteSubjectValue,
    Key,
    MaxIdValue,
    ModeValue,
    SchemaValue,
    UnreadableSchemaValue,
    Value,
    decode,
)
from rookery.registry.subjects import DEFAULT_CONTEXT, context_of, covers, qualify
from rookery.schemas.levels import Level, find_level, find_policy

VersionKey: TypeAlias = tuple[str, int]
EntryT = TypeVar("EntryT")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def fingerprint(value: SchemaValue) -> tuple[object, ...]:
    """Return a key that is equal for equal schemas: the same type, text, references, metadata and rules."""
    metadata = None if value.metadata is None else _encode_sorted(value.metadata.sorted())
    rules = None if value.rule_set is None else _encode_sorted(value.rule_set)
    return *content_key(value), metadata, rules


def content_key(value: SchemaValue) -> tuple[object, ...]:
    """Return a key that is equal for schemas with the same type, text and references: all that referrers depend on."""
    return value.type_name, value.schema, value.references or ()


class State:
    """`default_level` and `default_mode` apply where nothing is configured."""

    def __init__(
        self,
        *,
        default_level: Level = "BACKWARD",
        default_mode: ModeName = "READWRITE",
        modes_are_mutable: bool = True,
    ) -> None:
        self.default_level: Level = default_level
        self.default_mode: ModeName = default_mode
        self.modes_are_mutable = modes_are_mutable
        self.configs: dict[str | None, Config] = {}
        self.modes: dict[str | None, ModeName] = {}
        self.contexts: set[str] = set()
        self._subjects: dict[str, dict[int, SchemaValue]] = {}
        self._keys_by_id: dict[tuple[str, int], set[VersionKey]] = {}
        # The number of versions that have a schema, per id. An import may assign a second id to a schema.
        self._id_counts: dict[tuple[str, tuple[object, ...]], dict[int, int]] = {}
        self._referrers: dict[VersionKey, set[VersionKey]] = {}
        self._max_ids: dict[str, int] = {}
        self._max_ids_written: dict[str, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record. Records that cannot be decoded, or contradict the state, are ignored."""
        decoded = decode(key, value)
        if decoded is not None:
            self._apply(*decoded)

    # Queries

    def is_visible(self, subject: str) -> bool:
        """Whether queries may return the subject's schemas. `VisibleState` answers for a user."""
        return True

    def listed_contexts(self) -> set[str]:
        return self.contexts

    def subjects(self) -> Iterable[str]:
        return self._subjects.keys()

    def versions(self, subject: str) -> list[SchemaValue]:
        """Return the versions from the oldest to the latest, including deleted ones."""
        versions = self._subjects.get(subject, {})
        return [versions[number] for number in sorted(versions)]

    def live_versions(self, subject: str) -> list[SchemaValue]:
        return [value for value in self.versions(subject) if not value.deleted]

    def find(self, subject: str, version: int) -> SchemaValue | None:
        return self._subjects.get(subject, {}).get(version)

    def latest(self, subject: str) -> SchemaValue | None:
        versions = self._subjects.get(subject, {})
        return max((each for each in versions.values() if not each.deleted), key=_version_number, default=None)

    def has_subject(self, subject: str, *, deleted: bool) -> bool:
        versions = self._subjects.get(subject, {})
        return any(deleted or not value.deleted for value in versions.values())

    def with_id(self, context: str, schema_id: int) -> list[SchemaValue]:
        """Return the versions that have this id, sorted by subject and version."""
        return self._values(self._keys_by_id.get((context, schema_id), ()))

    def any_with_id(self, context: str, schema_id: int) -> SchemaValue | None:
        """Return one of the versions that have this id; all of them have the same schema."""
        for subject, version in self._keys_by_id.get((context, schema_id), ()):
            return self._subjects[subject][version]
        return None

    def ids_of(self, value: SchemaValue) -> list[int]:
        """Return the ids of the schema in its context: none or one, or several after an import."""
        return sorted(self._id_counts.get((context_of(value.subject), fingerprint(value)), ()))

    def with_schema(self, value: SchemaValue) -> list[SchemaValue]:
        """Return the versions of its subject that have the same schema, from the oldest to the latest."""
        ids = self.ids_of(value)
        return [version for version in self.versions(value.subject) if version.id in ids] if ids else []

    def referrers(self, subject: str, version: int, *, deleted: bool) -> list[SchemaValue]:
        """Return the versions that refer to this one."""
        values = self._values(self._referrers.get((subject, version), ()))
        return [value for value in values if deleted or not value.deleted]

    def max_id(self, context: str) -> int:
        """Return the highest id that was ever assigned in the context; 0 if there was none."""
        return self._max_ids.get(context, 0)

    def is_max_id_written(self, context: str) -> bool:
        """Whether the highest id has its own record, so that it survives the removal of its schema."""
        return self._max_ids_written.get(context, 0) >= self.max_id(context)

    def _values(self, keys: Iterable[VersionKey]) -> list[SchemaValue]:
        return [self._subjects[subject][version] for subject, version in sorted(keys)]

    # Changes

    def _apply(self, key: Key, value: Value | None) -> None:
        match value:
            case None:
                self._apply_tombstone(key)
            case SchemaValue():
                self._put_schema(key, value)
            case UnreadableSchemaValue():
                self._raise_max_id(context_of(key.subject or ""), value.id)
            case Config():
                self.configs[key.subject] = _with_known_names(value)
            case ModeValue():
                self.modes[key.subject] = value.mode
            case DeleteSubjectValue():
                self._delete_subject(value)
            case ClearSubjectValue():
                self._clear_subjects(value.subject)
            case ContextValue():
                self.contexts.add(value.context)
            case MaxIdValue():
                self._put_max_id(key.context or DEFAULT_CONTEXT, value.max_id)

    def _apply_tombstone(self, key: Key) -> None:
        match key.keytype:
            case "SCHEMA" if key.version is not None:
                self._remove(key.subject or "", key.version)
            case "CONFIG":
                self.configs.pop(key.subject, None)
            case "MODE":
                self.modes.pop(key.subject, None)
            case "CONTEXT" if key.context is not None:
                self.contexts.discard(key.context)

    def _put_max_id(self, context: str, max_id: int) -> None:
        self._raise_max_id(context, max_id)
        self._max_ids_written[context] = max(self._max_ids_written.get(context, 0), max_id)

    def _raise_max_id(self, context: str, schema_id: int) -> None:
        self._max_ids[context] = max(self.max_id(context), schema_id)

    def _put_schema(self, key: Key, value: SchemaValue) -> None:
        if (key.subject or "", key.version) != (value.subject, value.version) or self._is_id_of_another(value):
            return
        if value.schema_type == AVRO:
            value = msgspec.structs.replace(value, schema_type=None)
        self._remove(value.subject, value.version)
        self._add(value)

    def _is_id_of_another(self, value: SchemaValue) -> bool:
        known = self.any_with_id(context_of(value.subject), value.id)
        return known is not None and known.schema != value.schema

    def _delete_subject(self, value: DeleteSubjectValue) -> None:
        versions = self._subjects.get(value.subject, {})
        for number, version in versions.items():
            if number <= value.version and not version.deleted:
                versions[number] = msgspec.structs.replace(version, deleted=True)

    def _clear_subjects(self, name: str | None) -> None:
        for subject in [subject for subject in self._subjects if covers(name, subject)]:
            for value in self.versions(subject):
                if value.deleted:
                    self._remove(subject, value.version)

    def _add(self, value: SchemaValue) -> None:
        key = value.subject, value.version
        context = context_of(value.subject)
        self._subjects.setdefault(value.subject, {})[value.version] = value
        self._keys_by_id.setdefault((context, value.id), set()).add(key)
        counts = self._id_counts.setdefault((context, fingerprint(value)), {})
        counts[value.id] = counts.get(value.id, 0) + 1
        for target in reference_keys(value):
            self._referrers.setdefault(target, set()).add(key)
        self._raise_max_id(context, value.id)

    def _remove(self, subject: str, version: int) -> None:
        value = self.find(subject, version)
        if value is None:
            return
        key = subject, version
        context = context_of(subject)
        del self._subjects[subject][version]
        if not self._subjects[subject]:
            del self._subjects[subject]
        _discard(self._keys_by_id, (context, value.id), key)
        self._remove_id(context, value)
        for target in reference_keys(value):
            _discard(self._referrers, target, key)

    def _remove_id(self, context: str, value: SchemaValue) -> None:
        entry = context, fingerprint(value)
        counts = self._id_counts[entry]
        counts[value.id] -= 1
        if not counts[value.id]:
            del counts[value.id]
        if not counts:
            del self._id_counts[entry]


def _with_known_names(config: Config) -> Config:
    """Drop an unknown level or policy, so that the default applies."""
    return msgspec.structs.replace(
        config,
        compatibility_level=find_level(config.compatibility_level or ""),
        compatibility_policy=find_policy(config.compatibility_policy or ""),
    )


def _version_number(value: SchemaValue) -> int:
    return value.version


def reference_keys(value: SchemaValue) -> set[VersionKey]:
    """Return the versions that a schema refers to, with subjects qualified by its context."""
    return {
        (qualify(reference.subject, value.subject), reference.version)
        for reference in value.references or ()
        if reference.subject is not None and reference.version is not None
    }


def _discard(index: dict[EntryT, set[VersionKey]], entry: EntryT, key: VersionKey) -> None:
    keys = index[entry]
    keys.discard(key)
    if not keys:
        del index[entry]
