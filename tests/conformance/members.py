"""Members of consumer groups, one class per foreign client; each polls in its own thread until it is stopped."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

TIMEOUT_S = 60
_POLL_S = 0.1
# If a poll ends between SyncGroup and its response, kafka-python 3.0 waits for ever: its polls are longer.
_KAFKA_PYTHON_POLL_MS = 2000
# Longer than the stalls of a busy machine; a test that waits for the end of a session uses a shorter one.
SESSION_MS = 15_000
HEARTBEAT_MS = 500
# The clients' defaults grow to 10 and 30 s while a broker is down.
_RECONNECT_MS = 500

Partition = tuple[str, int]


class Member:
    """A member. `partitions` is its current assignment; `records` what it has read, as (topic, partition, offset)."""

    strategies: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        strategy: str = "range",
        instance_id: str | None = None,
        commits: bool = True,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.bootstrap = bootstrap
        self.group_id = group_id
        self.topics = list(topics)
        self.pattern = pattern
        self.strategy = strategy
        self.instance_id = instance_id
        self.commits = commits
        self.session_ms = session_ms
        self.partitions: frozenset[Partition] = frozenset()
        self.records: list[tuple[str, int, int]] = []
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop polling and close the client, which leaves the group."""
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.poll_until_stopped()
        except BaseException as error:
            self.error = error

    def poll_until_stopped(self) -> None:
        raise NotImplementedError


class ConfluentMember(Member):
    strategies = ("range", "roundrobin", "cooperative-sticky")

    def poll_until_stopped(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "partition.assignment.strategy": self.strategy,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": self.session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": _RECONNECT_MS,
            "log_level": 0,
        }
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([self.pattern] if self.pattern is not None else self.topics)
        try:
            while not self._stopping.is_set():
                self._take(consumer, consumer.consume(100, _POLL_S))
        finally:
            consumer.close()

    def _take(self, consumer: confluent_kafka.Consumer, messages: list[Any]) -> None:
        # Ignore refused connections while the broker restarts; the test checks only their effects.
        read = [message for message in messages if message.error() is None]
        self.records += [(message.topic(), message.partition(), message.offset()) for message in read]
        self.partitions = frozenset((item.topic, item.partition) for item in consumer.assignment())
        if self.commits and read:
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() not in _REBALANCING:
                    raise


_REBALANCING = {
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError._NO_OFFSET,
    confluent_kafka.KafkaError._ASSIGNMENT_LOST,
}


class KafkaPythonMember(Member):
    strategies = ("range", "roundrobin", "sticky")
    _ASSIGNORS: ClassVar = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    def poll_until_stopped(self) -> None:
        settings = {} if self.instance_id is None else {"group_instance_id": self.instance_id}
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[self._ASSIGNORS[self.strategy]],
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
            reconnect_backoff_max_ms=_RECONNECT_MS,
            **settings,
        )
        consumer.subscribe(pattern=self.pattern) if self.pattern is not None else consumer.subscribe(self.topics)
        try:
            while not self._stopping.is_set():
                polled = self._poll(consumer)
                read = [record for records in polled.values() for record in records]
                self.records += [(record.topic, record.partition, record.offset) for record in read]
                self.partitions = frozenset((item.topic, item.partition) for item in consumer.assignment())
                if self.commits and read:
                    self._commit(consumer)
        finally:
            consumer.close()

    @staticmethod
    def _poll(consumer: Any) -> dict[Any, Any]:
        try:
            polled: dict[Any, Any] = consumer.poll(timeout_ms=_KAFKA_PYTHON_POLL_MS)
        except kafka.errors.KafkaConnectionError:
            return {}  # The broker restarts.
        return polled

    @staticmethod
    def _commit(consumer: Any) -> None:
        try:
            consumer.commit()
        except (kafka.errors.CommitFailedError, kafka.errors.KafkaConnectionError):
            return  # The group rebalances or the broker restarts; the records are read again.


class AioKafkaMember(Member):
    strategies = ("range", "roundrobin", "sticky")
    _ASSIGNORS: ClassVar = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def poll_until_stopped(self) -> None:
        asyncio.run(self._poll_until_stopped())

    async def _poll_until_stopped(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group_id,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[self._ASSIGNORS[self.strategy]],
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
        )
        await consumer.start()
        try:
            consumer.subscribe(pattern=self.pattern) if self.pattern is not None else consumer.subscribe(self.topics)
            while not self._stopping.is_set():
                polled = await consumer.getmany(timeout_ms=int(_POLL_S * 1000))
                read = [record for records in polled.values() for record in records]
                self.records += [(record.topic, record.partition, record.offset) for record in read]
                self.partitions = frozenset((item.topic, item.partition) for item in consumer.assignment())
                if self.commits and read:
                    await self._commit(consumer)
        finally:
            await consumer.stop()

    @staticmethod
    async def _commit(consumer: Any) -> None:
        try:
            await consumer.commit()
        except aiokafka.errors.CommitFailedError:
            return  # The group rebalances; the records are read again.


MEMBERS: tuple[type[Member], ...] = (ConfluentMember, KafkaPythonMember, AioKafkaMember)


@contextmanager
def running(*members: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            if member._thread.is_alive():
                member.stop()


def share(members: Sequence[Member], partitions: set[Partition]) -> bool:
    """Return whether every partition is assigned to exactly one member, and every member has a partition."""
    owned = [partition for member in members for partition in member.partitions]
    return sorted(owned) == sorted(partitions) and all(member.partitions for member in members)


def fill(bootstrap: str, topic: str, *, partitions: int, count: int, create: bool = True) -> set[Partition]:
    """Create a topic, unless `create` is False, and write `count` records to each partition."""
    if create:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    return {(topic, partition) for partition in range(partitions)}
