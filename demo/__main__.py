"""`make demo`: page views of a website go through the whole platform, and the output is compared with the expected one.

With KEEP=1 in the environment, everything keeps running until Ctrl-C, and the demo prints commands to explore it.

Events -> Avro with the schema registry -> topic -> a pipeline on Spark (decode, dead letters, join with a compacted
topic of users, count by minute and country) -> a topic in transactions, Parquet files, the lag of a consumer group.
The pipeline is killed while it works. The exit code is 0 only if all output is exactly as expected.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax

from demo.broker import Broker
from demo.story import report, topics
from demo.story.activity import ACT_LENGTH, MORNING, Act, acts
from demo.story.expectation import expect, minute_of
from demo.story.lag import LagMeter
from demo.story.pipeline import GROUPS, Pipeline
from rookery.pipelines.progress import records_behind

SEED: Final = 7
VIEWS_OF_AN_ACT: Final = 10_000
USERS: Final = 200
# The last minute of the morning: its window is still open when the afternoon begins.
LAST_MINUTE: Final = minute_of(MORNING + ACT_LENGTH) - timedelta(minutes=1)
TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.25


class Narrator:
    """Prints each step while it runs, its duration and its results."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, title: str, *, lag: LagMeter | None = None) -> Iterator[Callable[[str], None]]:
        """Run the body as a step; yield a function for its results. With `lag`, show the lag instead of a spinner."""
        results: list[str] = []
        started = time.monotonic()
        if lag is None:
            with self.console.status(f"{title} ..."):
                yield results.append
        else:
            if self.console.is_terminal:
                self.console.print(f"[dim]…[/] {title}", highlight=False)
            with lag.shown(self.console):
                yield results.append
        seconds = time.monotonic() - started
        self.console.print(f"[green]✓[/] [bold]{title}[/] [dim]{seconds:.1f} s[/]", highlight=False)
        for line in results:
            self.console.print(f"  {line}", highlight=False, soft_wrap=True)

    def show_file(self, path: Path) -> None:
        """Show the pipeline's file, which is all the code that the demo needs."""
        self.console.print(f"[bold]The pipeline[/] [dim]{path.name}[/]", highlight=False)
        self.console.print(
            Padding(Syntax(path.read_text(), "yaml", background_color="default", word_wrap=True), (0, 2))
        )


