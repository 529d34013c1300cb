"""The topic that keeps the schemas: how it is made, read and written. The state is a fold over its records.

The order of everything comes from here. One node writes at a time, in transactions with one transactional id for the
topic. Opening a `SchemasWriter` fences the writer before it and settles what that left behind, committed or aborted.
Who then reads to the end knows all that was ever decided, and nobody can add to it but this writer. So a decision that
was made on that state, or on that state and the writer's own records, is never made twice, even if two nodes believe
that they lead.

An append that failed may have been written: the answer to the commit may be lost. Only a new writer finds out.
"""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Final, TypeAlias

import structlog

from rookery.base.codes import ResourceType
from rookery.base.errors import ApiError, ErrorCode, StartupError
from rookery.base.types import Offset, TopicPartition
from rookery.client.admin import Admin, ConfigResource, NewTopic
from rookery.client.backoff import Backoff
from rookery.client.cluster import Cluster
from rookery.client.consume.consumer import Consumer
from rookery.client.consume.records import ConsumerRecord
from rookery.client.errors import OffsetOutOfRangeError, WakeupError
from rookery.client.produce.producer import Producer
from rookery.client.settings.admin import AdminSettings
from rookery.registry.settings import RegistrySettings

logger = structlog.get_logger(__name__)

Record: TypeAlias = tuple[bytes, bytes | None]
OnRecord: TypeAlias = Callable[[bytes, bytes | None], None]

_CLEANUP_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_BACKOFF: Final = Backoff(0.1, 5.0)
# A topic that does not exist yet may be created at any time, and somebody may wait for what is in it.
_ABSENT_S: Final = 0.5
_PATIENCE_S: Final = 3.0
_IDLE_POLL_S: Final = 5.0
# Markers of transactions end no poll, and move the position: who waits for it looks more often.
_WATCHED_POLL_S: Final = 0.01
_POSITION_S: Final = 5.0


@asynccontextmanager
async def patient_admin(settings: RegistrySettings) -> AsyncIterator[Admin]:
    """An admin that waits a while for brokers that are not there yet, and then says why."""
    cluster = Cluster(AdminSettings.parse(settings.client_config).common)
    cluster.timeout_s = patience_s(settings)
    try:
        yield Admin.over(cluster)
    finally:
        await cluster.close()


def patience_s(settings: RegistrySettings) -> float:
    """How long brokers may be away before somebody should hear of it."""
    return min(_PATIENCE_S, settings.init_timeout_ms / 2000)


async def prepare_topic(settings: RegistrySettings) -> None:
    """Create the topic, or check the one that is there. StartupError if that is not fit to keep schemas."""
    if settings.topic_skip_validation:
        return
    async with patient_admin(settings) as admin:
        while True:
            (topic,) = await admin.describe_topics([settings.topic])
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break
            if await _create_topic(admin, settings):
                return
            # Another node was faster, and not every broker knows it yet.
            await asyncio.sleep(_ABSENT_S)
        if len(topic.partitions) > 1:
            raise StartupError(
                f"the topic {topic.name} has {len(topic.partitions)} partitions, and schemas need exactly one. "
                "Name another topic with kafkastore.topic."
            )
        await _check_cleanup(admin, settings.topic)


async def _create_topic(admin: Admin, settings: RegistrySettings) -> bool:
    """False if somebody else has done so."""
    broker_count = len((await admin.describe_cluster()).brokers)
    topic = NewTopic(
        name=settings.topic,
        partitions=1,
        replication_factor=min(settings.topic_replication_factor, broker_count),
        configs={_CLEANUP_POLICY: _COMPACT},
    )
    (outcome,) = await admin.create_topics([topic])
    if outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    outcome.check()
    logger.info("created the topic of the schemas", topic=settings.topic, replicas=topic.replication_factor)
    return True


