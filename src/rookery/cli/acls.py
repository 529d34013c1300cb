"""`rookery acls`: add, list, delete, explain, preset."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookery.client.admin import AclBinding, AclFilter, Admin, ResourcePattern

app = App(help="Allow and deny users what they do with topics, groups and the cluster, and explain why.")

_ANY_HOST = "*"

User = Annotated[str, typer.Option("--user", "-u", metavar="NAME", help="A user; '*' stands for all users.")]
OptionalUser = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="Only rules of this user.")]
Operations = Annotated[
    list[str],
    typer.Option("--operation", "-o", metavar="OPERATION", help="read, write, create, ... or all. Repeatable."),
]
OptionalOperation = Annotated[
    str | None, typer.Option("--operation", "-o", metavar="OPERATION", help="Only rules about this operation.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="A topic. Repeatable.", autocompletion=completion.topics),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", metavar="GROUP", help="A group. Repeatable.", autocompletion=completion.groups),
]
TransactionalIds = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id. Repeatable.")
]
Tokens = Annotated[
    list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token. Repeatable.")
]
OfUsers = Annotated[
    list[str] | None, typer.Option("--of-user", metavar="NAME", help="A user whose tokens are made. Repeatable.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="All names that begin with the given ones.")]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The client's address; '*' is any.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow. A denial wins over all that allow.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the rules without adding them.")]


@app.command(
    "add",
    epilog="Examples:\n\nrookery acls add --user alice --operation read --topic orders"
    "\n\nrookery acls add -u billing -o write -o describe -t billing- --prefix"
    "\n\nrookery acls add -u mallory -o all -t '*' --deny",
)
def add(
    user: User,
    operations: Operations,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    tokens: Tokens = None,
    of_users: OfUsers = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    host: Host = _ANY_HOST,
    deny: Deny = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Add rules: one per operation and resource. A rule that exists already stays."""
    from rookery.base.codes import AclPermission
    from rookery.cli.acl_words import check_operations, parse_operation, principal_of
    from rookery.security.acls import AclBinding

    patterns = _patterns(topics, groups, transactional_ids, tokens, of_users, cluster=cluster, prefix=prefix)
    if not patterns:
        raise typer.BadParameter("name a resource: --topic, --group, --transactional-id, --cluster, ...")
    wanted = [parse_operation(operation) for operation in operations]
    check_operations(patterns, wanted)
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    principal = principal_of(user)
    entries = [AclBinding(pattern, principal, host, each, permission) for pattern in patterns for each in wanted]
    _add(entries, bootstrap_server, timeout_s, dry_run=dry_run, as_json=as_json)


