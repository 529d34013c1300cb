"""Prints tables in terminals, plain aligned columns into pipes, and JSON.

Data goes to standard output; questions, progress and notes go to standard error.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.cli.errors import FAILED, CommandError, explain
from rookery.cli.suggestions import suggestion

if TYPE_CHECKING:
    from rich.table import Table

    from rookery.client.admin import Outcome

_COLUMN_GAP = "  "
_SOME = 3


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
    """Print a table. A column whose non-empty cells are all numbers is aligned to the right."""
    numeric = _numeric_columns(columns, rows)
    if sys.stdout.isatty():
        _print_rich(columns, rows, numeric=numeric, title=title)
    else:
        _print_plain(columns, rows, numeric=numeric, title=title)


@contextmanager
def live_table() -> Iterator[Callable[[Sequence[str], Sequence[Sequence[Cell]]], None]]:
    """Yield a function that prints a table in place of the one before; below it if the output is no terminal."""
    if not sys.stdout.isatty():

        def show_below(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
            print_table(columns, rows)
            typer.echo()

        yield show_below
        return
    from rich.live import Live

    with Live(auto_refresh=False, vertical_overflow="visible") as live:

        def show(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
            live.update(_rich_table(columns, rows, numeric=_numeric_columns(columns, rows)), refresh=True)

        yield show


def note(text: str) -> None:
    """Print a text to standard error if it is a terminal; scripts do not see it."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an operation that cannot be undone; raise CommandError if the user declines.

    Without a terminal, `yes` is required.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} There is no terminal to ask: add --yes to confirm.")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was done")


def report(outcomes: "Iterable[Outcome]", done: str, *, tolerated: ErrorCode | None) -> None:
    """Print one line per outcome; exit with 1 if one failed with an error other than `tolerated`."""
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


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition indexes by topic, for JSON. `partitions` must be sorted."""
    return {topic: [tp.partition for tp in group] for topic, group in groupby(partitions, key=lambda tp: tp.topic)}


def some_partitions(partitions: Sequence[TopicPartition]) -> str:
    """Return the first three partitions as text for a sentence: `orders-0, orders-1, orders-2, ...`."""
    return ", ".join(map(str, sorted(partitions)[:_SOME])) + (", ..." if len(partitions) > _SOME else "")


def indexes_text(indexes: Mapping[str, Sequence[int]]) -> str:
    """Return partitions by topic as text for a table: `orders:0,1 payments:4`."""
    return " ".join(f"{topic}:{','.join(map(str, of_topic))}" for topic, of_topic in indexes.items()) or "-"


def _numeric_columns(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[bool]:
    return [_is_numeric([row[index] for row in rows]) for index in range(len(columns))]


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
    from rich.console import Console

    Console().print(_rich_table(columns, rows, numeric=numeric, title=title))


def _rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, numeric: Sequence[bool], title: str | None = None
) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(cell), cell.style if isinstance(cell, Styled) else "") for cell in row))
    return table