async def _check_cleanup(admin: Admin, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (found,) = await admin.describe_configs([resource], names=[_CLEANUP_POLICY])
    policy = found.check().values().get(_CLEANUP_POLICY)
    if policy != _COMPACT:
        raise StartupError(
            f"the topic {topic} has {_CLEANUP_POLICY}={policy}, by which schemas would be lost. "
            f"Set it to {_COMPACT}, or name another topic with kafkastore.topic."
        )


class SchemasReader:
    """Tells `on_record` every committed record of the topic, in order, from the first; then those that come.

    Failures to read are logged and tried again for ever. A record that `on_record` raises for is logged and left out:
    it would raise again, for every reader of the topic. `on_restart` is called when the topic has become another one,
    and everything comes again from the first record. The topic may be created later.
    """

    def __init__(
        self,
        client_config: Mapping[str, str],
        topic: str,
        on_record: OnRecord,
        *,
        on_restart: Callable[[], None] | None = None,
        turn: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """`turn` is held while records are told."""
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        self._on_record = on_record
        self._on_restart = on_restart
        self._turn = nullcontext() if turn is None else turn
        self._consumer: Consumer[bytes, bytes] = Consumer(
            {
                **client_config,
                "isolation.level": "read_committed",
                "auto.offset.reset": "none",
                "allow.auto.create.topics": "false",
            }
        )
        self._position: Offset = 0
        # By offset: who waits until everything below has been told.
        self._waiting: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._wait_count = 0
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="schemas reader")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                logger.error("the reader of the schemas had died", topic=self._topic, error=repr(error))
        for _, _, reached in self._waiting:
            if not reached.done():
                reached.set_exception(ApiError(ErrorCode.NETWORK_EXCEPTION, "the reader of the schemas is stopped"))
        await self._consumer.close(timeout_s=0)

    async def catch_up(self, timeout_s: float, *, must_exist: bool = False) -> None:
        """Returns when everything that was committed to the topic at the time of the call has been told.

        A topic that does not exist has nothing to tell; with `must_exist` that is an error.
        """
        position = self._position
        try:
            async with asyncio.timeout(timeout_s):
                ends = await self._consumer.end_offsets([self._partition], timeout_s=timeout_s)
        except TimeoutError:
            raise self._late(timeout_s) from None
        except ApiError as error:
            if must_exist or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return
        if ends[self._partition] < position:
            self._start_over()
        await self.reach(ends[self._partition], timeout_s)

    async def reach(self, end: Offset, timeout_s: float) -> None:
        """Returns when everything below an offset has been told."""
        if self._position >= end:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_count += 1
        entry = (end, self._wait_count, reached)
        insort(self._waiting, entry)
        self._hurry.set()
        self._consumer.wakeup()
        try:
            async with asyncio.timeout(timeout_s):
                await reached
        except TimeoutError:
            raise self._late(timeout_s) from None
        finally:
            with suppress(ValueError):
                self._waiting.remove(entry)

    def _late(self, timeout_s: float) -> ApiError:
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"topic {self._topic} was not read to its end in {timeout_s:g} s")

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await (self._read() if self._consumer.assignment() else self._find_topic())
                failures = 0
            except Exception as error:
                await self._recover(error, failures)
                failures += 1

    async def _find_topic(self) -> None:
        try:
            await self._consumer.partitions_for(self._topic)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            await self._pause(_ABSENT_S)
        else:
            self._consumer.assign([self._partition])
            self._consumer.seek_to_beginning(self._partition)

    async def _read(self) -> None:
        try:
            records = await self._consumer.poll(_WATCHED_POLL_S if self._waiting else _IDLE_POLL_S)
        except WakeupError:
            return
        async with self._turn:
            for record in records:
                self._tell(record)
        self._move(await self._consumer.position(self._partition, timeout_s=_POSITION_S))
        # Who has caught up may go on before the next portion is looked at.
        await asyncio.sleep(0)

    def _tell(self, record: ConsumerRecord[bytes, bytes]) -> None:
        try:
            self._on_record(record.key or b"", record.value)
        except Exception:
            logger.exception("left out a record of the schemas", topic=self._topic, offset=record.offset)

    def _move(self, position: Offset) -> None:
        self._position = position
        while self._waiting and self._waiting[0][0] <= position:
            _, _, reached = self._waiting.pop(0)
            if not reached.done():
                reached.set_result(None)

    async def _recover(self, error: Exception, failures: int) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            self._start_over()
        elif isinstance(error, ApiError):
            logger.warning("cannot read the schemas", topic=self._topic, error=str(error), failures=failures)
        else:
            logger.exception("the reader of the schemas failed", topic=self._topic, failures=failures)
        await self._pause(_BACKOFF.pause_s(failures))

    def _start_over(self) -> None:
        logger.error("the topic of the schemas is not what it was: reading it anew", topic=self._topic)
        self._position = 0
        if self._on_restart is not None:
            self._on_restart()
        self._consumer.seek_to_beginning(self._partition)

    async def _pause(self, pause_s: float) -> None:
        """Shorter for the first who begins to wait, since there may be news."""
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._hurry.wait()


def is_fenced(error: BaseException) -> bool:
    """Whether an append failed because there is a newer writer. A partition's leader and the coordinator each have a
    code of their own for that; the leader's may also mean that the transaction took too long."""
    return isinstance(error, ApiError) and error.code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )


class SchemasWriter:
    """One term of a leader. Opened once; after the first append that failed it is of no use any more."""

    def __init__(self, client_config: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._producer: Producer[bytes, bytes] = Producer(
            {**client_config, "transactional.id": f"rookery-registry-{topic}", "linger.ms": "0"}
        )

    async def open(self) -> None:
        """Fence whoever wrote before. Everything of theirs is then committed, or will never be."""
        await self._producer.init_transactions()

    async def append(self, records: Sequence[Record]) -> Offset:
        """Write all of the records or none; the offset behind the last. An error leaves open which of the two."""
        self._producer.begin_transaction()
        sent = [await self._producer.send(self._topic, value, key=key, partition=0) for key, value in records]
        await self._producer.commit_transaction()
        return sent[-1].result().offset + 1

    async def close(self) -> None:
        await self._producer.close(timeout_s=0)
