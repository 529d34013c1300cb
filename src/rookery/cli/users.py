"""`rookery users`: create, list, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.client.admin import Admin, ScramUser

app = App(help="Create, list and delete the users that log in with a password (SCRAM).")

_ITERATIONS = 8192

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name, without User: in front.")]
Names = Annotated[
    list[str], typer.Argument(metavar="USER...", help="One or more users.", autocompletion=completion.users)
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="MECHANISM", help="SCRAM-SHA-512 (default) or SCRAM-SHA-256. Repeatable."),
]
Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", help="How often the password is hashed, 4096 to 16384.")
]


@app.command(
    "create",
    epilog="Examples:\n\nrookery users create alice\n\nrookery users create alice --generate --json"
    "\n\nrookery users create alice --password-file alice.secret --replace",
)
def create(
    name: Name,
    password_file: Annotated[
        str | None,
        typer.Option("--password-file", metavar="FILE", help="A file with the password; - is standard input."),
    ] = None,
    generate: Annotated[bool, typer.Option("--generate", help="Generate a password and print it.")] = False,
    mechanisms: Mechanisms = None,
    iterations: Iterations = _ITERATIONS,
    replace: Annotated[bool, typer.Option("--replace", help="Set the password of a user that exists already.")] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create a user. Asks for the password, unless it is in a file or generated; only a hash of it is sent."""
    from rookery.cli.output import print_json
    from rookery.cli.passwords import read_password
    from rookery.cli.scram_users import create_user
    from rookery.cli.scram_words import check_iterations, parse_mechanisms
    from rookery.security.passwords import new_password

    if generate and password_file is not None:
        raise typer.BadParameter("give only one of --generate and --password-file", param_hint="--generate")
    wanted = parse_mechanisms(mechanisms or [])
    check_iterations(iterations)
    _check_name(name)
    password = new_password() if generate else read_password(name, password_file)
    with_admin(
        bootstrap_server,
        timeout_s,
        lambda admin: create_user(admin, name, password, wanted, iterations, replace=replace),
    )
    names = [mechanism.mechanism_name for mechanism in wanted]
    if as_json:
        shown = {"password": password} if generate else {}
        print_json({"user": name, "mechanisms": names, "iterations": iterations, **shown})
        return
    typer.echo(f"{'set the password of' if replace else 'created'} user {name} ({', '.join(names)})")
    if generate:
        typer.echo(f"password: {password}")


@app.command("list", epilog="Example: rookery users list --json")
def list_(
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the users with a password. Users by certificate, token or Kerberos are not stored in the cluster."""
    from rookery.cli.output import print_json, print_table

    users = with_admin(bootstrap_server, timeout_s, lambda admin: admin.describe_scram_users())
    if as_json:
        print_json([_as_json(user) for user in users])
        return
    rows = [
        (user.name, mechanism.mechanism_name, iterations)
        for user in users
        for mechanism, iterations in user.iterations.items()
    ]
    print_table(["USER", "MECHANISM", "ITERATIONS"], rows)


@app.command("delete", epilog="Example: rookery users delete alice")
def delete(
    names: Names,
    mechanisms: Mechanisms = None,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete users, or their passwords for some mechanisms. Asks first. Their rules stay."""
    from rookery.cli.acl_words import counted
    from rookery.cli.output import confirm, print_json
    from rookery.cli.scram_users import delete_user
    from rookery.cli.scram_words import parse_mechanisms

    wanted = parse_mechanisms(mechanisms) if mechanisms else []
    confirm(f"Delete {'user' if len(names) == 1 else 'users'} {', '.join(names)}?", yes=yes)

    async def work(admin: "Admin") -> list[Any]:
        return [await delete_user(admin, name, wanted) for name in names]

    removed = with_admin(bootstrap_server, timeout_s, work)
    if as_json:
        rows = [
            {
                "user": user.name,
                "mechanisms": [mechanism.mechanism_name for mechanism in user.mechanisms],
                "remaining_rules": len(user.rules),
            }
            for user in removed
        ]
        print_json(rows)
        return
    for user in removed:
        typer.echo(f"deleted user {user.name}")
        if user.rules:
            typer.echo(
                f"{counted(len(user.rules), 'rule')} of {user.name} left, for a later user of this name, too: "
                f"rookery acls delete --user {user.name}",
                err=True,
            )


def _check_name(name: str) -> None:
    if not name or name.startswith("User:"):
        raise typer.BadParameter(f"'{name}' must be the bare name, as in alice", param_hint="USER")


def _as_json(user: "ScramUser") -> dict[str, Any]:
    return {
        "user": user.name,
        "mechanisms": [
            {"mechanism": mechanism.mechanism_name, "iterations": iterations}
            for mechanism, iterations in user.iterations.items()
        ],
    }
