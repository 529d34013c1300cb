"""What a running pipeline shows: a live table in a terminal, and a line now and then everywhere else."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rookery.spark.pipelines.progress import Figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

LINE_INTERVAL_S: Final = 5.0
_COLUMNS: Final = ("flow", "state", "in/s", "out/s", "rows in", "rows out", "batch", "lag", "behind", "dead letters")
_STYLES: Final = {"running": "green", "restarting": "yellow", "failed": "bold red", "starting": "dim"}
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
        yield lambda figures: view.update(_table(title, figures))


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


def _table(title: str, figures: Sequence[Figures]) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for index, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right")
    for each in figures:
        cells = _cells(each)
        cells[1] = f"[{_STYLES.get(each.state, 'default')}]{each.state}[/]"
        if each.dead_letters:
            cells[-1] = f"[yellow]{cells[-1]}[/]"
        table.add_row(*cells)
    for each in figures:
        if each.error:
            table.caption = escape(f"{each.flow}: {each.error}")
    return table
