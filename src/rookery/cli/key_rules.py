"""What a key allows: the rules of a new key, and what existing rules allow a user. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.cli.acl_presets import Grant, PresetOptions, consumer, entries_of, producer
from rookery.cli.acl_words import check_pattern, principal_of
from rookery.security.acls import WILDCARD, AclBinding


@value_class(kw_only=True)
class KeyUse:
    """What a key is for: topics to write, topics to read as a member of groups, transactional ids."""

    produce: Sequence[str] = ()
    consume: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    prefix: bool = False


def key_entries(user: str, use: KeyUse) -> list[AclBinding]:
    """Return the rules of a key. Raises ConfigError if it would allow nothing that works."""
    if not use.produce and not use.consume:
        raise ConfigError("a key must allow something: add --produce TOPIC, or --consume TOPIC with --group GROUP")
    if bool(use.consume) != bool(use.groups):
        missing, given = ("--group GROUP", "--consume") if use.consume else ("--consume TOPIC", "--group")
        raise ConfigError(f"{given} needs {missing}: consumers read topics as members of a group")
    if use.transactional_ids and not use.produce:
        raise ConfigError("--transactional-id needs --produce TOPIC")
    grants: list[Grant] = []
    if use.produce:
        options = PresetOptions(topics=use.produce, transactional_ids=use.transactional_ids, prefix=use.prefix)
        grants += producer(options)
    if use.consume:
        grants += consumer(PresetOptions(topics=use.consume, groups=use.groups, prefix=use.prefix))
    entries = entries_of(grants, principal_of(user))
    for entry in entries:
        check_pattern(entry.pattern)
    return entries


def summary(entries: Iterable[AclBinding]) -> dict[str, list[str]]:
    """Return the names that a user may produce to and consume, its groups, and the number of all other rules."""
    found: dict[str, set[str]] = {"produce": set(), "consume": set(), "groups": set()}
    for entry in entries:
        if entry.permission is not AclPermission.ALLOW:
            continue
        for use in _uses(entry):
            found[use].add(_name(entry))
    return {use: sorted(names) for use, names in found.items()}


def _uses(entry: AclBinding) -> list[str]:
    is_all = entry.operation is AclOperation.ALL
    if entry.pattern.type is AclResourceType.GROUP and (is_all or entry.operation is AclOperation.READ):
        return ["groups"]
    if entry.pattern.type is not AclResourceType.TOPIC:
        return []
    if is_all:
        return ["produce", "consume"]
    by_operation: dict[Any, str] = {AclOperation.WRITE: "produce", AclOperation.READ: "consume"}
    return [by_operation[entry.operation]] if entry.operation in by_operation else []


def _name(entry: AclBinding) -> str:
    return entry.pattern.name + (WILDCARD if entry.pattern.pattern_type is PatternType.PREFIXED else "")
