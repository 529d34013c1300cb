"""Plays the part of Spark for the sink: the real writer classes, a real broker, and drivers that die at chosen steps.

A `Play` is one query on one topic. It stores the content of Spark's checkpoint (which batches are finished) and runs
drivers one after the other. Each driver does what Spark does: tasks write, some twice (a failed attempt, a speculative
copy); their messages go to `commit`; if that raises, all go to `abort`; after a dead driver, the next one replays the
first unfinished batch. An `Incident` says what happens at which step of a commit. At the end, readers of committed
records must see each row of each batch once.

A killed process runs no handlers. Neither does a driver here: `Killed` is not an `Exception`, so no code catches it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from random import Random
from threading import Event
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from rookery.client.admin import ONGOING, EndOutcome, PreparedTransaction
from rookery.client.sync import Admin, Consumer
from rookery.client.sync.loop import shared_loop
from rookery.spark.options import parse_write_options
from rookery.spark.sink import task_writer
from rookery.spark.sink.names import tasks_pattern
from rookery.spark.sink.stream_writer import StreamWriter
from rookery.spark.sink.task_writer import TaskIdentity, TaskIds
from rookery.testing.embedded import EmbeddedBroker
from tests.support.waiting import eventually

SCHEMA = StructType([StructField("value", StringType())])
TRANSACTION_TIMEOUT_S = 30
ROWS_PER_BATCH = 12
RESTARTS_MAX = 6
_NUMBERS = count(1)
_PAUSE_S_MAX = 60


class Killed(BaseException):
    """The driver was killed."""


class Kind(Enum):
    KILL = auto()  # the driver dies
    FAIL = auto()  # the step raises: Spark calls abort, and the query ends
    ZOMBIE = auto()  # the driver pauses, is replaced, and resumes when other drivers have done its work
    TIME_OUT = auto()  # all open transactions time out
    RESTART = auto()  # the broker is stopped and started again
    WAKE = auto()  # paused drivers resume and run to their end
    RACE = auto()  # paused drivers resume and run concurrently with this one


class AnyBroker(Protocol):
    """Any broker; scripts with time-outs or restarts need an `EmbeddedBroker`."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, name: str, *, partitions: int = 1) -> None: ...


@dataclass(frozen=True)
class Incident:
    """Happens when a driver reaches `step` for the `occurrence`-th time, in `batch` or a later one."""

    kind: Kind
    step: str
    batch: int = 1
    occurrence: int = 1


@dataclass
class Script:
    """The incidents and the other parameters of a run."""

    incidents: Sequence[Incident] = ()
    # The number of tasks per batch of the n-th driver; the last value holds for all further drivers.
    task_counts: Sequence[int] = (3,)
    batch_count: int = 3
    empty_batches: frozenset[int] = frozenset()
    # Tasks (batch, partition) with an additional attempt that was killed after it had written.
    lost_attempts: frozenset[tuple[int, int]] = frozenset()
    speculative: frozenset[tuple[int, int]] = frozenset()
    # Whether the tasks of all drivers run in the same Python workers, as after a restart of a query in one application.
    shares_workers: bool = False


