"""The rules that common programs need: producers, consumers, Connect workers, mirrors, Kafka Streams. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.security.acls import CLUSTER_NAME, WILDCARD, AclBinding, ResourcePattern

_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DESCRIBE, _DELETE = AclOperation.DESCRIBE, AclOperation.DELETE
_TOPIC, _GROUP, _TRANSACTIONAL_ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
_CLUSTER: Final = ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME)

# Patterns and what is allowed with them.
Grant: TypeAlias = tuple[ResourcePattern, Sequence[AclOperation]]


@value_class(kw_only=True)
class PresetOptions:
    """The names that a preset applies to. `prefix` makes those of topics, groups and transactional ids prefixes."""

    topics: Sequence[str] = ()
    output_topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    application: str | None = None
    prefix: bool = False

    def patterns(self, type_: AclResourceType, names: Iterable[str]) -> list[ResourcePattern]:
        kind = PatternType.PREFIXED if self.prefix else PatternType.LITERAL
        # A wildcard needs no prefix, and would cover nothing with one.
        return [ResourcePattern(type_, name, PatternType.LITERAL if name == WILDCARD else kind) for name in names]


def preset_entries(name: str, options: PresetOptions, principal: str, host: str = WILDCARD) -> list[AclBinding]:
    """Return the entries that allow `principal` what the program needs. Raises ConfigError if an option is missing."""
    return entries_of(PRESETS[name](options), principal, host)


def entries_of(grants: Iterable[Grant], principal: str, host: str = WILDCARD) -> list[AclBinding]:
    """Return an entry per pattern and operation, each once."""
    entries = [
        AclBinding(pattern, principal, host, operation, AclPermission.ALLOW)
        for pattern, operations in grants
        for operation in operations
    ]
    return list(dict.fromkeys(entries))


def producer(options: PresetOptions) -> Iterator[Grant]:
    """Write to topics. Idempotent producers need nothing else; transactional ones need their id."""
    _require(options.topics, "producer", "--topic")
    for topic in options.patterns(_TOPIC, options.topics):
        yield topic, (_WRITE, _DESCRIBE)
    for transactional_id in options.patterns(_TRANSACTIONAL_ID, options.transactional_ids):
        yield transactional_id, (_WRITE, _DESCRIBE)


def consumer(options: PresetOptions) -> Iterator[Grant]:
    """Read topics as a member of groups."""
    _require(options.topics, "consumer", "--topic")
    _require(options.groups, "consumer", "--group")
    for topic in options.patterns(_TOPIC, options.topics):
        yield topic, (_READ, _DESCRIBE)
    for group in options.patterns(_GROUP, options.groups):
        yield group, (_READ,)


def connect(options: PresetOptions) -> Iterator[Grant]:
    """Run a worker of a Connect cluster with its internal topics, and connectors that read and write `topics`."""
    _require(options.groups, "connect", "--group, the group.id of the workers")
    for group in options.groups:
        yield ResourcePattern(_GROUP, group), (_READ, _DESCRIBE)
        for suffix in ("configs", "offsets", "status"):
            internal = ResourcePattern(_TOPIC, f"{group}-{suffix}")
            yield internal, (_READ, _WRITE, _CREATE, _DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    # The groups of sink connectors.
    yield ResourcePattern(_GROUP, "connect-", PatternType.PREFIXED), (_READ, _DESCRIBE)
    for topic in options.patterns(_TOPIC, options.topics):
        yield topic, (_READ, _WRITE, _CREATE, _DESCRIBE, AclOperation.DESCRIBE_CONFIGS)


def mirror(options: PresetOptions) -> Iterator[Grant]:
    """Copy topics, with their configs and the offsets of groups, from or to this cluster (MirrorMaker 2)."""
    copied = (
        _READ,
        _WRITE,
        _CREATE,
        _DESCRIBE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
    for topic in options.patterns(_TOPIC, options.topics or (WILDCARD,)):
        yield topic, copied
    for group in options.patterns(_GROUP, options.groups or (WILDCARD,)):
        yield group, (_READ, _DESCRIBE)
    yield _CLUSTER, (_DESCRIBE, _CREATE)


def streams(options: PresetOptions) -> Iterator[Grant]:
    """Run an application of Kafka Streams: read `topics`, write `output_topics`, own everything with its id."""
    if not options.application:
        raise ConfigError("preset streams needs --application, the application.id")
    for type_, operations in (
        (_TOPIC, (AclOperation.ALL,)),
        (_GROUP, (_READ, _DESCRIBE, _DELETE)),
        (_TRANSACTIONAL_ID, (_WRITE, _DESCRIBE)),
    ):
        yield ResourcePattern(type_, options.application, PatternType.PREFIXED), operations
    for topic in options.patterns(_TOPIC, options.topics):
        yield topic, (_READ, _DESCRIBE)
    for topic in options.patterns(_TOPIC, options.output_topics):
        yield topic, (_WRITE, _DESCRIBE)


PRESETS: Final[Mapping[str, Callable[[PresetOptions], Iterator[Grant]]]] = {
    "producer": producer,
    "consumer": consumer,
    "connect": connect,
    "mirror": mirror,
    "streams": streams,
}


def _require(names: Sequence[str], preset: str, option: str) -> None:
    if not names:
        raise ConfigError(f"preset {preset} needs {option}")
