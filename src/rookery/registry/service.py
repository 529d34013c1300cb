"""A node of the registry without HTTP: the state, the leader, and the writes.

Every node reads the topic of the schemas into its `state`. The leader also writes: it plans a write on the state,
appends the records, and returns the result when the reader has delivered them. The state changes in no other way.

A term begins when this node is elected. It opens a new `SchemasWriter`, which fences the previous one, then reads the
topic to the end, and only then plans writes. A term ends with the first append that failed, because its outcome is
unknown, and a new term begins. If a newer writer has fenced this one, the node first rejoins the election. The next
term has read whether the records of the failed append were written; if they were not, the write is planned again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from rookery.base.errors import ApiError, ErrorCode, RookeryError, StartupError
from rookery.client.backoff import Backoff
from rookery.client.errors import ClientStateError
from rookery.registry import errors
from rookery.registry.commands import PlannedWrite
from rookery.registry.election import Election, NodeIdentity
from rookery.registry.errors import RegistryError
from rookery.registry.log import (
    Record,
    SchemasReader,
    SchemasWriter,
    broker_wait_s,
    is_fenced,
    prepare_topic,
    startup_admin,
)
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State
from rookery.registry.worker import SchemaWorker
from rookery.schemas.levels import find_level

logger = structlog.get_logger(__name__)

T = TypeVar("T")

_BACKOFF: Final = Backoff(0.1, 5.0)
# Shorter than the time that the listeners wait for their requests, so that each write still gets its response.
_DRAIN_S: Final = 3.0

AppendError: TypeAlias = ApiError | ClientStateError


class RegistryService:
    """Call `await start()`, then use `state`, `run_query` and `write`. `identity` is the address for other nodes."""

    def __init__(self, settings: RegistrySettings, identity: NodeIdentity) -> None:
        self._settings = settings
        self._identity = identity
        self._timeout_s = settings.timeout_ms / 1000
        self.state = self._empty_state()
        # Increases with every change of the state.
        self.revision = 0
        self.kafka_cluster_id = ""
        self._worker = SchemaWorker()
        self._reader = SchemasReader(
            settings.client_config,
            settings.topic,
            self._replay,
            on_restart=self._reset_state,
            lock=self._worker.lock,
        )
        self._election = Election(settings, identity, self)
        self._leader: NodeIdentity | None = None
        # Set when the election has a result, or cannot have one (`_problem`).
        self._has_result = asyncio.Event()
        self._problem: str | None = None
        self._last_error: ApiError | None = None
        # The term of this node while it leads. The task's result is the writer.
        self._term: asyncio.Task[SchemasWriter] | None = None
        self._write_lock = asyncio.Lock()
        # The records of the append in progress that the reader has not delivered yet.
        self._undelivered: set[Record] = set()
        self._is_stopping = False
        # Background tasks: a write continues even if its caller is cancelled.
        self._writes: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_leader(self) -> bool:
        """Whether this node was elected; its term may not be ready for writes yet."""
        return self._leader == self._identity

    @property
    def leader_url(self) -> str | None:
        """The address of the leader; None if this node knows of none."""
        return None if self._leader is None else self._leader.url

    async def start(self) -> None:
        """Return when all schemas are read and a leader is known; if it is this node, when it can write.

        Raises StartupError.
        """
        limit_s = self._settings.init_timeout_ms / 1000
        brokers = self._settings.client_config["bootstrap.servers"]
        try:
            async with asyncio.timeout(limit_s):
                await self._start()
        except TimeoutError:
            hint = "See the log lines above." if self._last_error is None else f"The last error: {self._last_error}."
            raise StartupError(
                f"the schema registry was not ready within kafkastore.init.timeout.ms ({limit_s:g} s), "
                f"with the brokers at {brokers}. {hint}"
            ) from None
        except ApiError as error:
            raise StartupError(f"the schema registry cannot use the brokers at {brokers}: {error}") from error

    async def _start(self) -> None:
        await self._with_retries(lambda: prepare_topic(self._settings))
        self.kafka_cluster_id = await self._with_retries(self._fetch_cluster_id)
        self._reader.start()
        await self._with_retries(lambda: self._reader.catch_up(broker_wait_s(self._settings)))
        self._election.start()
        await self._has_result.wait()
        if self._problem is not None:
            raise StartupError(self._problem)
        if self._term is not None:
            await asyncio.wait([self._term])

    async def _with_retries(self, step: Callable[[], Awaitable[T]]) -> T:
        """Retry `step` while the brokers are not available, and log each failure."""
        while True:
            try:
                return await step()
            except ApiError as error:
                if not error.code.retriable:
                    raise
                self._last_error = error
                brokers = self._settings.client_config["bootstrap.servers"]
                logger.warning("the schema registry waits for the brokers", brokers=brokers, error=str(error))
                await asyncio.sleep(_BACKOFF.first_s)

    async def drain(self) -> None:
        """Reject new writes, and wait for the writes in progress, up to a time-out. The rest are cancelled."""
        self._is_stopping = True
        if self._writes:
            await asyncio.wait(self._writes, timeout=min(self._timeout_s, _DRAIN_S))
        for task in self._writes:
            task.cancel()

    async def stop(self, *, leave: bool = True) -> None:
        """Stop. With `leave` the other nodes elect another leader immediately."""
        await self.drain()
        await self._election.close(leave=leave)
        self._set_leader(None)
        while unfinished := self._writes | self._tasks:
            await asyncio.wait(unfinished)
        await self._reader.stop()
        await self._worker.close()

    async def catch_up(self) -> None:
        """Return when the state contains everything that any node wrote before the call.

        After a time-out it returns as well, and logs a warning.
        """
        try:
            await self._reader.catch_up(self._timeout_s)
        except ApiError as error:
            logger.warning("the state may lag the topic of the schemas", error=str(error))

    async def run_query(self, query: Callable[[State], T]) -> T:
        """Run a query that parses schemas: in the worker's thread, while the state does not change.

        A query that parses nothing may use `state` on the event loop.
        """
        return await self._worker.run(lambda: query(self.state))

    async def write(self, plan: Callable[[State], PlannedWrite[T]]) -> T:
        """Plan a write on the newest state, append its records and return its result; one write at a time.

        Raises RegistryError if `plan` does, or if this node cannot write; the records may have been written even then.
        """
        if self._is_stopping:
            raise _shutting_down()
        task = self._spawn(self._write(plan), self._writes)
        await asyncio.wait([task])
        if task.cancelled():
            raise _shutting_down()
        return task.result()

    async def _write(self, plan: Callable[[State], PlannedWrite[T]]) -> T:
        failure: AppendError | None = None
        attempt = 0
        try:
            async with asyncio.timeout(self._timeout_s), self._write_lock:
                while True:
                    writer = await self._find_writer()
                    planned = await self.run_query(plan)
                    if not self._is_current(writer):
                        # The term ended while the write was planned, possibly on a state that misses records of another
                        # leader. Appended in the next term, it could assign an id a second time.
                        continue
                    if not planned.records:
                        return planned.result
                    failure = await self._append(writer, planned.records)
                    if failure is None or await self._was_written():
                        return planned.result
                    await asyncio.sleep(_BACKOFF.pause_s(attempt))
                    attempt += 1
        except TimeoutError:
            raise self._timeout_error(failure) from failure

    async def _find_writer(self) -> SchemasWriter:
        """Return the writer of the current term, when the term has read everything that was written before it."""
        while True:
            await self._has_result.wait()
            if self._is_stopping:
                raise _shutting_down()
            term = self._term
            if term is None:
                raise errors.unknown_leader("This registry is not the leader, or not any more")
            await asyncio.wait([term])
            if term is self._term:
                return term.result()

    async def _append(self, writer: SchemasWriter, records: tuple[Record, ...]) -> AppendError | None:
        """Append the records. Returns None if they are written and in the state; the error if that is not known."""
        self._undelivered = set(records)
        try:
            end = await writer.append(records)
            await self._reader.reach(end, self._timeout_s)
        except BaseException as error:
            logger.warning("a write failed, and may have been carried out", error=str(error) or type(error).__name__)
            self._handle_append_failure(writer, error)
            if not isinstance(error, AppendError):
                raise
            if isinstance(error, ApiError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise errors.schema_too_large() from error
            return error
        return None

    async def _was_written(self) -> bool:
        """Whether the records of a failed append were written, which the next term knows. All were, or none."""
        await self._find_writer()
        return not self._undelivered

    def _timeout_error(self, failure: AppendError | None) -> RegistryError:
        if isinstance(failure, ApiError) and failure.code is ErrorCode.REQUEST_TIMED_OUT:
            return errors.timed_out(str(failure))
        if failure is not None:
            return errors.store_failed(f"The schemas cannot be written: {failure}")
        if not self._has_result.is_set():
            return errors.unknown_leader("The leader of the registries is not known at present")
        return errors.timed_out("The write was not completed in time, as far as is known")

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self.revision += 1
        self.state.replay(key, value)
        self._undelivered.discard((key, value))

    # The methods of `ElectionListener`

    def leader_elected(self, leader: NodeIdentity | None) -> None:
        self._problem = None
        self._set_leader(leader)
        self._has_result.set()

    def leader_lost(self) -> None:
        self._has_result.clear()
        self._set_leader(None)

    def election_failed(self, problem: str) -> None:
        self._problem = problem
        self._has_result.set()

    def _set_leader(self, leader: NodeIdentity | None) -> None:
        if leader != self._leader:
            logger.info(
                "registry leader", leader=None if leader is None else leader.url, is_self=leader == self._identity
            )
        self._leader = leader
        if not self.is_leader:
            self._end_term()
        elif self._term is None:
            self._begin_term()

    def _handle_append_failure(self, writer: SchemasWriter, error: BaseException) -> None:
        """End the term after an append whose outcome is unknown. A failure in an earlier term changes nothing."""
        if not self._is_current(writer):
            return
        self._end_term()
        if is_fenced(error):
            self.leader_lost()
            self._election.run_again("another registry has fenced this one")
        else:
            self._begin_term()

    def _is_current(self, writer: SchemasWriter) -> bool:
        term = self._term
        return term is not None and term.done() and term.result() is writer

    def _reset_state(self) -> None:
        """Start with an empty state, because the reader begins again. Writes wait for a new term, which reads to the
        end."""
        self.state = self._empty_state()
        self.revision += 1
        if self._term is not None:
            self._end_term()
            self._begin_term()

    def _begin_term(self) -> None:
        if self._is_stopping:
            return
        self._term = asyncio.get_running_loop().create_task(self._open_writer(), name="registry term")

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        if term.cancel():
            self._spawn(_close_cancelled(term), self._tasks)
        elif not term.cancelled():
            self._spawn(term.result().close(), self._tasks)

    async def _open_writer(self) -> SchemasWriter:
        """Open a writer and read the topic to its end. Retries without limit: no other node was elected."""
        failures = 0
        while True:
            writer = SchemasWriter(self._settings.client_config, self._settings.topic)
            try:
                await prepare_topic(self._settings)
                await writer.open()
                await self._reader.catch_up(self._settings.init_timeout_ms / 1000, must_exist=True)
                logger.info("this registry writes", topic=self._settings.topic)
                return writer
            except Exception as error:
                await writer.close()
                is_bug = not isinstance(error, RookeryError)
                logger.warning("this registry cannot write yet", error=str(error), failures=failures, exc_info=is_bug)
            except asyncio.CancelledError:
                await writer.close()
                raise
            await asyncio.sleep(_BACKOFF.pause_s(failures))
            failures += 1

    # Parts

    def _empty_state(self) -> State:
        level = find_level(self._settings.compatibility_level)
        assert level is not None, "the settings are checked"
        return State(default_level=level, modes_are_mutable=self._settings.mode_mutability)

    async def _fetch_cluster_id(self) -> str:
        async with startup_admin(self._settings) as admin:
            return (await admin.describe_cluster()).cluster_id

    def _spawn(self, work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> "asyncio.Task[T]":
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # The caller of a write may be cancelled. Without this, asyncio would log that its error was never retrieved.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


async def _close_cancelled(task: "asyncio.Task[SchemasWriter]") -> None:
    """Wait for a cancelled term, and close its writer if the term completed before the cancellation."""
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().close()


def _shutting_down() -> RegistryError:
    return errors.unknown_leader("This registry is shutting down")
