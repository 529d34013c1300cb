"""A node of the registry without its HTTP: the state, who leads, and how something is written.

Every node reads the topic of the schemas into its `state`. The leader also writes: a decision is made on the state, its
records are appended, and the answer is given when they have come back through the reader. State changes in no other
way.

A term begins when this node is elected, and with it a new `SchemasWriter`: it fences the one before, then the topic is
read to the end, and only then is anything decided. A term ends with the first append that failed, because nobody knows
what became of it, and another begins. If it failed because a newer writer has fenced ours, the election is asked first
who leads.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog

from rookery.base.errors import ApiError, ErrorCode, RookeryError, StartupError
from rookery.client.backoff import Backoff
from rookery.client.errors import ClientStateError
from rookery.registry import errors
from rookery.registry.decisions import Decision
from rookery.registry.election import Election, NodeIdentity
from rookery.registry.errors import RegistryError
from rookery.registry.log import Record, SchemasReader, SchemasWriter, is_fenced, patient_admin, prepare_topic
from rookery.registry.settings import RegistrySettings
from rookery.registry.state import State
from rookery.schemas.levels import find_level

logger = structlog.get_logger(__name__)

T = TypeVar("T")

_BACKOFF: Final = Backoff(0.1, 5.0)


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
        self._reader = SchemasReader(
            settings.client_config,
            settings.topic,
            self._replay,
            on_restart=self._forget,
        )
        self._election = Election(settings, identity, self._elected)
        self._leader: NodeIdentity | None = None
        self._has_result = asyncio.Event()
        # Its result is the writer; there is one while this node leads.
        self._term: asyncio.Task[SchemasWriter] | None = None
        self._turn = asyncio.Lock()
        # What goes on by itself, so that nobody's cancelled wait ends it.
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
        try:
            async with asyncio.timeout(limit_s):
                await prepare_topic(self._settings)
                self.kafka_cluster_id = await self._find_cluster()
                self._reader.start()
                await self._reader.catch_up(limit_s)
                self._election.start()
                await self._has_result.wait()
                if self._term is not None:
                    await asyncio.wait([self._term])
        except TimeoutError:
            raise StartupError(
                f"the schema registry was not ready within kafkastore.init.timeout.ms ({limit_s:g} s). "
                "Look at the lines above, and at whether the brokers serve."
            ) from None
        except ApiError as error:
            brokers = self._settings.client_config["bootstrap.servers"]
            raise StartupError(f"the schema registry cannot use the brokers at {brokers}: {error}") from error

    async def stop(self, *, leave: bool = True) -> None:
        """`leave` lets the other nodes elect another leader at once; what is being written is waited for."""
        await self._election.close(leave=leave)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                async with self._turn:
                    self._leader = None
        self._end_term()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._reader.stop()

    async def catch_up(self) -> None:
        """Returns when the state has everything that was written, by any node, before the call."""
        try:
            await self._reader.catch_up(self._timeout_s)
        except ApiError as error:
            raise _refusal(error) from error

    async def write(self, decide: Callable[[State], Decision[T]]) -> T:
        """Decide on the newest state, write the records and answer with the result, one after the other.

        RegistryError if this node cannot; what was to be written may then have been written all the same.
        """
        return await asyncio.shield(self._spawn(self._write(decide)))

    async def _write(self, decide: Callable[[State], Decision[T]]) -> T:
        async with self._turn:
            writer = await self._find_writer()
            decision = decide(self.state)
            if decision.records:
                await self._append(writer, decision.records)
            return decision.result

    async def _find_writer(self) -> SchemasWriter:
        term = self._term
        if term is None:
            raise errors.unknown_leader("This registry does not lead, and there is no other leader known")
        await asyncio.wait([term], timeout=self._timeout_s)
        if not term.done():
            raise errors.timed_out("This registry leads, but cannot write yet")
        if term.cancelled():
            raise errors.unknown_leader("This registry does not lead any more")
        return term.result()

    async def _append(self, writer: SchemasWriter, records: tuple[Record, ...]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                end = await writer.append(records)
            await self._reader.reach(end, self._timeout_s)
        except BaseException as error:
            logger.warning("a write failed, and may have been carried out", error=str(error) or type(error).__name__)
            self._doubt(was_fenced=is_fenced(error))
            if isinstance(error, ApiError | ClientStateError | TimeoutError):
                raise _refusal(error) from error
            raise

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self.revision += 1
        self.state.replay(key, value)

    # Who leads

    def _elected(self, leader: NodeIdentity | None) -> None:
        """The election's result; it comes again, unchanged, whenever the group comes together."""
        if leader != self._leader:
            logger.info(
                "registry leader", leader=None if leader is None else leader.url, is_self=leader == self._identity
            )
        self._leader = leader
        self._has_result.set()
        if not self.is_leader:
            self._end_term()
        elif self._term is None:
            self._begin_term()

    def _doubt(self, *, was_fenced: bool) -> None:
        """Nobody knows what became of an append."""
        self._end_term()
        if was_fenced:
            self._leader = None
            self._election.run_again("another registry has fenced this one")
        elif self.is_leader:
            self._begin_term()

    def _forget(self) -> None:
        """Everything is read anew; so long nothing can be decided."""
        self.state = self._empty_state()
        self.revision += 1
        if self._term is not None:
            self._end_term()
            self._begin_term()

    def _begin_term(self) -> None:
        self._term = asyncio.get_running_loop().create_task(self._take_over(), name="registry term")

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        if term.cancel():
            self._spawn(_settle(term))
        elif not term.cancelled():
            self._spawn(term.result().close())

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
        async with patient_admin(self._settings.client_config) as admin:
            return (await admin.describe_cluster()).cluster_id

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _settle(task: "asyncio.Task[SchemasWriter]") -> None:
    """Until a cancelled term is over; it may have come to its end all the same."""
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().close()


def _refusal(error: ApiError | ClientStateError | TimeoutError) -> RegistryError:
    if isinstance(error, TimeoutError):
        return errors.timed_out("The write was not carried out in time, as far as is known")
    if isinstance(error, ApiError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
        return errors.schema_too_large()
    if isinstance(error, ApiError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
        return errors.timed_out(str(error))
    return errors.store_failed(f"The schemas cannot be written or read: {error}")
