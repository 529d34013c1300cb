"""Explains a decision of the authorizer: which rule decides, and what would have to change for the opposite. Pure."""

from collections.abc import Iterator
from enum import Enum

from rookery.base.codes import AclOperation, AclPermission, AclResourceType
from rookery.base.values import value_class
from rookery.security.acls import EVERY_PRINCIPAL, WILDCARD, AclBinding, ResourcePattern
from rookery.security.authorizer import Authorizer, Decision, Rule, applies


class ChangeKind(Enum):
    ADD = "add"
    REMOVE = "remove"


@value_class
class EntryChange:
    """An entry to add or to remove."""

    kind: ChangeKind
    entry: AclBinding


@value_class(kw_only=True)
class Explanation:
    """A decision, and what it depends on.

    `setting` names the setting that decides in place of an entry. `touching` are all entries about the resource, of all
    principals. `nearly` are those of the principal that do not apply, because of their host or their operation.
    `changes` would turn the decision into its opposite; there are none for a super user, whose name would have to be
    removed from `super.users`, and for the topic of the audit log, which is open to super users only.
    """

    decision: Decision
    setting: str | None
    touching: tuple[AclBinding, ...]
    nearly: tuple[AclBinding, ...]
    changes: tuple[EntryChange, ...]


def explain(
    authorizer: Authorizer,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str,
) -> Explanation:
    """Explain the decision for `principal` (as `User:alice`) about an operation on one resource."""
    decision = authorizer.decide(principal, host, operation, resource_type, name)
    touching = tuple(
        entry
        for section in authorizer.index.touching(resource_type, name)
        for entries in section.values()
        for entry in entries
    )
    own = [entry for entry in touching if entry.principal in (principal, EVERY_PRINCIPAL)]
    applying = [entry for entry in own if applies(entry, host, operation)]
    wanted = AclBinding(ResourcePattern(resource_type, name), principal, WILDCARD, operation, AclPermission.ALLOW)
    return Explanation(
        decision=decision,
        setting=_setting(decision, touching),
        touching=touching,
        nearly=tuple(entry for entry in own if entry not in applying),
        changes=tuple(_changes(decision, applying, wanted)),
    )


def _setting(decision: Decision, touching: tuple[AclBinding, ...]) -> str | None:
    if decision.rule is Rule.SUPER_USER:
        return "super.users"
    if decision.rule is Rule.RESERVED:
        return "rookery.audit.topic"
    return "allow.everyone.if.no.acl.found" if decision.rule is not Rule.ENTRY and not touching else None


def _changes(decision: Decision, applying: list[AclBinding], wanted: AclBinding) -> Iterator[EntryChange]:
    """Yield what would turn the decision into its opposite.

    `applying` are the entries about the operation; `wanted` is the narrowest entry that allows it.
    """
    if decision.rule in (Rule.SUPER_USER, Rule.RESERVED):
        return
    if decision.allowed:
        # Removing the entries that allow is not enough where others, or the setting, allow too.
        denying = AclBinding(wanted.pattern, wanted.principal, WILDCARD, wanted.operation, AclPermission.DENY)
        yield EntryChange(ChangeKind.ADD, denying)
        return
    for entry in applying:
        if entry.permission != AclPermission.ALLOW:
            yield EntryChange(ChangeKind.REMOVE, entry)
    if not any(entry.permission == AclPermission.ALLOW for entry in applying):
        yield EntryChange(ChangeKind.ADD, wanted)
