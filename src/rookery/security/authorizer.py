"""Decides which operations a client may perform, with the semantics of Kafka's StandardAuthorizer. Pure.

The first rule that applies decides:

1. A principal in `super.users` may do everything.
2. An entry that denies the operation, on a pattern that matches the resource.
3. An entry that allows it. DESCRIBE is also allowed by READ, WRITE, DELETE and ALTER, DESCRIBE_CONFIGS by
   ALTER_CONFIGS; entries that deny have no such implications.
4. If no entry at all touches the resource, of whichever principal, `allow.everyone.if.no.acl.found`. One prefixed
   entry of one user therefore shuts all others out of everything below that prefix.
5. The operation is denied.

Decisions are cached per client, that is principal and host, and dropped when the entries change. A cached decision is
one look-up in a dict: handlers of frequent requests take `decisions(...)` once per request.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final
from uuid import UUID

from rookery.base.codes import AclOperation, AclPermission, AclResourceType, PatternType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.values import value_class
from rookery.protocol.principal import Principal
from rookery.security.acl_index import AclIndex
from rookery.security.acls import EVERY_PRINCIPAL, WILDCARD, AclBinding

# The cached clients, and the cached decisions about one operation of a client. A cache that is full is emptied: clients
# that ask for random names must not use up the memory.
CLIENTS_MAX: Final = 4_096
DECISIONS_MAX: Final = 16_384
_TYPE_BITS: Final = 4

# The operations of entries that allow an operation; every operation is allowed by itself and by ALL.
_ALLOWED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation
} | {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
# Kafka asks for this name to find out whether a client may write to any topic without an entry for it.
_ANY_NAME: Final = "hardcode"


class Rule(Enum):
    """What decides. The values are the words of Kafka's log."""

    SUPER_USER = "SuperUser"
    ENTRY = "MatchingAcl"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"
    # Not a rule of Kafka: the topic of the audit log, which no ACL opens to others.
    RESERVED = "Reserved"


@value_class
class Decision:
    """Whether an operation is allowed, and what decides: `entry` if the rule is ENTRY."""

    allowed: bool
    rule: Rule
    entry: AclBinding | None = None


_SUPER_USER: Final = Decision(True, Rule.SUPER_USER)
_DEFAULT_ALLOW: Final = Decision(True, Rule.DEFAULT_ALLOW)
_DEFAULT_DENY: Final = Decision(False, Rule.DEFAULT_DENY)
_RESERVED: Final = Decision(False, Rule.RESERVED)


class Decisions(dict[str, Decision]):
    """The decisions about one operation of a client, by the resource's name; made when a name is looked up first."""

    __slots__ = ("_decide",)

    def __init__(self, decide: Callable[[str], Decision]) -> None:
        super().__init__()
        self._decide = decide

    def __missing__(self, name: str) -> Decision:
        if len(self) >= DECISIONS_MAX:
            self.clear()
        decision = self[name] = self._decide(name)
        return decision


class ClientDecisions:
    """The decisions about one client. They are valid as long as `version` is the authorizer's."""

    __slots__ = (
        "_authorizer",
        "_by_operation",
        "_by_type",
        "host",
        "principal",
        "readable_topics",
        "version",
        "writable_topics",
    )

    def __init__(self, authorizer: "Authorizer", principal: str, host: str) -> None:
        self._authorizer = authorizer
        self.version = authorizer.version
        self.principal = principal
        self.host = host
        # By operation and type of resources as one number: hashing members of an Enum is slow.
        self._by_operation: dict[int, Decisions] = {}
        self._by_type: dict[int, Decision] = {}
        # The questions of Produce and Fetch, which have no time to look for them.
        self.readable_topics = self.decisions(AclOperation.READ, AclResourceType.TOPIC)
        self.writable_topics = self.decisions(AclOperation.WRITE, AclResourceType.TOPIC)

    def decisions(self, operation: AclOperation, resource_type: AclResourceType) -> Decisions:
        """Return the decisions about an operation on resources of a type, by their names."""
        key = operation << _TYPE_BITS | resource_type
        found = self._by_operation.get(key)
        if found is None:
            decide, principal, host = self._authorizer.decide, self.principal, self.host
            found = self._by_operation[key] = Decisions(
                lambda name: decide(principal, host, operation, resource_type, name)
            )
        return found

    def on_any(self, operation: AclOperation, resource_type: AclResourceType) -> Decision:
        """Decide whether the client may perform an operation on at least one resource of a type."""
        key = operation << _TYPE_BITS | resource_type
        found = self._by_type.get(key)
        if found is None:
            found = self._authorizer.decide_on_any(self.principal, self.host, operation, resource_type)
            self._by_type[key] = found
        return found


