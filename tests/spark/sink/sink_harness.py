"""Plays Spark's part towards the sink: the real writer's classes, a real broker, and drivers that die where we say.

A `Play` is one query on one topic. It keeps what Spark keeps in a checkpoint (which batches are finished), runs drivers
one after the other, and lets each do what Spark does: tasks write, also twice (a failed attempt, a speculative copy);
their messages go to `commit`; if that raises, `abort` gets them all; a driver that is gone is followed by one that
replays the first unfinished batch. `Incident` says what happens, and at which step of a commit. At the end the topic
must hold each row of each batch once, for readers of committed records.

What a killed process would not do is not done here either: a `Killed` is no `Exception`, and passes everything.
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
    """The driver is gone."""


class Kind(Enum):
    KILL = auto()  # the driver dies
    FAIL = auto()  # the step raises: Spark calls abort, and the query ends
    ZOMBIE = auto()  # the driver stands still, is given up for dead, and goes on when others have done its work
    TIME_OUT = auto()  # all open transactions time out
    RESTART = auto()  # the broker is stopped and started again
    WAKE = auto()  # drivers that stand still go on, to their end
    RACE = auto()  # the same, at the same time as this one


class AnyBroker(Protocol):
    """An `EmbeddedBroker`; for time-outs and restarts it must be one."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, name: str, *, partitions: int = 1) -> None: ...


@dataclass(frozen=True)
class Incident:
    """At the `occurrence`-th time that a driver comes to the step, in or after that batch."""

    kind: Kind
    step: str
    batch: int = 1
    occurrence: int = 1


@dataclass
class Script:
    """What shall happen, and what else is unusual about the run."""

    incidents: Sequence[Incident] = ()
    # How many tasks the n-th driver cuts a batch into; the last holds for all further ones.
    task_counts: Sequence[int] = (3,)
    batch_count: int = 3
    empty_batches: frozenset[int] = frozenset()
    # Tasks, as batch and partition, of which another attempt was killed after it had written.
    lost_attempts: frozenset[tuple[int, int]] = frozenset()
    speculative: frozenset[tuple[int, int]] = frozenset()
    # Whether all drivers' tasks run in the same Python workers, as after a restart of a query in one application.
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
        """Until all batches are finished; raises the last error if drivers fail over and over."""
        with ThreadPoolExecutor() as threads:
            try:
                while self.finished < self.script.batch_count:
                    if self.restarts > RESTARTS_MAX:
                        raise self.errors[-1] if self.errors else AssertionError("drivers die for ever")
                    driver = _Driver(self, self.restarts, self._writer)
                    self.restarts += 1
                    self._watch(driver, threads.submit(driver.run))
            finally:
                self.wake(waits=True)

    def _watch(self, driver: "_Driver", future: Future[None]) -> None:
        """To its end; or until it stands still, which is for all others the same."""
        stopped = driver.stopped
        future.add_done_callback(lambda _: stopped.set())
        if not stopped.wait(_PAUSE_S_MAX):
            raise AssertionError("a driver hangs")
        if driver.is_paused:
            self._zombies.append((driver.go_on, future))
            return
        error = future.exception()
        if isinstance(error, Exception):
            self.errors.append(error)

    def wake(self, *, waits: bool) -> None:
        """Let zombies go. What they still do must change nothing; they may well fail."""
        zombies = list(self._zombies)
        for go_on, future in zombies:
            shared_loop().call(go_on.set)
            if waits:
                future.exception(_PAUSE_S_MAX)

    def due(self, step: str, batch: int) -> Incident | None:
        """What happens now, once."""
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
        """Committed rows. Transactions that are open are aborted first, as their time-out would do."""
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
        """All transactions that are open now."""
        self._embedded().advance_time(TRANSACTION_TIMEOUT_S + 1)
        eventually(lambda: self.open_count() == 0, "the broker gives up what takes too long")

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
        self.go_on = asyncio.Event()
        counts = play.script.task_counts
        self._task_count = counts[min(number, len(counts) - 1)]
        options = {
            **{f"kafka.{key}": value for key, value in play.common.items()},
            "topic": play.sink,
            # Drivers are processes: what one knows of the ledger, another does not.
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
            # Spark takes the one that is done first, whichever began first.
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
                await self.go_on.wait()


# Where a commit can be interrupted: the steps of `committer`, with those around them, in their order. Three tasks.
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


# A restart takes as long as ten others.
_OFTEN = [kind for kind in Kind for _ in range(1 if kind is Kind.RESTART else 4)]


def _random_point(randomness: Random) -> tuple[str, int, int]:
    step, occurrence = randomness.choice([*POINTS, ("abandoned", 1), ("aborted", 1)])
    return step, randomness.randrange(3), occurrence


def play(broker: AnyBroker, script: Script, writer: type[StreamWriter] = StreamWriter) -> Play:
    """Run it to its end, and check what a reader sees."""
    made = Play(broker, script, writer)
    made.run()
    assert made.found() == made.expected()
    return made
