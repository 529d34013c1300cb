"""Which user has which role on which subjects. Pure, apart from the file of rules, which is read again if it changes.

    User:alice=write:orders-*,read:*       two grants of one user
    User:*=read::.public:*                 every user, all subjects of the context .public

A pattern is the name of a subject, a prefix that ends in `*`, or `*` alone for the whole registry. A name without a
context means the default context, so `orders-*` grants nothing in others. A role includes the ones before it.
`rest.access` has the table of the roles that requests need.
"""

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from rookery.base.errors import ConfigError
from rookery.registry.subjects import normalize

logger = structlog.get_logger(__name__)

USER_TYPE: Final = "User:"
EVERY_USER: Final = "User:*"
WHOLE_REGISTRY: Final = "*"
INLINE_KEY: Final = "authorization.rules"
FILE_KEY: Final = "authorization.rules.file"
_COMMENTS: Final = ("#", "!")
_NEXT_GRANT: Final = re.compile(r",\s*(?=[a-z]+:)", re.IGNORECASE)


class Role(IntEnum):
    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Grant(NamedTuple):
    """`is_prefix`: the pattern ended in `*`. The whole registry is the empty prefix."""

    principal: str
    role: Role
    name: str
    is_prefix: bool

    def covers(self, subject: str | None) -> bool:
        """Whether the grant is about a subject, in its normal form; None is the whole registry."""
        if subject is None:
            return self.is_prefix and not self.name
        return subject.startswith(self.name) if self.is_prefix else subject == self.name


class Roles:
    """The grants of a text. Super users have every role."""

    def __init__(self, grants: Iterable[Grant] = (), super_users: Iterable[str] = ()) -> None:
        self._super_users = frozenset(super_users)
        self._grants: dict[str, list[Grant]] = {}
        for grant in grants:
            self._grants.setdefault(grant.principal, []).append(grant)

    def allows(self, principal: str, role: Role, subject: str | None) -> bool:
        if principal in self._super_users:
            return True
        grants = (*self._grants.get(principal, ()), *self._grants.get(EVERY_USER, ()))
        return any(grant.role >= role and grant.covers(subject) for grant in grants)


def parse_rules(rules: Iterable[str], key: str) -> Iterator[Grant]:
    """Yield the grants of rules such as `User:alice=write:orders-*,read:*`. Raises ConfigError, which names `key`."""
    for rule in rules:
        principal, equals, grants = rule.partition("=")
        principal = principal.strip()
        if not equals or not principal.startswith(USER_TYPE) or principal == USER_TYPE:
            raise ConfigError(f"{key}: {rule!r} must be User:NAME=ROLE:SUBJECT, such as User:alice=write:orders-*")
        for grant in _NEXT_GRANT.split(grants.strip()):
            yield _parse_grant(principal, grant.strip(), key)


def _parse_grant(principal: str, text: str, key: str) -> Grant:
    word, _, pattern = text.partition(":")
    role = Role.__members__.get(word.strip().upper())
    pattern = pattern.strip()
    if role is None or not pattern:
        words = ", ".join(each.word for each in Role)
        raise ConfigError(f"{key}: {text!r} must be ROLE:SUBJECT, with one of the roles {words}")
    name = pattern.removesuffix("*")
    if "*" in name:
        raise ConfigError(f"{key}: {pattern!r} has a * that is not its end. Only a prefix can be given")
    return Grant(principal, role, normalize(name), name != pattern)


class RoleSource:
    """The roles of the settings and of the file. `revision` changes with them."""

    def __init__(self, rules: Iterable[str], file: Path | None, super_users: Iterable[str]) -> None:
        """Raises ConfigError if a rule is invalid or the file cannot be read."""
        self._inline = tuple(parse_rules(rules, INLINE_KEY))
        self._super_users = tuple(super_users)
        self._file = file
        try:
            self._stamp = self._read_stamp()
            self._roles = self._load()
        except OSError as error:
            raise ConfigError(f"{FILE_KEY} cannot be read: {error}") from error
        self.revision = 0

    def current(self) -> Roles:
        """Return the roles, with what the file has now. An unusable file is logged, and the old roles stay."""
        try:
            stamp = self._read_stamp()
        except OSError as error:
            stamp = (error.errno or 0,)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._roles = self._load()
                self.revision += 1
                logger.info("roles of the schema registry changed", file=str(self._file))
            except (OSError, ConfigError) as error:
                logger.error("the roles of the schema registry stay as they were", error=str(error))
        return self._roles

    def _read_stamp(self) -> tuple[int, ...]:
        if self._file is None:
            return ()
        status = self._file.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self) -> Roles:
        lines = [] if self._file is None else [line.strip() for line in self._file.read_text().splitlines()]
        rules = [line for line in lines if line and not line.startswith(_COMMENTS)]
        return Roles([*self._inline, *parse_rules(rules, FILE_KEY)], self._super_users)
