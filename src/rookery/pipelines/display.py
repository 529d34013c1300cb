"""What a running pipeline shows: a live table in a terminal, and a line now and then everywhere else."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rookery.pipelines.progress import Figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

LINE_INTERVAL_S: Final = 5.0
_COLUMNS: Final = ("flow", "state", "in/s", "out/s", "rows in", "rows out", "batch", "lag", "behind", "dead letters")
_NAME: Final = "flow"
_TEXT_COLUMNS: Final = (_NAME, "state")
_LEAST_IMPORTANT_FIRST: Final = ("batch", "out/s", "rows in", "rows out", "behind", "dead letters", "in/s")
_NAME_WIDTH_MIN: Final = 32
_COLUMN_GAP: Final = 2
# Title, empty lines, the columns' titles (two lines where they are folded), their rule, and the last line.
_LINES_AROUND: Final = 7
_STYLES: Final = {
    "running": "green",
    "restarting": "yellow",
    "failed": "bold red",
    "killed": "bold red",
    "starting": "dim",
}
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


@contextmanager
def shown(title: str, *, live: bool, now_s: "Callable[[], float]") -> "Iterator[Callable[[Sequence[Figures]], None]]":
    """What it gives shows figures, as often as that makes sense."""
    if not live:
        lines = Lines(now_s)
        yield lines.show
        lines.finish()
        return
    from rich.live import Live

    with Live(refresh_per_second=4) as view:
        yield lambda figures: view.update(FlowTable(title, figures))


class Lines:
    """A line for each flow whose state changed, or every five seconds if it did something."""

    def __init__(self, now_s: "Callable[[], float]") -> None:
        self._now_s = now_s
        self._shown: dict[str, Figures] = {}
        self._shown_at_s: dict[str, float] = {}
        self._last: dict[str, Figures] = {}

    def show(self, figures: Sequence[Figures]) -> None:
        for each in figures:
            self._last[each.flow] = each
            before = self._shown.get(each.flow)
            is_due = self._now_s() >= self._shown_at_s.get(each.flow, 0.0) + LINE_INTERVAL_S
            if before is None or before.state != each.state or (is_due and before.batches != each.batches):
                self._write(each)

    def finish(self) -> None:
        """The last word of each flow."""
        for flow, each in self._last.items():
            if self._shown.get(flow) != each:
                self._write(each)

    def _write(self, figures: Figures) -> None:
        self._shown[figures.flow] = figures
        self._shown_at_s[figures.flow] = self._now_s()
        sys.stdout.write(f"{line(figures)}\n")
        sys.stdout.flush()


def line(figures: Figures) -> str:
    cells = dict(zip(_COLUMNS, _cells(figures), strict=True))
    rest = [f"{name} {cells[name]}" for name in _COLUMNS[2:] if cells[name] != "-"]
    reason = [figures.error] if figures.error else []
    return ", ".join([f"{figures.flow}: {figures.state}", *reason, *(rest if figures.batches else [])])


def _cells(figures: Figures) -> list[str]:
    return [
        figures.flow,
        figures.state,
        *("-" if figures.is_over else f"{rate:,.0f}" for rate in (figures.rows_in_per_s, figures.rows_out_per_s)),
        f"{figures.rows_in:,}",
        f"{figures.rows_out:,}",
        f"{figures.batch_ms:,} ms" if figures.batches else "-",
        "-" if figures.lag_records is None else f"{figures.lag_records:,}",
        "-" if figures.lag_s is None else duration_text(figures.lag_s),
        f"{figures.dead_letters:,}",
    ]


def duration_text(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    return f"{seconds / _MINUTE_S:.1f} min" if seconds < _HOUR_S else f"{seconds / _HOUR_S:.1f} h"


class FlowTable:
    """A table of flows for a terminal of any width, which rich asks for again when the terminal has changed.

    A narrow terminal shows fewer columns, and each of them whole: a figure that is cut off is worse than none. Names
    that are too long are folded. What is wrong with flows stands below, in full. Where there are more flows than lines,
    those with an error come first.
    """

    def __init__(self, title: str, figures: Sequence[Figures], *, is_live: bool = True) -> None:
        self._title = title
        self._figures = figures
        self._is_live = is_live

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.text import Text

        errors = [Text(f"{each.flow}: {each.error}", overflow="fold") for each in self._figures if each.error]
        used = sum(len(each.wrap(console, options.max_width)) for each in errors) + _LINES_AROUND
        # A live view must not be higher than the terminal, which could not draw it again.
        room = max(console.height - used, 1) if self._is_live else len(self._figures)
        shown, rest = _visible(self._figures, room)
        yield self._table(shown, options.max_width)
        if rest:
            yield Text(f"and {rest} more: rookery pipelines status {self._title}", style="dim")
        yield from errors

    def _table(self, figures: Sequence[Figures], width: int) -> "Table":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        rows = [dict(zip(_COLUMNS, _cells(each), strict=True)) for each in figures]
        chosen = fitting_columns(rows, width)
        table = Table(
            title=self._title if self._is_live else None, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold"
        )
        table.show_edge, table.pad_edge, table.padding = False, False, (0, _COLUMN_GAP - 1, 0, 0)
        for column in chosen:
            is_text = column in _TEXT_COLUMNS
            table.add_column(
                column,
                justify="left" if is_text else "right",
                overflow="fold",
                # All room that is left is the name's.
                width=None if column == _NAME else _width(column, rows),
            )
        for each, row in zip(figures, rows, strict=True):
            styles = {"state": _STYLES.get(each.state, ""), "dead letters": "yellow" if each.dead_letters else ""}
            table.add_row(*(Text(row[column], styles.get(column, "")) for column in chosen))
        return table


def _visible(figures: Sequence[Figures], room: int) -> tuple[list[Figures], int]:
    """Those that fit into so many lines, in their order, and how many do not."""
    if len(figures) <= room:
        return list(figures), 0
    troubled_first = sorted(figures, key=lambda each: each.error is None)
    chosen = {each.flow for each in troubled_first[:room]}
    return [each for each in figures if each.flow in chosen], len(figures) - room


def fitting_columns(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Without the least important ones, until the others fit. The name may be folded to `_NAME_WIDTH_MIN`."""
    chosen = list(_COLUMNS)
    for column in _LEAST_IMPORTANT_FIRST:
        name_width = min(_width(_NAME, rows), _NAME_WIDTH_MIN)
        others = sum(_width(each, rows) + _COLUMN_GAP for each in chosen if each != _NAME)
        if name_width + others <= width:
            break
        chosen.remove(column)
    return chosen


def _width(column: str, rows: Sequence[Mapping[str, str]]) -> int:
    """Of its widest cell; its title may stand on several lines."""
    return max(*map(len, column.split()), *(len(row[column]) for row in rows), 0)