class Play:
    def __init__(self, broker: AnyBroker, script: Script, writer: type[StreamWriter] = StreamWriter) -> None:
        self.broker = broker
        self.script = script
        self.sink = f"play-{os.getpid()}-{next(_NUMBERS)}"
        self.restarts = 0
        self.finished = 0
        self.errors: list[Exception] = []
        self._writer = writer
        self._left = list(script.incidents)
        self._seen: Counter[tuple[str, int]] = Counter()
        self._zombies: list[tuple[asyncio.Event, Future[None]]] = []
        self.common = {"bootstrap.servers": broker.bootstrap_servers}
        broker.create_topic(self.sink, partitions=2)

    # The query

    def run(self) -> None:
        """Run drivers until all batches are finished; raises the last error if too many drivers fail."""
        with ThreadPoolExecutor() as threads:
            try:
                while self.finished < self.script.batch_count:
                    if self.restarts > RESTARTS_MAX:
                        raise self.errors[-1] if self.errors else AssertionError("every driver dies")
                    driver = _Driver(self, self.restarts, self._writer)
                    self.restarts += 1
                    self._watch(driver, threads.submit(driver.run))
            finally:
                self.wake(waits=True)

    def _watch(self, driver: "_Driver", future: Future[None]) -> None:
        """Wait until the driver has ended or pauses; other drivers see no difference."""
        stopped = driver.stopped
        future.add_done_callback(lambda _: stopped.set())
        if not stopped.wait(_PAUSE_S_MAX):
            raise AssertionError("a driver hangs")
        if driver.is_paused:
            self._zombies.append((driver.resume, future))
            return
        error = future.exception()
        if isinstance(error, Exception):
            self.errors.append(error)

    def wake(self, *, waits: bool) -> None:
        """Resume zombies. Their remaining steps must have no effect; they may fail."""
        zombies = list(self._zombies)
        for resume, future in zombies:
            shared_loop().call(resume.set)
            if waits:
                future.exception(_PAUSE_S_MAX)

    def due(self, step: str, batch: int) -> Incident | None:
        """Return the incident of this step, if any. Each incident happens once."""
        for incident in self._left:
            if incident.step == step and batch >= incident.batch:
                self._seen[step, incident.batch] += 1
                if self._seen[step, incident.batch] >= incident.occurrence:
                    self._left.remove(incident)
                    return incident
        return None

    # The data

    def rows_of(self, batch: int) -> list[str]:
        return [] if batch in self.script.empty_batches else [f"{batch}/{row}" for row in range(ROWS_PER_BATCH)]

    def expected(self) -> Counter[str]:
        return Counter(row for batch in range(self.finished) for row in self.rows_of(batch))

    def found(self) -> Counter[str]:
        """Return the committed rows. Open transactions are aborted first, as their time-out would do."""
        with Admin(self.common) as admin:
            for each in admin.list_transactions(states=[ONGOING], id_pattern=tasks_pattern(self.sink)):
                (row,) = admin.describe_transactions([each.transactional_id])
                prepared = PreparedTransaction(row.transactional_id, row.producer_id, row.producer_epoch)
                assert admin.end_transaction(prepared, commit=False) is EndOutcome.DONE
        with Consumer[bytes, bytes]({**self.common, "isolation.level": "read_committed"}) as consumer:
            return Counter(value.decode() for value in consumer.read_arrow(self.sink).column("value").to_pylist())

    def open_count(self) -> int:
        with Admin(self.common) as admin:
            return len(admin.list_transactions(states=[ONGOING], id_pattern=tasks_pattern(self.sink)))

    def time_out(self) -> None:
        """Make all open transactions time out."""
        self._embedded().advance_time(TRANSACTION_TIMEOUT_S + 1)
        eventually(lambda: self.open_count() == 0, "the broker aborts transactions that timed out")

    def restart(self) -> None:
        self._embedded().restart()

    def _embedded(self) -> EmbeddedBroker:
        assert isinstance(self.broker, EmbeddedBroker)
        return self.broker