class Story:
    """Plays all acts and compares the output. With `keep`, all processes keep running afterwards, until Ctrl-C."""

    def __init__(self, directory: Path, narrator: Narrator, *, keep: bool) -> None:
        self._keep = keep
        self._narrator = narrator
        self._output = directory / "views"
        self._broker = Broker(directory)
        self._pipeline = Pipeline(directory, self._broker, self._output)
        self._acts = acts(SEED, views=VIEWS_OF_AN_ACT, users=USERS)
        self._expected = expect(self._acts)

    def play(self) -> bool:
        try:
            with self._narrator.step("A broker and a schema registry start") as tell:
                tell(
                    f"serving on {self._broker.address} and {self._broker.registry} after {self._broker.start():.1f} s"
                )
            topics.create(self._broker.address, self._broker.registry)
            website = topics.Website(self._broker.address, self._broker.registry)
            self._narrator.show_file(self._pipeline.file)
            try:
                self._run(website)
            finally:
                website.close()
            agrees = self._check()
            if self._keep:
                self._stay()
            return agrees
        finally:
            self._pipeline.close()
            self._broker.close()

    def _run(self, website: topics.Website) -> None:
        morning, afternoon, next_day = self._acts
        self._send(website, morning)
        self._catch_up("The pipeline starts on Spark and processes the morning", LagMeter(), self._pipeline.start)
        # When the result of a window is written, the window is closed: further views of it are late.
        self._wait_for_counts(self._expected.closed_before(LAST_MINUTE))
        self._send(website, afternoon)
        lag = LagMeter()
        with self._narrator.step("The pipeline processes the afternoon, and is killed with SIGKILL", lag=lag) as tell:
            self._wait(lambda: _is_partly_processed(lag.add(self._lag())))
            self._pipeline.kill()
            sent = len(afternoon.views) + len(afternoon.malformed)
            tell(f"{self._lag() or 0:,} of {sent:,} records were not processed yet when it was killed")
        self._catch_up("It restarts from its checkpoint, and processes the rest", LagMeter(), self._pipeline.start)
        self._send(website, next_day)
        with self._narrator.step("The next day closes the last windows"):
            self._wait_for_no_lag(LagMeter())
            self._wait_for_counts(len(self._expected.counts))
            if not self._keep:
                self._pipeline.stop()

    def _catch_up(self, title: str, lag: LagMeter, begin: Callable[[], None]) -> None:
        with self._narrator.step(title, lag=lag) as tell:
            begin()
            self._wait_for_no_lag(lag)
            tell(f"lag, as any Kafka tool shows it for the groups {' and '.join(GROUPS)}: {lag.summary()}")

    def _send(self, website: topics.Website, act: Act) -> None:
        with self._narrator.step(f"Page views of the {act.name}") as tell:
            website.play(act)
            tell(
                f"{len(act.views):,} views: {sum(view.is_newer for view in act.views):,} with the newer schema,"
                f" {sum(view.is_late for view in act.views)} too late; {len(act.malformed)} malformed records;"
                f" {len(act.users)} users"
            )

    def _lag(self) -> int | None:
        """Return how many records at least one flow has not processed; None until all flows have committed."""
        lags = [topics.committed_lags(self._broker.address, group) for group in GROUPS]
        return None if None in lags else records_behind(lags)

    def _wait_for_no_lag(self, lag: LagMeter) -> None:
        self._wait(lambda: lag.add(self._lag()) == 0)

    def _wait_for_counts(self, count: int) -> None:
        self._wait(lambda: topics.read_counts(self._broker.address)[1] >= count)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            self._pipeline.check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pipeline made no progress within {TIMEOUT_S:.0f} s\n{self._pipeline.log()}")
            time.sleep(_POLL_S)

    def _stay(self) -> None:
        broker = self._broker
        console = self._narrator.console
        console.print("\n[bold]Everything is still running.[/] In another terminal, in this directory:\n")
        for command in (
            f"export PATH={Path(sys.executable).parent}:$PATH ROOKERY_STATE_DIR={self._pipeline.state_dir}",
            f"export ROOKERY_BOOTSTRAP_SERVER={broker.address} ROOKERY_SCHEMA_REGISTRY={broker.registry}",
            "rookery topics list",
            f"rookery consume {topics.COUNTS} --from -3 --until-end --json",
            f"rookery consume {topics.VIEWS} --from -3 --until-end --value-format auto --format '%k %v\\n'",
            f"rookery groups describe {GROUPS[0]}",
            "rookery schemas list",
            f"rookery dlq show {topics.DEAD_LETTERS}",
            "rookery pipelines status website",
        ):
            console.print(f"  {command}", highlight=False, soft_wrap=True)
        console.print("\nCtrl-C stops everything and removes its files.")
        try:
            while True:
                self._pipeline.check_alive()
                time.sleep(1)
        except KeyboardInterrupt:
            console.print("stopped")

    def _check(self) -> bool:
        address = self._broker.address
        counts, count_records = topics.read_counts(address)
        found = report.Output(
            counts=counts,
            count_records=count_records,
            enriched=topics.read_enriched(self._output),
            malformed=topics.read_dead_letters(address),
            lag=self._lag(),
        )
        return report.show(self._narrator.console, self._expected, found)


def _is_partly_processed(lag: int | None) -> bool:
    """Return whether a part of an act is processed and a part is not."""
    return lag is not None and VIEWS_OF_AN_ACT // 5 < lag < VIEWS_OF_AN_ACT * 4 // 5


def main() -> int:
    console = Console()
    keep = os.environ.get("KEEP", "0") not in ("", "0")
    with tempfile.TemporaryDirectory(prefix="rookery-demo-") as directory:
        agrees = Story(Path(directory), Narrator(console), keep=keep).play()
    console.print("[bold green]Every check passed.[/]" if agrees else "[bold red]A check failed.[/]")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
