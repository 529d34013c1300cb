"""How commands print: tables for people, plain aligned columns for pipes, JSON for programs.

Data goes to standard output, everything else (questions, progress, notes) to standard error.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from rookery.base.errors import ApiError, ErrorCode
from rookery.cli.errors import FAILED, CommandError, explain
from rookery.cli.suggestions import suggestion

if TYPE_CHECKING:
    from rookery.client.admin import Outcome

_COLUMN_GAP = "  "


class Styled(NamedTuple):
    """A cell with a colour, which only a terminal shows."""

    text: str
    style: str


Cell = str | int | None | Styled


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, title: str | None = None) -> None:
    """Columns that hold only numbers, where they hold something, are aligned to the right."""
    numeric = [_is_numeric([row[index] for row in rows]) for index in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(columns, rows, numeric=numeric, title=title)
    else:
        _print_plain(columns, rows, numeric=numeric, title=title)


def note(text: str) -> None:
    """A word to the person at the terminal; scripts do not see it."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone. Without a terminal to ask, `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Nobody is here to answer: add --yes to do it.")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was done")


def report(outcomes: "Iterable[Outcome]", done: str, *, tolerated: ErrorCode | None) -> None:
    """One line for each of several things; the command fails if one of them did."""
    failed = False
    for outcome in outcomes:
        if outcome.error == ErrorCode.NONE:
            typer.echo(f"{done} {outcome.name}")
        elif outcome.error != tolerated:
            failed = True
            reason = outcome.message or explain(ApiError(outcome.error))
            hint = suggestion(outcome.error, str(outcome.name))
            typer.echo(f"error: {outcome.name}: {'; '.join(filter(None, (reason, hint)))}", err=True)
    if failed:
        raise typer.Exit(FAILED)


def _is_numeric(column: Sequence[Cell]) -> bool:
    filled = [cell for cell in column if cell is not None]
    return bool(filled) and all(isinstance(cell, int) or _text(cell).lstrip("+-").isdigit() for cell in filled)


def _text(cell: Cell) -> str:
    if isinstance(cell, Styled):
        return cell.text
    return "-" if cell is None else str(cell)


def _print_plain(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, numeric: Sequence[bool], title: str | None
) -> None:
    if title:
        typer.echo(title)
    lines = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = zip(line, widths, numeric, strict=True)
        padded = (text.rjust(width) if right else text.ljust(width) for text, width, right in cells)
        typer.echo(_COLUMN_GAP.join(padded).rstrip())


def _print_rich(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, numeric: Sequence[bool], title: str | None
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(cell), cell.style if isinstance(cell, Styled) else "") for cell in row))
    Console().print(table)