class _Driver:
    """One driver of the query, from its start to its end."""

    def __init__(self, play: Play, number: int, writer: type[StreamWriter]) -> None:
        self._play = play
        self._batch = play.finished
        self._partition = 0
        self.stopped = Event()
        self.is_paused = False
        self.resume = asyncio.Event()
        counts = play.script.task_counts
        self._task_count = counts[min(number, len(counts) - 1)]
        options = {
            **{f"kafka.{key}": value for key, value in play.common.items()},
            "topic": play.sink,
            # Drivers are processes. A client id per driver keeps them from sharing a cached ledger.
            "kafka.client.id": f"{play.sink}-{number}",
            "kafka.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_S * 1000),
        }
        if not play.script.shares_workers:
            task_writer._ids[os.getpid()] = TaskIds()
        members = {"on_step": lambda _, step: self._on_step(step), "task_identity": lambda _: self._task_identity()}
        self._writer = type("Writer", (writer,), members)(parse_write_options(options, streaming=True), SCHEMA)

    def _task_identity(self) -> TaskIdentity:
        return TaskIdentity(sink=self._play.sink, batch=self._batch, partition=self._partition, is_streaming=True)

    def run(self) -> None:
        play = self._play
        while self._batch < play.script.batch_count:
            messages = self._run_tasks()
            self._step("tasks done")
            try:
                self._writer.commit(messages, self._batch)
            except Exception:
                self._writer.abort(messages, self._batch)
                raise
            self._step("committed")
            play.finished = max(play.finished, self._batch + 1)
            if self.is_paused:
                return
            self._batch += 1

    def _run_tasks(self) -> list[WriterCommitMessage | None]:
        rows, script = self._play.rows_of(self._batch), self._play.script
        messages: list[WriterCommitMessage | None] = []
        for partition in range(self._task_count):
            self._partition, task = partition, (self._batch, partition)
            mine = rows[partition :: self._task_count]
            if task in script.lost_attempts:
                self._write(mine[: len(mine) // 2])
            copies = [self._write(mine) for _ in range(1 + (task in script.speculative))]
            # Spark takes the copy that finishes first, which need not be the one that started first.
            messages.append(copies[partition % len(copies)])
        return messages

    def _write(self, rows: list[str]) -> WriterCommitMessage:
        message: WriterCommitMessage = self._writer.write(
            iter([pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.string())})])
        )
        return message

    def _step(self, step: str) -> None:
        shared_loop().run(self._on_step(step))

    async def _on_step(self, step: str) -> None:
        incident = self._play.due(step, self._batch)
        if incident is None:
            return
        match incident.kind:
            case Kind.KILL:
                raise Killed
            case Kind.FAIL:
                raise RuntimeError(f"injected at {step}")
            case Kind.TIME_OUT:
                await asyncio.to_thread(self._play.time_out)
            case Kind.RESTART:
                await asyncio.to_thread(self._play.restart)
            case Kind.WAKE | Kind.RACE:
                await asyncio.to_thread(self._play.wake, waits=incident.kind is Kind.WAKE)
            case Kind.ZOMBIE:
                self.is_paused = True
                self.stopped.set()
                await self.resume.wait()


# The points where a commit of three tasks can be interrupted, in order: the steps of `committer` and those around them.
POINTS = (
    ("tasks done", 1),
    ("took over", 1),
    ("checked", 1),
    ("written", 1),
    ("decided", 1),
    ("ended", 1),
    ("ended", 2),
    ("ended", 3),
    ("listed", 1),
    ("written", 2),
    ("done", 1),
    ("swept", 1),
    ("committed", 1),
)


def random_script(seed: int) -> Script:
    randomness = Random(seed)
    incidents = [
        Incident(randomness.choice(_OFTEN), *_random_point(randomness)) for _ in range(randomness.randint(1, 4))
    ]
    some = [(batch, partition) for batch in range(3) for partition in range(3)]
    return Script(
        incidents,
        task_counts=randomness.choice([(3,), (3, 2), (2, 4, 3), (1, 3)]),
        empty_batches=frozenset(randomness.sample(range(3), randomness.choice([0, 0, 1]))),
        lost_attempts=frozenset(randomness.sample(some, randomness.randint(0, 2))),
        speculative=frozenset(randomness.sample(some, randomness.randint(0, 3))),
        shares_workers=randomness.random() < 0.3,
    )


# A restart takes as long as ten other incidents, so it is less frequent.
_OFTEN = [kind for kind in Kind for _ in range(1 if kind is Kind.RESTART else 4)]


def _random_point(randomness: Random) -> tuple[str, int, int]:
    step, occurrence = randomness.choice([*POINTS, ("abandoned", 1), ("aborted", 1)])
    return step, randomness.randrange(3), occurrence


def play(broker: AnyBroker, script: Script, writer: type[StreamWriter] = StreamWriter) -> Play:
    """Run the script to its end and check which rows a reader sees."""
    made = Play(broker, script, writer)
    made.run()
    assert made.found() == made.expected()
    return made
