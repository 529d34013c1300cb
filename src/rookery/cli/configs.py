"""`rookery configs`: describe and alter the configs of topics and brokers."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.option_values import parse_pairs
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.cli.output import Cell
    from rookery.client.admin import ConfigChange, ConfigEntry, ConfigResource

app = App(help="Describe and alter the configs of topics and brokers.")

# The name of the cluster-wide defaults of all brokers in Kafka's tools.
_ALL_BROKERS = "default"


class Kind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"


KindArgument = Annotated[Kind, typer.Argument(help="What the configs belong to.", show_default=False)]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A topic, a broker's id, or 'default' for all brokers.",
        autocompletion=completion.resources,
    ),
]


@app.command(
    "describe",
    epilog="Examples:\n\nrookery configs describe topic orders\n\nrookery configs describe broker 1 --changed",
)
def describe(
    kind: KindArgument,
    name: NameArgument,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only configs that differ from the built-in default.")
    ] = False,
    documentation: Annotated[bool, typer.Option("--doc", help="Show what each config means.")] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show configs with their values and the sources of the values."""
    from rookery.cli.output import print_json, print_table

    resource = _resource(kind, name)
    (described,) = with_admin(
        bootstrap_server, timeout_s, lambda admin: admin.describe_configs([resource], documentation=documentation)
    )
    shown = [entry for entry in described.check().entries if not (changed and entry.is_default)]
    if as_json:
        print_json([_as_json(entry, documentation=documentation) for entry in shown])
        return
    columns = ["CONFIG", "VALUE", "SOURCE", *(["MEANING"] if documentation else [])]
    print_table(columns, [_row(entry, documentation=documentation) for entry in shown])


@app.command(
    "alter", epilog="Example: rookery configs alter topic orders --set retention.ms=3600000 --delete segment.ms"
)
def alter(
    kind: KindArgument,
    name: NameArgument,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a config. Repeatable.", autocompletion=completion.resource_settings
        ),
    ] = None,
    deleted: Annotated[
        list[str] | None, typer.Option("--delete", metavar="KEY", help="Reset a config to its default. Repeatable.")
    ] = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check the change without making it.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Set configs or reset them to their defaults; other configs stay unchanged."""

    changes = changes_of(configs, deleted)
    if not changes:
        raise typer.BadParameter("nothing to change: give --set or --delete")
    resource = _resource(kind, name)
    (outcome,) = with_admin(
        bootstrap_server,
        timeout_s,
        lambda admin: admin.alter_configs({resource: changes}, validate_only=validate_only),
    )
    outcome.check()
    typer.echo(f"{'would alter' if validate_only else 'altered'} {kind.value} {name}")


def changes_of(configs: list[str] | None, deleted: list[str] | None) -> "list[ConfigChange]":
    """Return the changes that `--set` and `--delete` request."""
    from rookery.base.codes import ConfigOperation
    from rookery.client.admin import ConfigChange

    values = parse_pairs(configs or [], "--set")
    both = values.keys() & set(deleted or [])
    if both:
        raise typer.BadParameter(f"{', '.join(sorted(both))} cannot be both set and deleted", param_hint="--delete")
    return [ConfigChange(key, ConfigOperation.SET, value) for key, value in values.items()] + [
        ConfigChange(key, ConfigOperation.DELETE) for key in deleted or []
    ]


def _resource(kind: Kind, name: str) -> "ConfigResource":
    from rookery.base.codes import ResourceType
    from rookery.client.admin import ConfigResource

    if kind is Kind.TOPIC:
        return ConfigResource(ResourceType.TOPIC, name)
    if name != _ALL_BROKERS and not (name.isascii() and name.isdigit()):
        raise typer.BadParameter(f"'{name}' must be a broker's id or '{_ALL_BROKERS}'", param_hint="NAME")
    return ConfigResource(ResourceType.BROKER, "" if name == _ALL_BROKERS else name)


def _source(entry: "ConfigEntry") -> str:
    return entry.source.name.removesuffix("_CONFIG").lower().replace("_", " ")


def _row(entry: "ConfigEntry", *, documentation: bool) -> "list[Cell]":
    from rookery.cli.output import Styled

    style = "dim" if entry.is_default else "bold green"
    value = "(hidden)" if entry.sensitive and entry.value is None else entry.value
    source = _source(entry) + (", read-only" if entry.read_only else "")
    cells: list[Cell] = [entry.name, Styled("-" if value is None else value, style), Styled(source, style)]
    return cells + ([entry.documentation] if documentation else [])


def _as_json(entry: "ConfigEntry", *, documentation: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "default": entry.is_default,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [{"name": s.name, "value": s.value, "source": s.source.name} for s in entry.synonyms],
    }
    return described | ({"documentation": entry.documentation} if documentation else {})
