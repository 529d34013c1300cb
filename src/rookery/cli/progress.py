"""Shows progress on standard error if it is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rookery.cli.output import note

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress:
    """A counter of records, with a bar where the total size is known."""

    def __init__(self, what: str, *, total_bytes: int | None, shown: bool = True) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._shown = shown and sys.stderr.isatty()
        self._records = 0
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._shown:
            self._bar = _build_bar(with_total=self._total_bytes is not None)
            self._task = self._bar.add_task(self._what, total=self._total_bytes, records="0")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, *, records: int, size_bytes: int) -> None:
        self._records += records
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=size_bytes, records=f"{self._records:,}")

    def finish(self, sentence: str) -> None:
        """Print a last sentence."""
        note(sentence)


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over `total` items; yield a function to call with the number of further items done."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, advance=count)


@contextmanager
def copied(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar in bytes; yield a function that takes the bytes done, the bytes in total, and a text."""
    if not sys.stderr.isatty():
        yield lambda done, total, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()]
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner during work of unknown duration."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _build_bar(*, with_total: bool) -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    sized = [BarColumn(), DownloadColumn()] if with_total else []
    columns = [SpinnerColumn(), TextColumn("{task.description} {task.fields[records]} records"), *sized]
    return RichProgress(*columns, TransferSpeedColumn(), console=Console(stderr=True), transient=True)
