"""Creates, reads and writes the topic of the schemas. The registry's state is a fold over its records.

The topic defines the order of all changes. One node writes at a time, in transactions with one transactional id for the
topic. Opening a `SchemasWriter` fences the previous writer and completes or aborts its open transaction. A node that
then reads to the end of the topic has all changes, and only its own writer can add more. So the same write cannot be
planned twice on different states, for example with the same new id, even if two nodes believe that they lead.

An append that failed may have been written, if only the response to the commit was lost. Only the next writer finds
out.
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
# The wait before another look at a topic that does not exist yet: callers may wait for its records.
_ABSENT_S: Final = 0.5
_BROKER_WAIT_S: Final = 3.0
_IDLE_POLL_S: Final = 5.0
# Transaction markers move the position without ending a poll, so polls are short while callers wait for a position.
_WAITED_POLL_S: Final = 0.01
_POSITION_S: Final = 5.0


@asynccontextmanager
async def startup_admin(settings: RegistrySettings) -> AsyncIterator[Admin]:
    """Yield an admin client that waits `broker_wait_s` for brokers that are not available yet, and then raises."""
    cluster = Cluster(AdminSettings.parse(settings.client_config).common)
    cluster.timeout_s = broker_wait_s(settings)
    try:
        yield Admin.over(cluster)
    finally:
        await cluster.close()


def broker_wait_s(settings: RegistrySettings) -> float:
    """Return the time to wait for unavailable brokers before a warning is logged."""
    return min(_BROKER_WAIT_S, settings.init_timeout_ms / 2000)


async def prepare_topic(settings: RegistrySettings) -> None:
    """Create the topic, or check the existing one. Raises StartupError if it is not suitable for schemas."""
    if settings.topic_skip_validation:
        return
    async with startup_admin(settings) as admin:
        while True:
            (topic,) = await admin.describe_topics([settings.topic])
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break
            if await _create_topic(admin, settings):
                return
            # Another node created it at the same time, and not every broker has it in its metadata yet.
            await asyncio.sleep(_ABSENT_S)
        if len(topic.partitions) > 1:
            raise StartupError(
                f"the topic {topic.name} has {len(topic.partitions)} partitions, and schemas need exactly one. "
                "Name another topic with kafkastore.topic."
            )
        await _check_cleanup(admin, settings.topic)


async def _create_topic(admin: Admin, settings: RegistrySettings) -> bool:
    """Create the topic. Returns False if another node has created it."""
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
    """Calls `on_record` for every committed record of the topic, in order, from the first; then for new ones.

    Failures to read are logged and retried without limit. A record for which `on_record` raises is logged and skipped:
    it would raise again, for every reader of the topic. If the topic was deleted and created again, `on_restart` is
    called, and the reader begins again with the first record. The topic may be created after the reader starts.
    """

    def __init__(
        self,
        client_config: Mapping[str, str],
        topic: str,
        on_record: OnRecord,
        *,
        on_restart: Callable[[], None] | None = None,
        lock: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """`lock` is held while `on_record` is called."""
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        self._on_record = on_record
        self._on_restart = on_restart
        self._lock = nullcontext() if lock is None else lock
        self._consumer: Consumer[bytes, bytes] = Consumer(
            {
                **client_config,
                "isolation.level": "read_committed",
                "auto.offset.reset": "none",
                "allow.auto.create.topics": "false",
            }
        )
        self._position: Offset = 0
        # The callers that wait until all records below an offset are delivered, by offset.
        self._waiting: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._wait_count = 0
        self._has_waiter = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="schemas reader")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                logger.error("the reader of the schemas had failed", topic=self._topic, error=repr(error))
        for _, _, reached in self._waiting:
            if not reached.done():
                reached.set_exception(ApiError(ErrorCode.NETWORK_EXCEPTION, "the reader of the schemas is stopped"))
        await self._consumer.close(timeout_s=0)

    async def catch_up(self, timeout_s: float, *, must_exist: bool = False) -> None:
        """Return when all records that were committed before the call are delivered.

        Returns immediately if the topic does not exist, unless `must_exist` is set. Raises ApiError.
        """
        position = self._position
        try:
            async with asyncio.timeout(timeout_s):
                ends = await self._consumer.end_offsets([self._partition], timeout_s=timeout_s)
        except TimeoutError:
            raise self._timeout_error(timeout_s) from None
        except ApiError as error:
            if must_exist or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return
        if ends[self._partition] < position:
            self._restart()
        await self.reach(ends[self._partition], timeout_s)

    async def reach(self, end: Offset, timeout_s: float) -> None:
        """Return when all records below the offset `end` are delivered. Raises ApiError after `timeout_s`."""
        if self._position >= end:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_count += 1
        entry = (end, self._wait_count, reached)
        insort(self._waiting, entry)
        self._has_waiter.set()
        self._consumer.wakeup()
        try:
            async with asyncio.timeout(timeout_s):
                await reached
        except TimeoutError:
            raise self._timeout_error(timeout_s) from None
        finally:
            with suppress(ValueError):
                self._waiting.remove(entry)

    def _timeout_error(self, timeout_s: float) -> ApiError:
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
            records = await self._consumer.poll(_WAITED_POLL_S if self._waiting else _IDLE_POLL_S)
        except WakeupError:
            return
        async with self._lock:
            for record in records:
                self._deliver(record)
        self._move(await self._consumer.position(self._partition, timeout_s=_POSITION_S))
        # Let the callers that have caught up run before the next batch.
        await asyncio.sleep(0)

    def _deliver(self, record: ConsumerRecord[bytes, bytes]) -> None:
        try:
            self._on_record(record.key or b"", record.value)
        except Exception:
            logger.exception("skipped a record of the schemas", topic=self._topic, offset=record.offset)

    def _move(self, position: Offset) -> None:
        self._position = position
        while self._waiting and self._waiting[0][0] <= position:
            _, _, reached = self._waiting.pop(0)
            if not reached.done():
                reached.set_result(None)

    async def _recover(self, error: Exception, failures: int) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            self._restart()
        elif isinstance(error, ApiError):
            logger.warning("cannot read the schemas", topic=self._topic, error=str(error), failures=failures)
        else:
            logger.exception("the reader of the schemas failed", topic=self._topic, failures=failures)
        await self._pause(_BACKOFF.pause_s(failures))

    def _restart(self) -> None:
        logger.error("the topic of the schemas was replaced: reading it from the beginning", topic=self._topic)
        self._position = 0
        if self._on_restart is not None:
            self._on_restart()
        self._consumer.seek_to_beginning(self._partition)

    async def _pause(self, pause_s: float) -> None:
        """Wait; shorter if a caller begins to wait for a position, since there may be new records."""
        self._has_waiter.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._has_waiter.wait()


def is_fenced(error: BaseException) -> bool:
    """Whether an append failed because there is a newer writer.

    The partition's leader and the coordinator have different codes for that. The leader's code may also mean that the
    transaction took too long.
    """
    return isinstance(error, ApiError) and error.code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )


class SchemasWriter:
    """The writer of one term of a leader. It is opened once; after the first failed append it must not be used."""

    def __init__(self, client_config: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._producer: Producer[bytes, bytes] = Producer(
            {**client_config, "transactional.id": f"rookery-registry-{topic}", "linger.ms": "0"}
        )

    async def open(self) -> None:
        """Fence the previous writers. Their transactions are then committed, or never will be."""
        await self._producer.init_transactions()

    async def append(self, records: Sequence[Record]) -> Offset:
        """Write all of the records or none. Returns the offset after the last. After an error it is not known which."""
        self._producer.begin_transaction()
        sent = [await self._producer.send(self._topic, value, key=key, partition=0) for key, value in records]
        await self._producer.commit_transaction()
        return sent[-1].result().offset + 1

    async def close(self) -> None:
        await self._producer.close(timeout_s=0)
