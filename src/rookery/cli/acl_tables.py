"""Prints the rules of access control, and explanations of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from rookery.base.codes import AclPermission
from rookery.base.values import value_class
from rookery.cli.acl_words import counted, entry_json, entry_text, options_text, pattern_text, sort_key, user_of, word
from rookery.cli.output import Styled, print_json, print_table
from rookery.security.authorizer import Rule
from rookery.security.explanations import ChangeKind, EntryChange, Explanation

if TYPE_CHECKING:
    from rookery.cli.output import Cell
    from rookery.security.acls import AclBinding, ResourcePattern


@value_class(kw_only=True)
class Question:
    """May `principal` perform `operation` on a resource from `host`?"""

    principal: str
    host: str
    operation: str
    pattern: "ResourcePattern"

    def __str__(self) -> str:
        where = "" if self.host == "*" else f" from {self.host}"
        return f"user {user_of(self.principal)} {{}} {self.operation} {pattern_text(self.pattern)}{where}"


def print_entries(entries: "Sequence[AclBinding]", *, as_json: bool) -> None:
    ordered = sorted(entries, key=sort_key)
    if as_json:
        print_json([entry_json(entry) for entry in ordered])
        return
    print_table(
        ["RESOURCE", "NAME", "PATTERN", "USER", "PERMISSION", "OPERATION", "HOST"], [_row(entry) for entry in ordered]
    )


def _row(entry: "AclBinding") -> "list[Cell]":
    style = "green" if entry.permission is AclPermission.ALLOW else "bold red"
    return [
        word(entry.pattern.type),
        entry.pattern.name,
        word(entry.pattern.pattern_type),
        user_of(entry.principal),
        Styled(word(entry.permission), style),
        word(entry.operation),
        entry.host,
    ]


def print_explanation(question: Question, found: Explanation, settings: "Mapping[str, str] | None") -> None:
    """Print a decision, the rule that makes it, and what would change it; `settings` is None if they are not known."""
    allowed = found.decision.allowed
    verdict = str(question).format("may" if allowed else "may not")
    typer.secho(f"{'ALLOWED' if allowed else 'DENIED'}: {verdict}", fg="green" if allowed else "red", bold=True)
    typer.echo(f"because {_reason(found)}")
    if settings is None:
        typer.echo(
            "note: super.users and allow.everyone.if.no.acl.found could not be read, which needs describe-configs on "
            "the cluster, and which Apache Kafka never shows; this assumes that both are unset"
        )
    if found.nearly:
        typer.echo("\nThese rules of the user are about the resource, but not about this operation and host:")
        for entry in found.nearly:
            typer.echo(f"  {entry_text(entry)}")
    typer.echo(f"\nTo {'deny' if allowed else 'allow'} it:")
    for line in change_lines(found.changes) or ["  remove the user from super.users in the settings of all nodes"]:
        typer.echo(line)


def explanation_json(question: Question, found: Explanation, settings: "Mapping[str, str] | None") -> dict[str, Any]:
    return {
        "principal": question.principal,
        "operation": question.operation.upper().replace("-", "_"),
        "resource_type": question.pattern.type.name,
        "resource": question.pattern.name,
        "host": question.host,
        "allowed": found.decision.allowed,
        "rule": found.decision.rule.value,
        "entry": None if found.decision.entry is None else entry_json(found.decision.entry),
        "setting": found.setting,
        "settings_known": settings is not None,
        "touching": [entry_json(entry) for entry in found.touching],
        "not_applying": [entry_json(entry) for entry in found.nearly],
        "changes": [
            {"change": change.kind.value, "entry": entry_json(change.entry), "command": _command(change)}
            for change in found.changes
        ],
    }


def change_lines(changes: Sequence[EntryChange]) -> list[str]:
    return [f"  {_command(change)}" for change in changes]


def _command(change: EntryChange) -> str:
    verb = "add" if change.kind is ChangeKind.ADD else "delete"
    return f"rookery acls {verb} {options_text(change.entry)}"


def _reason(found: Explanation) -> str:
    match found.decision.rule:
        case Rule.SUPER_USER:
            return "the user is in super.users"
        case Rule.ENTRY:
            assert found.decision.entry is not None
            return f"of the rule: {entry_text(found.decision.entry)}"
        case Rule.DEFAULT_ALLOW:
            return "there is no rule about the resource, and allow.everyone.if.no.acl.found is true"
        case _ if found.touching:
            rules = counted(len(found.touching), "rule")
            return f"no rule allows it, and {rules} about the resource, of any user, close it to all others"
        case _:
            return "there is no rule about the resource, and allow.everyone.if.no.acl.found is false"
