"""`rookery schemas`: register, list, get, check, delete, config, mode."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_REGISTRY, Json, Registry, Yes
from rookery.cli.registry_access import connect_registry, read_schema

if TYPE_CHECKING:
    from rookery.serdes.client import RegistryClient
    from rookery.serdes.entities import RegisteredSchema, Schema

app = App(help="Register, compare and delete the schemas of a schema registry.")

_INCOMPATIBLE = 409

RegistrySet = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the connection, such as ssl.ca.location=FILE. Repeatable."
    ),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="The subject; TOPIC-value for the values of a topic.",
        autocompletion=completion.subjects,
    ),
]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto; - for standard input.")
]
Type = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="AVRO, JSON or PROTOBUF. Default: by the file's extension.")
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="A schema that this one uses. Repeatable."),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Compare schemas in a normal form.")]
AnyVersion = Annotated[str, typer.Option("--version", metavar="VERSION", help="A number, or latest.")]


@app.command("register", epilog="Example: rookery schemas register orders-value order.avsc")
def register(
    subject: Subject,
    file: SchemaFile,
    schema_type: Type = None,
    references: References = None,
    normalize: Normalize = False,
    as_json: Json = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Register a schema as a new version of a subject. An identical schema makes no new version."""
    from rookery.cli.errors import CommandError
    from rookery.cli.output import print_json
    from rookery.serdes.errors import RegistryRequestError

    schema = read_schema(file, schema_type, references)
    with connect_registry(registry, settings) as client:
        try:
            client.register(subject, schema, normalize=normalize)
        except RegistryRequestError as error:
            if error.code == _INCOMPATIBLE and _print_if_incompatible(
                client, subject, schema, None, normalize=normalize
            ):
                raise CommandError("the schema was not registered") from None
            raise
        registered = client.look_up(subject, schema, normalize=normalize)
    if as_json:
        print_json(_as_json(registered))
    else:
        typer.echo(f"{subject} version {registered.version} has id {registered.id}")


@app.command("list", epilog="Examples:\n\nrookery schemas list --prefix orders\n\nrookery schemas list orders-value")
def list_(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]", help="Show the versions of this subject.", autocompletion=completion.subjects
        ),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only subjects that begin with this.")] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Include versions that were deleted, but not permanently.")
    ] = False,
    as_json: Json = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Show subjects with their latest version, or all versions of a subject."""
    from rookery.cli.output import print_json, print_table

    with connect_registry(registry, settings) as client:
        if subject is None:
            found = client.list_schemas(prefix=prefix, latest_only=True, deleted=deleted)
        else:
            versions = client.list_versions(subject, deleted=deleted)
            found = [client.get_version(subject, version, deleted=deleted) for version in versions]
    if as_json:
        print_json([_as_json(each) for each in found])
        return
    columns = ["SUBJECT", "VERSION" if subject else "LATEST", "ID", "TYPE", "REFERENCES"]
    print_table(columns, [_row(each) for each in found])


@app.command("get", epilog="Examples:\n\nrookery schemas get orders-value --version 2\n\nrookery schemas get --id 7")
def get(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]", help="The subject, unless --id is given.", autocompletion=completion.subjects
        ),
    ] = None,
    version: AnyVersion = "latest",
    schema_id: Annotated[
        int | None, typer.Option("--id", metavar="ID", help="The schema id, which records contain.")
    ] = None,
    as_json: Json = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Print a schema, by subject and version or by id."""
    from rookery.cli.output import print_json
    from rookery.cli.schema_texts import readable

    if (subject is None) == (schema_id is None):
        raise typer.BadParameter("give either a subject or --id")
    with connect_registry(registry, settings) as client:
        if schema_id is not None:
            schema = client.get_by_id(schema_id)
            described: dict[str, Any] = {"id": schema_id, **_schema_as_json(schema)}
        else:
            registered = client.get_version(subject or "", _version(version))
            schema, described = registered.schema, _as_json(registered)
    if as_json:
        print_json(described)
    else:
        typer.echo(readable(schema))


