"""The progress display of a running pipeline: a live table in a terminal, and lines of text everywhere else."""

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
# Title, empty lines, column titles (folded to two lines at most), the rule below them, and the last line.
_OTHER_LINES: Final = 7
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
def figures_display(
    title: str, *, live: bool, now_s: "Callable[[], float]"
) -> "Iterator[Callable[[Sequence[Figures]], None]]":
    """Yield a function that shows figures; it may be called often, and limits how often it writes."""
    if not live:
        lines = LineDisplay(now_s)
        yield lines.show
        lines.finish()
        return
    from rich.live import Live

    with Live(refresh_per_second=4) as view:
        yield lambda figures: view.update(FlowTable(title, figures))


class LineDisplay:
    """Writes a line for a flow when its state changes, and every five seconds while it runs batches."""

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
        """Write the last figures of each flow."""
        for flow, each in self._last.items():
            if self._shown.get(flow) != each:
                self._write(each)

    def _write(self, figures: Figures) -> None:
        self._shown[figures.flow] = figures
        self._shown_at_s[figures.flow] = self._now_s()
        sys.stdout.write(f"{figures_line(figures)}\n")
        sys.stdout.flush()


def figures_line(figures: Figures) -> str:
    cells = dict(zip(_COLUMNS, _cells(figures), strict=True))
    rest = [f"{name} {cells[name]}" for name in _COLUMNS[2:] if cells[name] != "-"]
    reason = [figures.error] if figures.error else []
    return ", ".join([f"{figures.flow}: {figures.state}", *reason, *(rest if figures.batches else [])])


def _cells(figures: Figures) -> list[str]:
    return [
        figures.flow,
        figures.state,
        *("-" if figures.has_ended else f"{rate:,.0f}" for rate in (figures.rows_in_per_s, figures.rows_out_per_s)),
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
    """A table of flows for a terminal of any size; rich renders it again when the terminal is resized.

    A narrow terminal shows fewer columns, and none of them truncated: a truncated figure would be read as a wrong one.
    Long names are folded. The errors of flows follow the table, in full. If there are more flows than lines, flows with
    an error are shown first.
    """

    def __init__(self, title: str, figures: Sequence[Figures], *, is_live: bool = True) -> None:
        self._title = title
        self._figures = figures
        self._is_live = is_live

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.text import Text

        errors = [Text(f"{each.flow}: {each.error}", overflow="fold") for each in self._figures if each.error]
        used = sum(len(each.wrap(console, options.max_width)) for each in errors) + _OTHER_LINES
        # A live view must fit the terminal: rich cannot redraw lines that have scrolled out of it.
        lines_max = max(console.height - used, 1) if self._is_live else len(self._figures)
        shown, rest = _select_flows(self._figures, lines_max)
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
                # The name takes the remaining width.
                width=None if column == _NAME else _width(column, rows),
            )
        for each, row in zip(figures, rows, strict=True):
            styles = {"state": _STYLES.get(each.state, ""), "dead letters": "yellow" if each.dead_letters else ""}
            table.add_row(*(Text(row[column], styles.get(column, "")) for column in chosen))
        return table


def _select_flows(figures: Sequence[Figures], lines_max: int) -> tuple[list[Figures], int]:
    """Return the flows that fit into `lines_max` lines, in their order, and the number of flows that do not fit."""
    if len(figures) <= lines_max:
        return list(figures), 0
    errors_first = sorted(figures, key=lambda each: each.error is None)
    chosen = {each.flow for each in errors_first[:lines_max]}
    return [each for each in figures if each.flow in chosen], len(figures) - lines_max


def fitting_columns(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Drop the least important columns until the others fit. The name may be folded to `_NAME_WIDTH_MIN`."""
    chosen = list(_COLUMNS)
    for column in _LEAST_IMPORTANT_FIRST:
        name_width = min(_width(_NAME, rows), _NAME_WIDTH_MIN)
        others = sum(_width(each, rows) + _COLUMN_GAP for each in chosen if each != _NAME)
        if name_width + others <= width:
            break
        chosen.remove(column)
    return chosen


def _width(column: str, rows: Sequence[Mapping[str, str]]) -> int:
    """Return the width of the column's widest cell or title word; a title may take several lines."""
    return max(*map(len, column.split()), *(len(row[column]) for row in rows), 0)
