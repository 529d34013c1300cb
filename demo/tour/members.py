"""Members of one group, each with a different client library and in its own thread.

They record the values that they read and their assignments, and commit before they lose a partition or leave: no
member reads again what another has read.
"""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioKafkaRange
from confluent_kafka import TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

GROUP = "readers"
POLL_S = 0.1
HEARTBEAT_MS = 300


class Member:
    """Subclasses read until `stopping` is set, in `_read`."""

    library = ""

    def __init__(self, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic
        self.values: list[bytes] = []
        self.assigned: list[int] = []
        self.stopping = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Commit, leave the group, and wait for the thread."""
        self.stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.failure = error
        self.assigned = []

    def _read(self) -> None:
        raise NotImplementedError

    def set_assigned(self, partitions: Iterable[Any]) -> None:
        self.assigned = sorted(partition.partition for partition in partitions)


class ConfluentMember(Member):
    library = "confluent-kafka"

    def _read(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "partition.assignment.strategy": "range",
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "log_level": 0,
            }
        )
        uncommitted: dict[int, TopicPartition] = {}

        def commit() -> None:
            if uncommitted:
                consumer.commit(offsets=list(uncommitted.values()), asynchronous=False)
                uncommitted.clear()

        def revoke(_: confluent_kafka.Consumer, __: list[TopicPartition]) -> None:
            commit()
            self.assigned = []

        consumer.subscribe([self.topic], on_assign=lambda _, given: self.set_assigned(given), on_revoke=revoke)
        try:
            while not self.stopping.is_set():
                message = consumer.poll(POLL_S)
                if message is not None and message.error() is None:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    self.values.append(message.value() or b"")
                    uncommitted[partition] = TopicPartition(self.topic, partition, offset + 1)
            commit()
        finally:
            consumer.close()


class KafkaPythonMember(Member):
    library = "kafka-python"

    def _read(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.address,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[KafkaPythonRange],
            heartbeat_interval_ms=HEARTBEAT_MS,
            # It may lead the group before it has the topic's metadata, and assigns nothing until it refreshes it.
            metadata_max_age_ms=1000,
        )
        consumer.subscribe([self.topic], listener=_Listener(self))
        try:
            while not self.stopping.is_set():
                # kafka-python 3.0 can hang if a poll ends during a rebalance: use a long time-out.
                polled = consumer.poll(timeout_ms=1000)
                for records in polled.values():
                    self.values += [record.value for record in records]
                if polled:
                    # It rebalances only inside `poll`, in a thread that must not wait for a commit: commit here.
                    consumer.commit()
        finally:
            consumer.close()


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.assigned = []

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.set_assigned(assigned)


class AioKafkaMember(Member):
    library = "aiokafka"

    def _read(self) -> None:
        asyncio.run(self._read_on_loop())

    async def _read_on_loop(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.address,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(AioKafkaRange,),
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
            async def on_partitions_revoked(self, revoked: Any) -> None:
                if revoked:
                    await consumer.commit()
                member.assigned = []

            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.set_assigned(assigned)

        consumer.subscribe([self.topic], listener=Listener())
        async with consumer:
            while not self.stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                    self.values += [record.value for record in records]
            await consumer.commit()
