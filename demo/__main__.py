"""`make demo`: a website's page views go through the whole platform, and what comes out is compared with what must.

Events -> Avro with the schema registry -> topic -> a pipeline on Spark (decode, dead letters, enrich by a compacted
topic of users, count by minute and country) -> a topic in transactions, Parquet files, the lag of a consumer group. In
the middle the pipeline is killed. The exit code is 0 only if everything agrees exactly.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from demo.broker import Broker
from demo.story import report, topics
from demo.story.activity import ACT_LENGTH, MORNING, Act, acts
from demo.story.expectation import expect, minute_of
from demo.story.pipeline import GROUPS, Pipeline
from rookery.spark.pipelines.progress import records_behind

SEED: Final = 7
VIEWS_OF_AN_ACT: Final = 10_000
USERS: Final = 200
# Of the morning; its window is still open when the afternoon begins.
LAST_MINUTE: Final = minute_of(MORNING + ACT_LENGTH) - timedelta(minutes=1)
PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.25


class Stage:
    """Says what happens while it happens, and how long it took."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Inside, tell what came of it."""
        told: list[str] = []
        started = time.monotonic()
        with self.console.status(f"{title} ..."):
            yield told.append
        seconds = time.monotonic() - started
        self.console.print(f"[green]✓[/] [bold]{title}[/] [dim]{seconds:.1f} s[/]", highlight=False)
        for line in told:
            self.console.print(f"  {line}", highlight=False, soft_wrap=True)


class Story:
    def __init__(self, directory: Path, stage: Stage) -> None:
        self._stage = stage
        self._output = directory / "views"
        self._broker = Broker(directory)
        self._pipeline = Pipeline(directory, self._broker, self._output)
        self._acts = acts(SEED, views=VIEWS_OF_AN_ACT, users=USERS)
        self._expected = expect(self._acts)

    def play(self) -> bool:
        try:
            with self._stage.step("A broker and a schema registry start") as tell:
                tell(
                    f"serving on {self._broker.address} and {self._broker.registry} after {self._broker.start():.1f} s"
                )
            topics.create(self._broker.address, self._broker.registry)
            website = topics.Website(self._broker.address, self._broker.registry)
            try:
                self._run(website)
            finally:
                website.close()
            return self._check()
        finally:
            self._pipeline.close()
            self._broker.close()

    def _run(self, website: topics.Website) -> None:
        morning, afternoon, next_day = self._acts
        self._send(website, morning)
        with self._stage.step("The pipeline starts on Spark and works off the morning") as tell:
            self._pipeline.start()
            self._wait_for_no_lag()
            # A window is closed, and late from then on, when its result is written.
            self._wait_for_counts(self._expected.closed_before(LAST_MINUTE))
            tell(f"the lag of the consumer groups {' and '.join(GROUPS)} is 0, as any Kafka tool shows")
        self._send(website, afternoon)
        with self._stage.step("The pipeline is killed with SIGKILL, and started again from its checkpoint") as tell:
            lag = self._lag() or 0
            self._pipeline.kill()
            self._pipeline.start()
            tell(f"{lag:,} records were not processed yet when it died")
            self._wait_for_no_lag()
        self._send(website, next_day)
        with self._stage.step("The next day closes the last windows, and the pipeline stops"):
            self._wait_for_no_lag()
            self._wait_for_counts(len(self._expected.counts))
            self._pipeline.stop()

    def _send(self, website: topics.Website, act: Act) -> None:
        with self._stage.step(f"Page views of the {act.name}") as tell:
            website.play(act)
            tell(
                f"{len(act.views):,} views: {sum(view.is_newer for view in act.views):,} with the newer schema,"
                f" {sum(view.is_late for view in act.views)} too late; {len(act.malformed)} malformed records;"
                f" {len(act.users)} users"
            )

    def _lag(self) -> int | None:
        """The records that one of the flows has not processed yet; None until all flows have committed."""
        lags = [topics.committed_lags(self._broker.address, group) for group in GROUPS]
        return None if None in lags else records_behind(lags)

    def _wait_for_no_lag(self) -> None:
        self._wait(lambda: self._lag() == 0)

    def _wait_for_counts(self, count: int) -> None:
        self._wait(lambda: topics.read_counts(self._broker.address)[1] >= count)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self._pipeline.check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pipeline did not get on within {PATIENCE_S:.0f} s\n{self._pipeline.log()}")
            time.sleep(_POLL_S)

    def _check(self) -> bool:
        address = self._broker.address
        counts, count_records = topics.read_counts(address)
        found = report.Found(
            counts=counts,
            count_records=count_records,
            enriched=topics.read_enriched(self._output),
            malformed=topics.read_dead_letters(address),
            lag=self._lag(),
        )
        return report.show(self._stage.console, self._expected, found)


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="rookery-demo-") as directory:
        agrees = Story(Path(directory), Stage(console)).play()
    console.print("[bold green]Every check passed.[/]" if agrees else "[bold red]A check failed.[/]")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
