"""The words of `rookery acls` and their meaning: principals, operations, resources, and rules as commands. Pure."""

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, TypeVar

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.security.acls import (
    CLUSTER_NAME,
    EVERY_PRINCIPAL,
    OPERATIONS,
    WILDCARD,
    AclBinding,
    ResourcePattern,
)

USER_TYPE: Final = "User:"

_CONCRETE: Final = tuple(each for each in AclOperation if each not in (AclOperation.UNKNOWN, AclOperation.ANY))
_OPTIONS: Final = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.DELEGATION_TOKEN: "--delegation-token",
    AclResourceType.USER: "--of-user",
}
CodeT = TypeVar("CodeT", bound=IntEnum)


@value_class(kw_only=True)
class Resources:
    """The resources that the options of a command name."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    tokens: Sequence[str] = ()
    users: Sequence[str] = ()
    cluster: bool = False
    prefix: bool = False

    def patterns(self) -> list[ResourcePattern]:
        """Return a pattern per resource. Raises ConfigError for a prefix that covers nothing."""
        kind = PatternType.PREFIXED if self.prefix else PatternType.LITERAL
        named = (
            (AclResourceType.TOPIC, self.topics),
            (AclResourceType.GROUP, self.groups),
            (AclResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (AclResourceType.DELEGATION_TOKEN, self.tokens),
            (AclResourceType.USER, [principal_of(user) for user in self.users]),
        )
        patterns = [ResourcePattern(type_, name, kind) for type_, names in named for name in names]
        for pattern in patterns:
            check_pattern(pattern)
        if self.cluster:
            patterns.append(ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME))
        return patterns


def check_pattern(pattern: ResourcePattern) -> None:
    """Raise ConfigError for a pattern that does not mean what it seems to mean."""
    what = f"{type_word(pattern.type)} '{pattern.name}'"
    if not pattern.name:
        raise ConfigError(f"{_OPTIONS[pattern.type]}: the name is empty; write '{WILDCARD}' for all of the type")
    if pattern.pattern_type is PatternType.PREFIXED and pattern.name == WILDCARD:
        # An entry that allows nothing looks like one that allows everything.
        raise ConfigError(
            f"--prefix with {what} covers only names that begin with a star, that is nothing: leave --prefix out to "
            "mean all of the type"
        )
    if pattern.pattern_type is PatternType.LITERAL and pattern.name.endswith(WILDCARD) and pattern.name != WILDCARD:
        raise ConfigError(
            f"{what} is taken literally: the star stands for all only alone. Write --prefix and "
            f"'{pattern.name.rstrip(WILDCARD)}' for all names that begin with it"
        )


def principal_of(text: str) -> str:
    """Return the principal of a user that is given as `alice`, `User:alice`, or `*` for all."""
    if text.startswith(USER_TYPE):
        name = text.removeprefix(USER_TYPE)
    elif text.lower().startswith(USER_TYPE.lower()):
        raise ConfigError(f"'{text}' must be written {USER_TYPE}{text[len(USER_TYPE) :]}: upper and lower case count")
    else:
        name = text
    if not name:
        raise ConfigError(f"'{text}' is not a user: write a name, or '{WILDCARD}' for all users")
    return USER_TYPE + name


def user_of(principal: str) -> str:
    """Return a principal as users write it: without its type if that is User."""
    return principal.removeprefix(USER_TYPE)


def parse_operation(text: str) -> AclOperation:
    """Return the operation with a name as `read` or `describe-configs`; case, dashes and underscores do not count."""
    words = {_simple(each.name): each for each in _CONCRETE}
    found = words.get(_simple(text))
    if found is None:
        close = get_close_matches(_simple(text), words, 1)
        hint = f"; did you mean {word(words[close[0]])}?" if close else ""
        raise ConfigError(f"'{text}' is not an operation: {', '.join(map(word, _CONCRETE))}{hint}")
    return found


def check_operations(patterns: Iterable[ResourcePattern], operations: Iterable[AclOperation]) -> None:
    """Raise ConfigError if an operation has no meaning for a resource: such an entry would never decide."""
    wanted = list(operations)
    for pattern in patterns:
        known = (AclOperation.ALL, *OPERATIONS[pattern.type])
        for operation in wanted:
            if operation not in known:
                raise ConfigError(
                    f"operation {word(operation)} has no meaning for a {type_word(pattern.type)}: "
                    f"write one of {', '.join(map(word, known))}"
                )


def word(code: IntEnum) -> str:
    """Return a code as users write it: DESCRIBE_CONFIGS is `describe-configs`."""
    return code.name.lower().replace("_", "-")


def type_word(type_: AclResourceType) -> str:
    return type_.name.lower().replace("_", " ")


def pattern_text(pattern: ResourcePattern) -> str:
    """Return a pattern for a sentence: `topic orders`, `topics that begin with or`, `all topics`."""
    type_ = type_word(pattern.type)
    if pattern.type is AclResourceType.CLUSTER:
        return "the cluster"
    if pattern.pattern_type is PatternType.PREFIXED:
        return f"{type_}s that begin with {pattern.name}"
    return f"all {type_}s" if pattern.name == WILDCARD else f"{type_} {pattern.name}"


def entry_text(entry: AclBinding) -> str:
    """Return an entry as a sentence."""
    who = "every user" if entry.principal == EVERY_PRINCIPAL else f"user {user_of(entry.principal)}"
    verb = "may" if entry.permission is AclPermission.ALLOW else "must not"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    operation = "do everything with" if entry.operation is AclOperation.ALL else word(entry.operation)
    return f"{who} {verb} {operation} {pattern_text(entry.pattern)}{host}"


def entry_json(entry: AclBinding) -> dict[str, str]:
    return {
        "principal": entry.principal,
        "permission": entry.permission.name,
        "operation": entry.operation.name,
        "resource_type": entry.pattern.type.name,
        "resource": entry.pattern.name,
        "pattern": entry.pattern.pattern_type.name,
        "host": entry.host,
    }


def options_text(entry: AclBinding) -> str:
    """Return the options of `rookery acls add` or `delete` that name an entry."""
    parts = ["--user", user_of(entry.principal), "--operation", word(entry.operation)]
    if entry.pattern.type is AclResourceType.CLUSTER:
        parts.append("--cluster")
    else:
        name = entry.pattern.name
        parts += [_OPTIONS[entry.pattern.type], user_of(name) if entry.pattern.type is AclResourceType.USER else name]
    if entry.pattern.pattern_type is PatternType.PREFIXED:
        parts.append("--prefix")
    if entry.host != WILDCARD:
        parts += ["--host", entry.host]
    if entry.permission is AclPermission.DENY:
        parts.append("--deny")
    return shlex.join(parts)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 rule`, `2 rules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sort_key(entry: AclBinding) -> tuple[object, ...]:
    pattern = entry.pattern
    return (pattern.type, pattern.name, pattern.pattern_type, entry.principal, entry.permission, entry.operation)


def _simple(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")
