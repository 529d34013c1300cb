"""A node of the registry without its HTTP: the state, who leads, and how something is written.

Every node reads the topic of the schemas into its `state`. The leader also writes: a decision is made on the state, its
records are appended, and the answer is given when they have come back through the reader. State changes in no other
way.

A term begins when this node is elected, and with it a new `SchemasWriter`: it fences the one before, then the topic is
read to the end, and only then is anything decided. A term ends with the first append that failed, because nobody knows
what became of it, and another begins. If it failed because a newer writer has fenced ours, the election is asked first
who leads. In the next term it is known whether the records of that append are there: if not, it is decided anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from rookery.base.errors import ApiError, ErrorCode, RookeryError, StartupError
from rookery.client.backoff import Backoff
from rookery.client.errors import ClientStateError
from rookery.registry import errors
from rookery.registry.decisions import Decision
from rookery.registry.election import Election, NodeIdentity
from rookery.registry.errors import RegistryError
from rookery.registry.log import (
    Record,
    SchemasReader,
    SchemasWriter,
    is_fenced,
    patience_s,
    patient_admin,
    prepare_topic,
)
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State
from rookery.registry.worker import SchemaWorker
from rookery.schemas.levels import find_level

logger = structlog.get_logger(__name__)

T = TypeVar("T")

_BACKOFF: Final = Backoff(0.1, 5.0)
# The listeners wait longer for their requests, so that each of these still gets its answer.
_DRAIN_S: Final = 3.0

AppendError: TypeAlias = ApiError | ClientStateError


class RegistryService:
    """`await start()`, then ask `state` and `write`. `identity` is how the other nodes reach this one."""

    def __init__(self, settings: RegistrySettings, identity: NodeIdentity) -> None:
        self._settings = settings
        self._identity = identity
        self._timeout_s = settings.timeout_ms / 1000
        self.state = self._empty_state()
        # Rises whenever the state changes.
        self.revision = 0
        self.kafka_cluster_id = ""
        self._worker = SchemaWorker()
        self._reader = SchemasReader(
            settings.client_config,
            settings.topic,
            self._replay,
            on_restart=self._forget,
            turn=self._worker.turn,
        )
        self._election = Election(settings, identity, self)
        self._leader: NodeIdentity | None = None
        # Of the election: there is one, or there can be none.
        self._has_result = asyncio.Event()
        self._problem: str | None = None
        self._last_error: ApiError | None = None
        # Its result is the writer; there is one while this node leads.
        self._term: asyncio.Task[SchemasWriter] | None = None
        self._turn = asyncio.Lock()
        # Of the append that is under way: the records that have not come back.
        self._unseen: set[Record] = set()
        self._is_stopping = False
        # What goes on by itself, so that nobody's cancelled wait ends it.
        self._writes: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_leader(self) -> bool:
        """Whether this node was elected; it may still be on its way to its first write."""
        return self._leader == self._identity

    @property
    def leader_url(self) -> str | None:
        """None while nobody leads, as far as this node knows."""
        return None if self._leader is None else self._leader.url

    async def start(self) -> None:
        """Returns when all schemas have been read and a leader is known: if it is this node, when it can write."""
        limit_s = self._settings.init_timeout_ms / 1000
        brokers = self._settings.client_config["bootstrap.servers"]
        try:
            async with asyncio.timeout(limit_s):
                await self._start()
        except TimeoutError:
            hint = "Look at the lines above." if self._last_error is None else f"The last error: {self._last_error}."
            raise StartupError(
                f"the schema registry was not ready within kafkastore.init.timeout.ms ({limit_s:g} s), "
                f"with the brokers at {brokers}. {hint}"
            ) from None
        except ApiError as error:
            raise StartupError(f"the schema registry cannot use the brokers at {brokers}: {error}") from error

    async def _start(self) -> None:
        await self._patiently(lambda: prepare_topic(self._settings))
        self.kafka_cluster_id = await self._patiently(self._find_cluster)
        self._reader.start()
        await self._patiently(lambda: self._reader.catch_up(patience_s(self._settings)))
        self._election.start()
        await self._has_result.wait()
        if self._problem is not None:
            raise StartupError(self._problem)
        if self._term is not None:
            await asyncio.wait([self._term])

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        """Brokers that are not there yet are waited for, but not in silence."""
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
        """Refuse writes from now on; what is being written is waited for, for a while."""
        self._is_stopping = True
        if self._writes:
            await asyncio.wait(self._writes, timeout=min(self._timeout_s, _DRAIN_S))
        for task in self._writes:
            task.cancel()

    async def stop(self, *, leave: bool = True) -> None:
        """`leave` lets the other nodes elect another leader at once."""
        await self.drain()
        await self._election.close(leave=leave)
        self._follow(None)
        while unfinished := self._writes | self._tasks:
            await asyncio.wait(unfinished)
        await self._reader.stop()
        await self._worker.close()

    async def catch_up(self) -> None:
        """Returns when the state has everything that was written, by any node, before the call; or late, with a word
        in the logs."""
        try:
            await self._reader.catch_up(self._timeout_s)
        except ApiError as error:
            logger.warning("the state may be behind the topic of the schemas", error=str(error))

    async def ask(self, query: Callable[[State], T]) -> T:
        """The answer to a question for which schemas are parsed: in the worker's thread, on a state that stands still.

        What needs no parsing may look at `state` on the event loop.
        """
        return await self._worker.run(lambda: query(self.state))

    async def write(self, decide: Callable[[State], Decision[T]]) -> T:
        """Decide on the newest state, write the records and answer with the result, one after the other.

        RegistryError if this node cannot; what was to be written may then have been written all the same.
        """
        if self._is_stopping:
            raise _shutting_down()
        task = self._spawn(self._write(decide), self._writes)
        await asyncio.wait([task])
        if task.cancelled():
            raise _shutting_down()
        return task.result()

    async def _write(self, decide: Callable[[State], Decision[T]]) -> T:
        failure: AppendError | None = None
        attempt = 0
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                while True:
                    writer = await self._find_writer()
                    decision = await self.ask(decide)
                    if not self._is_current(writer):
                        # The term ended meanwhile, and perhaps the state was another one.
                        continue
                    if not decision.records:
                        return decision.result
                    failure = await self._append(writer, decision.records)
                    if failure is None or await self._was_written():
                        return decision.result
                    await asyncio.sleep(_BACKOFF.pause_s(attempt))
                    attempt += 1
        except TimeoutError:
            raise self._too_late(failure) from failure

    async def _find_writer(self) -> SchemasWriter:
        """In a term that has read all that was written before it."""
        while True:
            await self._has_result.wait()
            if self._is_stopping:
                raise _shutting_down()
            term = self._term
            if term is None:
                raise errors.unknown_leader("This registry does not lead, or does not any more")
            await asyncio.wait([term])
            if term is self._term:
                return term.result()

    async def _append(self, writer: SchemasWriter, records: tuple[Record, ...]) -> AppendError | None:
        """None if the records are there and in the state; an error if nobody knows."""
        self._unseen = set(records)
        try:
            end = await writer.append(records)
            await self._reader.reach(end, self._timeout_s)
        except BaseException as error:
            logger.warning("a write failed, and may have been carried out", error=str(error) or type(error).__name__)
            self._doubt(writer, error)
            if not isinstance(error, AppendError):
                raise
            if isinstance(error, ApiError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise errors.schema_too_large() from error
            return error
        return None

    async def _was_written(self) -> bool:
        """After an append that failed. The records were written together or not at all."""
        await self._find_writer()
        return not self._unseen

    def _too_late(self, failure: AppendError | None) -> RegistryError:
        if isinstance(failure, ApiError) and failure.code is ErrorCode.REQUEST_TIMED_OUT:
            return errors.timed_out(str(failure))
        if failure is not None:
            return errors.store_failed(f"The schemas cannot be written: {failure}")
        if not self._has_result.is_set():
            return errors.unknown_leader("It is not known at present which registry leads")
        return errors.timed_out("The write was not carried out in time, as far as is known")

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self.revision += 1
        self.state.replay(key, value)
        self._unseen.discard((key, value))

    # Who leads: what `Election` tells its candidate

    def elected(self, leader: NodeIdentity | None) -> None:
        self._problem = None
        self._follow(leader)
        self._has_result.set()

    def deserted(self) -> None:
        self._has_result.clear()
        self._follow(None)

    def refused(self, problem: str) -> None:
        self._problem = problem
        self._has_result.set()

    def _follow(self, leader: NodeIdentity | None) -> None:
        if leader != self._leader:
            logger.info(
                "registry leader", leader=None if leader is None else leader.url, is_self=leader == self._identity
            )
        self._leader = leader
        if not self.is_leader:
            self._end_term()
        elif self._term is None:
            self._begin_term()

    def _doubt(self, writer: SchemasWriter, error: BaseException) -> None:
        """Nobody knows what became of an append. That of an earlier term is no concern of this one."""
        if not self._is_current(writer):
            return
        self._end_term()
        if is_fenced(error):
            self.deserted()
            self._election.run_again("another registry has fenced this one")
        else:
            self._begin_term()

    def _is_current(self, writer: SchemasWriter) -> bool:
        term = self._term
        return term is not None and term.done() and term.result() is writer

    def _forget(self) -> None:
        """Everything is read anew; so long nothing can be decided."""
        self.state = self._empty_state()
        self.revision += 1
        if self._term is not None:
            self._end_term()
            self._begin_term()

    def _begin_term(self) -> None:
        if self._is_stopping:
            return
        self._term = asyncio.get_running_loop().create_task(self._take_over(), name="registry term")

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        if term.cancel():
            self._spawn(_settle(term), self._tasks)
        elif not term.cancelled():
            self._spawn(term.result().close(), self._tasks)

    async def _take_over(self) -> SchemasWriter:
        """Tried for ever: there is nobody else who could."""
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

    async def _find_cluster(self) -> str:
        async with patient_admin(self._settings) as admin:
            return (await admin.describe_cluster()).cluster_id

    def _spawn(self, work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> "asyncio.Task[T]":
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # Who asked for a write may have gone away, and nobody else looks at its error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


async def _settle(task: "asyncio.Task[SchemasWriter]") -> None:
    """Until a cancelled term is over; it may have come to its end all the same."""
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().close()


def _shutting_down() -> RegistryError:
    return errors.unknown_leader("This registry is shutting down")