@app.command(
    "preset",
    epilog="Examples:\n\nrookery acls preset producer --user orders-app --topic orders"
    "\n\nrookery acls preset consumer -u billing -t orders -g billing"
    "\n\nrookery acls preset streams -u totals --application totals -t orders --output-topic totals --dry-run",
)
def preset(
    name: Annotated[str, typer.Argument(metavar="PRESET", help="producer, consumer, connect, mirror or streams.")],
    user: User,
    topics: Topics = None,
    output_topics: Annotated[
        list[str] | None,
        typer.Option("--output-topic", metavar="TOPIC", help="A topic that a streams application writes. Repeatable."),
    ] = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    application: Annotated[
        str | None, typer.Option("--application", metavar="ID", help="The application.id of a streams application.")
    ] = None,
    prefix: Prefix = False,
    host: Host = _ANY_HOST,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Add the rules that a kind of program needs. With --dry-run, only show them."""
    from rookery.cli.acl_presets import PRESETS, PresetOptions, preset_entries
    from rookery.cli.acl_words import check_pattern, principal_of
    from rookery.cli.option_values import parse_words

    (chosen,) = parse_words([name], list(PRESETS), "PRESET")
    options = PresetOptions(
        topics=topics or (),
        output_topics=output_topics or (),
        groups=groups or (),
        transactional_ids=transactional_ids or (),
        application=application,
        prefix=prefix,
    )
    entries = preset_entries(chosen, options, principal_of(user), host)
    for entry in entries:
        check_pattern(entry.pattern)
    _add(entries, bootstrap_server, timeout_s, dry_run=dry_run, as_json=as_json)


@app.command("list", epilog="Examples:\n\nrookery acls list --topic orders\n\nrookery acls list --user alice --json")
def list_(
    user: OptionalUser = None,
    operation: OptionalOperation = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    tokens: Tokens = None,
    of_users: OfUsers = None,
    cluster: Cluster = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List rules. For a resource, all rules that touch it: its own, those of prefixes, and those for all."""
    from rookery.cli.acl_tables import print_entries

    patterns = _patterns(topics, groups, transactional_ids, tokens, of_users, cluster=cluster)
    filters = _filters(patterns, user, operation, covering=True)
    print_entries(with_admin(bootstrap_server, timeout_s, lambda admin: _find(admin, filters)), as_json=as_json)


@app.command(
    "delete",
    epilog="Examples:\n\nrookery acls delete --user alice --operation read --topic orders"
    "\n\nrookery acls delete --user mallory --yes",
)
def delete(
    user: OptionalUser = None,
    operation: OptionalOperation = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    tokens: Tokens = None,
    of_users: OfUsers = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Only rules for this host.")] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Only rules that deny.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete the rules that have everything that is named. Shows them and asks first."""
    patterns = _patterns(topics, groups, transactional_ids, tokens, of_users, cluster=cluster, prefix=prefix)
    if not patterns and user is None:
        raise typer.BadParameter("name a user or a resource: without one, all rules would be deleted")
    filters = _filters(patterns, user, operation, host=host, deny=deny)
    _delete(filters, bootstrap_server, timeout_s, yes=yes, as_json=as_json)


@app.command(
    "explain",
    epilog="Examples:\n\nrookery acls explain --user alice --operation write --topic orders"
    "\n\nrookery acls explain -u billing -o read -g billing --host 10.0.0.7 --json",
)
def explain(
    user: User,
    operation: Annotated[str, typer.Option("--operation", "-o", metavar="OPERATION", help="read, write, ...")],
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    tokens: Tokens = None,
    of_users: OfUsers = None,
    cluster: Cluster = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The client's address; '*' has no rules for single hosts.")
    ] = _ANY_HOST,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Say whether a user may perform an operation, which rule decides, and what would have to change.

    Exits with 0 whether it is allowed or not; --json has the field allowed.
    """
    from rookery.cli.acl_explanations import explain_question
    from rookery.cli.acl_tables import Question, explanation_json, print_explanation
    from rookery.cli.acl_words import check_operations, parse_operation, principal_of, word
    from rookery.cli.output import print_json

    patterns = _patterns(topics, groups, transactional_ids, tokens, of_users, cluster=cluster)
    if len(patterns) != 1:
        raise typer.BadParameter(f"name one resource, not {len(patterns)}: --topic, --group, --cluster, ...")
    (pattern,) = patterns
    wanted = parse_operation(operation)
    check_operations(patterns, [wanted])
    question = Question(principal=principal_of(user), host=host, operation=word(wanted), pattern=pattern)
    found, settings = with_admin(bootstrap_server, timeout_s, lambda admin: explain_question(admin, question, wanted))
    if as_json:
        print_json(explanation_json(question, found, settings))
    else:
        print_explanation(question, found, settings)


def _patterns(
    topics: list[str] | None,
    groups: list[str] | None,
    transactional_ids: list[str] | None,
    tokens: list[str] | None,
    of_users: list[str] | None,
    *,
    cluster: bool,
    prefix: bool = False,
) -> "list[ResourcePattern]":
    from rookery.cli.acl_words import Resources

    return Resources(
        topics=topics or (),
        groups=groups or (),
        transactional_ids=transactional_ids or (),
        tokens=tokens or (),
        users=of_users or (),
        cluster=cluster,
        prefix=prefix,
    ).patterns()


def _filters(
    patterns: "Sequence[ResourcePattern]",
    user: str | None,
    operation: str | None,
    *,
    covering: bool = False,
    host: str | None = None,
    deny: bool = False,
) -> "list[AclFilter]":
    """Return a filter per pattern, or one for all resources; `covering` selects every pattern that matches the name."""
    from dataclasses import replace

    from rookery.base.codes import AclOperation, AclPermission, PatternType
    from rookery.cli.acl_words import parse_operation, principal_of
    from rookery.client.admin import AclFilter

    common = AclFilter(
        principal=None if user is None else principal_of(user),
        host=host,
        operation=AclOperation.ANY if operation is None else parse_operation(operation),
        permission=AclPermission.DENY if deny else AclPermission.ANY,
    )
    return [
        replace(
            common,
            resource_type=pattern.type,
            resource_name=pattern.name,
            pattern_type=PatternType.MATCH if covering else pattern.pattern_type,
        )
        for pattern in patterns
    ] or [common]


def _add(
    entries: "Sequence[AclBinding]", bootstrap_server: str, timeout_s: float, *, dry_run: bool, as_json: bool
) -> None:
    """Add entries and show them; exit with 1 if one failed."""
    from rookery.base.errors import ErrorCode
    from rookery.cli.acl_tables import print_entries
    from rookery.cli.acl_words import entry_text
    from rookery.cli.errors import FAILED

    failed = False
    added = list(entries)
    if not dry_run:
        outcomes = with_admin(bootstrap_server, timeout_s, lambda admin: admin.create_acls(entries))
        added = [outcome.acl for outcome in outcomes if outcome.error is ErrorCode.NONE]
        for outcome in outcomes:
            if outcome.error is not ErrorCode.NONE:
                failed = True
                reason = f"{outcome.message or 'refused'} ({outcome.error.name})"
                typer.echo(f"error: {entry_text(outcome.acl)}: {reason}", err=True)
    if as_json:
        print_entries(added, as_json=True)
    else:
        for entry in added:
            typer.echo(f"{'would add' if dry_run else 'added'}: {entry_text(entry)}")
    if failed:
        raise typer.Exit(FAILED)


async def _find(admin: "Admin", filters: "Sequence[AclFilter]") -> "list[AclBinding]":
    found = [entry for each in filters for entry in await admin.describe_acls(each)]
    return list(dict.fromkeys(found))


def _delete(
    filters: "Sequence[AclFilter]", bootstrap_server: str, timeout_s: float, *, yes: bool, as_json: bool
) -> None:
    from rookery.cli.acl_tables import print_entries
    from rookery.cli.acl_words import entry_text
    from rookery.cli.errors import CommandError
    from rookery.cli.output import confirm

    found = with_admin(bootstrap_server, timeout_s, lambda admin: _find(admin, filters))
    if not found:
        raise CommandError("no rule has all of this: rookery acls list shows the rules")
    if not yes:
        for entry in found:
            typer.echo(f"  {entry_text(entry)}", err=True)
    confirm(f"Delete {'this rule' if len(found) == 1 else f'these {len(found)} rules'}?", yes=yes)
    outcomes = with_admin(bootstrap_server, timeout_s, lambda admin: admin.delete_acls(filters))
    deleted = [entry for outcome in outcomes for entry in outcome.check().acls]
    if as_json:
        print_entries(deleted, as_json=True)
        return
    for entry in deleted:
        typer.echo(f"deleted: {entry_text(entry)}")
