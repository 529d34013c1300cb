"""Shows the lag of the pipeline: a moving bar in a terminal, and all values in one line afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


class LagMeter:
    """Records the values of the lag. None means that the groups have not committed anything yet."""

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._bar: Progress | None = None

    @contextmanager
    def shown(self, console: Console) -> Iterator[None]:
        """Show a bar during the body, if the console is a terminal."""
        columns = [TextColumn("  lag"), BarColumn(40), TextColumn("{task.fields[lag]}")]
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as self._bar:
            task = self._bar.add_task("", total=None, lag="waiting for the first micro-batch")
            assert task == 0
            yield
        self._bar = None

    def add(self, lag: int | None) -> int | None:
        """Record a value, and return it."""
        if lag is not None and (not self._seen or self._seen[-1] != lag):
            self._seen.append(lag)
        if lag is not None and self._bar is not None:
            most = max(self._seen)
            self._bar.update(self._bar.task_ids[0], total=most or 1, completed=most - lag, lag=f"{lag:,}")
        return lag

    def summary(self) -> str:
        """Return the recorded values, such as `10,100 > 7,600 > 0`."""
        return " > ".join(f"{lag:,}" for lag in self._seen) or "none"
