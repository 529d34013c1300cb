"""`rookery keys`: create, list, revoke."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookery.client.admin import AclBinding, Admin, ScramMechanism

app = App(help="Create, list and revoke keys: users with a generated secret and the rules that they need.")

_ITERATIONS = 8192

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key, which is a user.")]
ExistingName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the key.", autocompletion=completion.users)
]
Produce = Annotated[
    list[str] | None,
    typer.Option(
        "--produce", metavar="TOPIC", help="Allow to write to a topic. Repeatable.", autocompletion=completion.topics
    ),
]
Consume = Annotated[
    list[str] | None,
    typer.Option(
        "--consume", metavar="TOPIC", help="Allow to read a topic. Repeatable.", autocompletion=completion.topics
    ),
]


@app.command(
    "create",
    epilog="Examples:\n\nrookery keys create order-service --produce orders"
    "\n\nrookery keys create billing --consume orders --group billing --json"
    "\n\nrookery keys create billing --consume orders --group billing --format librdkafka > billing.conf",
)
def create(
    name: Name,
    produce: Produce = None,
    consume: Consume = None,
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP", help="The group of --consume. Repeatable."),
    ] = None,
    transactional_ids: Annotated[
        list[str] | None,
        typer.Option("--transactional-id", metavar="ID", help="Allow transactions with an id. Repeatable."),
    ] = None,
    prefix: Annotated[bool, typer.Option("--prefix", help="All names are prefixes.")] = False,
    mechanism: Annotated[
        str, typer.Option("--mechanism", metavar="MECHANISM", help="SCRAM-SHA-512 or SCRAM-SHA-256.")
    ] = "SCRAM-SHA-512",
    kind: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="Print only settings for java, librdkafka or rookery."),
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create a user with a generated secret and the rules to produce or consume, and print its client settings.

    The secret is shown once: the cluster stores only a hash of it.
    """
    from rookery.cli.key_rules import KeyUse, key_entries
    from rookery.cli.key_settings import FORMATS, key_login, settings_of
    from rookery.cli.option_values import parse_words
    from rookery.cli.scram_words import parse_mechanism
    from rookery.security.passwords import new_password

    chosen = parse_words([kind], FORMATS, "--format") if kind is not None else []
    use = KeyUse(
        produce=produce or (),
        consume=consume or (),
        groups=groups or (),
        transactional_ids=transactional_ids or (),
        prefix=prefix,
    )
    entries, scram, password = key_entries(name, use), parse_mechanism(mechanism), new_password()
    settings = settings_of(key_login(name, password, scram, bootstrap_server))
    with_admin(bootstrap_server, timeout_s, lambda admin: _create(admin, name, password, scram, entries))
    _print_key(name, entries, settings, chosen, as_json=as_json)


@app.command("list", epilog="Example: rookery keys list --json")
def list_(
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the users that have both a password and rules, with what they may produce and consume."""
    from rookery.cli.output import print_json, print_table

    rows = with_admin(bootstrap_server, timeout_s, _list)
    if as_json:
        print_json(rows)
        return
    cells = [
        (row["key"], *(", ".join(row[use]) or None for use in ("produce", "consume", "groups")), row["rules"])
        for row in rows
    ]
    print_table(["KEY", "PRODUCE", "CONSUME", "GROUPS", "RULES"], cells)


@app.command("revoke", epilog="Example: rookery keys revoke order-service")
def revoke(
    name: ExistingName,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete a key: its password and all its rules. Asks first. Its clients cannot log in again."""
    from rookery.cli.acl_words import counted
    from rookery.cli.output import confirm, print_json

    confirm(f"Revoke key {name}, with all rules of this user?", yes=yes)
    deleted = with_admin(bootstrap_server, timeout_s, lambda admin: _revoke(admin, name))
    if as_json:
        print_json({"key": name, "deleted_rules": deleted})
    else:
        typer.echo(f"revoked key {name} and deleted {counted(deleted, 'rule')}")


async def _create(
    admin: "Admin", name: str, password: str, mechanism: "ScramMechanism", entries: "Sequence[AclBinding]"
) -> None:
    """Create the user, then its rules. If a rule fails, delete the user: half a key would look like a whole one."""
    from rookery.base.errors import ApiError
    from rookery.cli.acl_words import counted
    from rookery.cli.errors import CommandError
    from rookery.cli.scram_users import create_user, delete_user, find_user, rules_of

    if await find_user(admin, name) is not None:
        raise CommandError(f"there is a user {name} already: revoke it first, or choose another name")
    if remaining := await rules_of(admin, name):
        # They would be rules of the new key, too.
        rules = counted(len(remaining), "rule")
        raise CommandError(
            f"an earlier user {name} has left {rules}: delete them first with rookery acls delete --user {name}, or "
            "choose another name"
        )
    await create_user(admin, name, password, [mechanism], _ITERATIONS)
    try:
        for outcome in await admin.create_acls(entries):
            outcome.check()
    except ApiError:
        await delete_user(admin, name)
        raise


async def _list(admin: "Admin") -> list[dict[str, Any]]:
    from rookery.cli.acl_words import principal_of
    from rookery.cli.key_rules import summary

    users = await admin.describe_scram_users()
    entries = await admin.describe_acls()
    rows = []
    for user in users:
        theirs = [entry for entry in entries if entry.principal == principal_of(user.name)]
        if theirs:
            names = [mechanism.mechanism_name for mechanism in user.iterations]
            rows.append({"key": user.name, "mechanisms": names, **summary(theirs), "rules": len(theirs)})
    return rows


async def _revoke(admin: "Admin", name: str) -> int:
    """Delete the password first: clients with half of the rules would fail in strange ways."""
    from rookery.cli.acl_words import principal_of
    from rookery.cli.scram_users import delete_user
    from rookery.client.admin import AclFilter

    await delete_user(admin, name)
    (outcome,) = await admin.delete_acls([AclFilter(principal=principal_of(name))])
    return len(outcome.check().acls)


def _print_key(
    name: str,
    entries: "Sequence[AclBinding]",
    settings: dict[str, dict[str, str]],
    chosen: list[str],
    *,
    as_json: bool,
) -> None:
    from rookery.cli.acl_words import entry_json, entry_text
    from rookery.cli.key_settings import FORMATS, connects_without_login, settings_text
    from rookery.cli.output import print_json

    if as_json:
        shown = {kind: settings[kind] for kind in chosen or FORMATS}
        print_json({"key": name, "rules": [entry_json(entry) for entry in entries], "settings": shown})
    elif chosen:
        typer.echo(settings_text(chosen[0], settings[chosen[0]]), nl=False)
    else:
        for entry in entries:
            typer.echo(f"added: {entry_text(entry)}", err=True)
        titles = {
            "java": "Java",
            "librdkafka": "librdkafka: confluent-kafka, kcat",
            "rookery": "Rookery's Python client",
        }
        blocks = [f"# {titles[kind]}\n{settings_text(kind, settings[kind])}" for kind in FORMATS]
        typer.echo("\n".join(blocks), nl=False)
    if connects_without_login():
        typer.echo(
            "note: this command uses a listener without login. In the settings, put the address of a listener with "
            "SASL into bootstrap.servers.",
            err=True,
        )