class Authorizer:
    """The entries of a cluster and the settings, and the decisions by them.

    `reserved_topics` are open to super users only. `is_loaded` is False until the entries have been loaded for the
    first time: only super users are allowed before, so that the nodes of a cluster can start.
    """

    def __init__(
        self,
        *,
        super_users: Collection[str] = (),
        allow_if_no_acl: bool = False,
        reserved_topics: Collection[str] = (),
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl = allow_if_no_acl
        self.reserved_topics = frozenset(reserved_topics)
        self.is_loaded = False
        # Counts the changes of the entries.
        self.version = 0
        self.index = AclIndex()
        self._clients: dict[tuple[str, str, str], ClientDecisions] = {}

    def load(self, acls: Mapping[UUID, AclBinding]) -> None:
        """Make the entries equal to `acls`."""
        known = self.index.entries
        self.change(dict.fromkeys(known.keys() - acls.keys()))
        self.change({entry_id: acl for entry_id, acl in acls.items() if known.get(entry_id) != acl})
        self.is_loaded = True

    def change(self, changes: Mapping[UUID, AclBinding | None]) -> None:
        """Add or replace entries, and remove those that are None."""
        for entry_id, acl in changes.items():
            if acl is None:
                self.index.remove(entry_id)
            else:
                self.index.put(entry_id, acl)
        self._clients.clear()
        self.version += 1

    def client(self, principal: Principal, host: str) -> ClientDecisions:
        """Return the decisions about a client."""
        key = (principal.type, principal.name, host)
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            found = self._clients[key] = ClientDecisions(self, principal_text(principal), host)
        return found

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        resource_name: str,
    ) -> bool:
        return self.client(principal, host).decisions(operation, resource_type)[resource_name].allowed

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        """Decide without the cache; `principal` as in entries, for example `User:alice`."""
        if principal in self.super_users:
            return _SUPER_USER
        if name in self.reserved_topics and resource_type is AclResourceType.TOPIC:
            return _RESERVED
        if not self.is_loaded:
            # As in Kafka: an error that nodes and clients retry, not a denial that would end them.
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the ACLs are not loaded yet")
        is_touched, allowing = False, None
        for section in self.index.touching(resource_type, name):
            is_touched = True
            for each in (principal, EVERY_PRINCIPAL):
                for entry in section.get(each, ()):
                    if applies(entry, host, operation):
                        if entry.permission != AclPermission.ALLOW:
                            return Decision(False, Rule.ENTRY, entry)
                        allowing = allowing or entry
        if allowing is not None:
            return Decision(True, Rule.ENTRY, allowing)
        return _DEFAULT_ALLOW if self.allow_if_no_acl and not is_touched else _DEFAULT_DENY

    def decide_on_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> Decision:
        """Decide whether an operation is allowed on at least one resource of a type.

        As in Kafka, an entry counts if its operation is this one or ALL, without implications; one that allows counts
        unless entries deny its whole pattern.
        """
        anything = self.decide(principal, host, operation, resource_type, _ANY_NAME)
        if anything.allowed:
            return anything
        entries = [
            entry
            for entry in self.index.of_principals(resource_type, {principal, EVERY_PRINCIPAL})
            if entry.host in (host, WILDCARD) and entry.operation in (operation, AclOperation.ALL)
        ]
        denied = {
            (entry.pattern.pattern_type, entry.pattern.name): entry
            for entry in entries
            if entry.permission == AclPermission.DENY
        }
        if (everything := denied.get((PatternType.LITERAL, WILDCARD))) is not None:
            return Decision(False, Rule.ENTRY, everything)
        for entry in entries:
            if entry.permission == AclPermission.ALLOW and not _is_covered(entry, denied):
                return Decision(True, Rule.ENTRY, entry)
        return _DEFAULT_DENY


def principal_text(principal: Principal) -> str:
    """Return a principal as in entries and in `super.users`."""
    return f"{principal.type}:{principal.name}"


def applies(entry: AclBinding, host: str, operation: AclOperation) -> bool:
    """Return whether an entry is about an operation from a host. Its pattern and principal are not compared."""
    if entry.host not in (host, WILDCARD):
        return False
    if entry.permission == AclPermission.ALLOW:
        return entry.operation in _ALLOWED_BY[operation]
    return entry.operation in (operation, AclOperation.ALL)


def _is_covered(entry: AclBinding, denied: Mapping[tuple[PatternType, str], AclBinding]) -> bool:
    """Return whether every resource of an entry is denied. The wildcard is covered by itself only."""
    name, pattern_type = entry.pattern.name, entry.pattern.pattern_type
    if pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
