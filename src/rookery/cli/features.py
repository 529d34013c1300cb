"""`rookery features`: describe, upgrade, downgrade."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli.app import App
from rookery.cli.option_values import parse_pairs
from rookery.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapController,
    BootstrapServer,
    Json,
    Timeout,
    Yes,
)
from rookery.cli.session import with_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

app = App(help="Describe, upgrade and downgrade the levels of the cluster's features.")

Levels = Annotated[list[str], typer.Argument(metavar="FEATURE=LEVEL...", help="Features and their new levels.")]
ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Check the change without making it.")]


@app.command("describe", epilog="Example: rookery features describe --json")
def describe(
    as_json: Json = False,
    controllers: BootstrapController = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the level of each feature and the levels that the broker supports. Level 0 means switched off."""
    from rookery.cli.output import print_json, print_table

    found = with_cluster(controllers, bootstrap_server, timeout_s, lambda admin: admin.describe_features())
    if as_json:
        keys = ("feature", "level", "supported_min", "supported_max")
        rows = [(f.name, f.level, f.supported_min, f.supported_max) for f in found.features]
        print_json({"epoch": found.epoch, "features": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    cells = [
        (f.name, f.level, None if f.supported_min is None else f"{f.supported_min} to {f.supported_max}")
        for f in found.features
    ]
    print_table(["FEATURE", "LEVEL", "SUPPORTED"], cells)


@app.command("upgrade", epilog="Example: rookery features upgrade transaction.version=2")
def upgrade(
    levels: Levels,
    validate_only: ValidateOnly = False,
    controllers: BootstrapController = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Raise features to higher levels. Either all named features change, or none."""
    from rookery.base.codes import UpgradeType

    wanted = _parse(levels)
    with_cluster(
        controllers,
        bootstrap_server,
        timeout_s,
        lambda admin: admin.update_features(wanted, UpgradeType.UPGRADE, validate_only=validate_only),
    )
    _report(wanted, "would upgrade" if validate_only else "upgraded")


@app.command(
    "downgrade",
    epilog="Examples:\n\nrookery features downgrade transaction.version=1 --validate-only"
    "\n\nrookery features downgrade transaction.version=0",
)
def downgrade(
    levels: Levels,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Downgrade even if metadata is lost. Asks first.")] = False,
    validate_only: ValidateOnly = False,
    yes: Yes = False,
    controllers: BootstrapController = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Lower features to older levels. Either all named features change, or none. Level 0 switches one off."""
    from rookery.base.codes import UpgradeType
    from rookery.cli.output import confirm

    wanted = _parse(levels)
    if unsafe and not validate_only:
        confirm(f"Downgrade {', '.join(levels)}, even if metadata is lost?", yes=yes)
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    with_cluster(
        controllers,
        bootstrap_server,
        timeout_s,
        lambda admin: admin.update_features(wanted, kind, validate_only=validate_only),
    )
    _report(wanted, "would downgrade" if validate_only else "downgraded")


def _parse(levels: list[str]) -> dict[str, int]:
    pairs = parse_pairs(levels, "FEATURE=LEVEL")
    for name, level in pairs.items():
        if not (level.isascii() and level.isdigit()):
            raise typer.BadParameter(f"the level of {name} must be a number, not '{level}'", param_hint="FEATURE=LEVEL")
    if len(pairs) < len(levels):
        raise typer.BadParameter("a feature is named twice", param_hint="FEATURE=LEVEL")
    return {name: int(level) for name, level in pairs.items()}


def _report(levels: "Mapping[str, int]", done: str) -> None:
    for name, level in levels.items():
        typer.echo(f"{done} {name} to {level}")