@app.command("check", epilog="Example: rookery schemas check orders-value order.avsc --version 1")
def check(
    subject: Subject,
    file: SchemaFile,
    schema_type: Type = None,
    references: References = None,
    normalize: Normalize = False,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", metavar="VERSION", help="Compare with this version instead of those that the level requires."
        ),
    ] = None,
    as_json: Json = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Check whether a schema is compatible with a subject. If it is not, print the reasons and exit with 1."""
    from rookery.cli.errors import FAILED
    from rookery.cli.output import print_json

    schema = read_schema(file, schema_type, references)
    with connect_registry(registry, settings) as client:
        chosen = None if version is None else _version(version)
        if as_json:
            found = client.test_compatibility(subject, schema, version=chosen, normalize=normalize)
            print_json({"is_compatible": found.is_compatible, "messages": list(found.messages)})
            fits = found.is_compatible
        else:
            fits = not _print_if_incompatible(client, subject, schema, chosen, normalize=normalize)
    if not fits:
        raise typer.Exit(FAILED)
    if not as_json:
        typer.echo(f"compatible with {subject}")


@app.command("delete", epilog="Example: rookery schemas delete orders-value --version 1")
def delete(
    subject: Subject,
    version: Annotated[
        str | None, typer.Option("--version", metavar="VERSION", help="Only this version: a number, or latest.")
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option("--permanent", help="Remove a deleted version for good; its records become unreadable."),
    ] = False,
    yes: Yes = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Delete a subject or one of its versions. Deleted schemas can still be read by id, unless --permanent is given."""
    from rookery.cli.output import confirm

    what = subject if version is None else f"version {version} of {subject}"
    confirm(f"Delete {what}{' permanently' if permanent else ''}?", yes=yes)
    with connect_registry(registry, settings) as client:
        if version is None:
            versions = client.delete_subject(subject, permanent=permanent)
        else:
            versions = [client.delete_version(subject, _version(version), permanent=permanent)]
    typer.echo(f"deleted {subject}, version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))}")


@app.command(
    "config",
    epilog="Examples:\n\nrookery schemas config\n\nrookery schemas config orders-value --level FULL_TRANSITIVE",
)
def config(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]", help="The subject. Default: all subjects.", autocompletion=completion.subjects
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="BACKWARD, FORWARD, FULL, each also with _TRANSITIVE, or NONE."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="POLICY", help="STRICT, or LENIENT: JSON Schemas may gain and lose properties."
        ),
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Normalize schemas when they are registered.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Reset to the default.")] = False,
    as_json: Json = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Show or change the compatibility level."""
    from rookery.cli.output import print_json

    with connect_registry(registry, settings) as client:
        if reset:
            client.delete_config(subject)
        if (level, policy, normalize) != (None, None, None):
            client.put_config(level, subject=subject, normalize=normalize, policy=policy)
        found = client.get_config(subject, default_to_global=subject is not None)
    if as_json:
        print_json({"subject": subject, **found._asdict()})
    else:
        chosen = [found.compatibility_level, found.compatibility_policy, "normalized" if found.normalize else None]
        typer.echo(f"{subject or 'all subjects'}: {', '.join(filter(None, chosen))}")


@app.command("mode", epilog="Example: rookery schemas mode orders-value --to READONLY")
def mode(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]", help="The subject. Default: all subjects.", autocompletion=completion.subjects
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="MODE", help="READWRITE, READONLY, READONLY_OVERRIDE, or IMPORT (with given ids)."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Change to IMPORT even if schemas exist.")] = False,
    as_json: Json = False,
    registry: Registry = DEFAULT_REGISTRY,
    settings: RegistrySet = None,
) -> None:
    """Show or change the mode, which decides whether schemas can be registered."""
    from rookery.cli.output import print_json

    with connect_registry(registry, settings) as client:
        if to is not None:
            client.put_mode(to, subject=subject, force=force)
        found = client.get_mode(subject, default_to_global=subject is not None)
    if as_json:
        print_json({"subject": subject, "mode": found})
    else:
        typer.echo(f"{subject or 'all subjects'}: {found}")


def _version(text: str) -> Any:
    if text != "latest" and not text.isdecimal():
        raise typer.BadParameter(f"'{text}' must be a number or latest", param_hint="--version")
    return text if text == "latest" else int(text)


def _print_if_incompatible(
    client: "RegistryClient", subject: str, schema: "Schema", version: Any, *, normalize: bool
) -> bool:
    """Print the incompatibilities and the differences, if there are any; return whether there are."""
    from rookery.cli.schema_texts import print_incompatibilities

    found = client.test_compatibility(subject, schema, version=version, normalize=normalize)
    if not found.is_compatible:
        print_incompatibilities(client.get_version(subject, version or "latest"), schema, found.messages)
    return not found.is_compatible


def _row(registered: "RegisteredSchema") -> "tuple[str, int, int, str, str | None]":
    references = ", ".join(f"{each.subject}:{each.version}" for each in registered.schema.references)
    kind = registered.schema.schema_type
    return registered.subject, registered.version, registered.id, kind, references or None


def _as_json(registered: "RegisteredSchema") -> dict[str, Any]:
    identity = {"subject": registered.subject, "version": registered.version, "id": registered.id}
    return identity | _schema_as_json(registered.schema)


def _schema_as_json(schema: "Schema") -> dict[str, Any]:
    references = [reference._asdict() for reference in schema.references]
    return {"type": schema.schema_type, "references": references, "schema": schema.text}
