"""Groups of the new protocol (KIP-848) with librdkafka: members join, leave, stall, are static, and use patterns."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.broker import BrokerProcess, start_broker

TIMEOUT_S = 60
# The coordinator sets the heartbeat interval of members; each step of a rebalance takes one heartbeat.
SETTINGS = (
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.min.heartbeat.interval.ms=200",
)
SHORT_SESSIONS = ("group.consumer.session.timeout.ms=3000", "group.consumer.min.session.timeout.ms=3000")

# Errors that a consumer reports and recovers from by itself.
BEARABLE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start_broker(tmp_path_factory.mktemp("groups") / "data", *SETTINGS) as started:
        yield started


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> Iterator["Group"]:
    opened = Group(broker.address, topic)
    opened.create_topic(topic, 4)
    try:
        yield opened
    finally:
        opened.close()


class Group:
    """Members of one group, driven from one thread, and the topic that they read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.members: list[Consumer] = []
        self.received: list[bytes] = []

    def create_topic(self, name: str, partitions: int) -> None:
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)

    def join(self, *topics: str, protocol: str = "consumer", **settings: str) -> Consumer:
        config: dict[str, str | int | float | bool | None] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})
        consumer.subscribe(list(topics) or [self.topic])
        self.members.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.members.remove(consumer)
        consumer.close()

    def produce(self, count: int, topic: str | None = None) -> list[bytes]:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        values = [b"%s-%d" % (uuid.uuid4().hex[:6].encode(), index) for index in range(count)]
        for index, value in enumerate(values):
            producer.produce(topic or self.topic, value, partition=index % 4)
        assert producer.flush(TIMEOUT_S) == 0
        return values

    def poll(self) -> None:
        for member in self.members:
            message = member.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.received.append(message.value() or b"")
            else:
                assert error.code() in BEARABLE, error

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline, f"{self.sizes()} {len(self.received)}"
            self.poll()

    def sizes(self) -> list[int]:
        return [len(member.assignment()) for member in self.members]

    def owned(self) -> list[TopicPartition]:
        return [partition for member in self.members for partition in member.assignment()]

    def wait_for_sizes(self, *sizes: int) -> None:
        """Wait until the members own these numbers of partitions, and no partition twice."""
        self.wait_until(lambda: sorted(self.sizes()) == sorted(sizes))
        owned = {(partition.topic, partition.partition) for partition in self.owned()}
        assert len(owned) == sum(sizes)

    def close(self) -> None:
        for member in list(self.members):
            self.leave(member)


def test_members_come_and_go(group: Group) -> None:
    values = group.produce(40)
    group.join()
    group.wait_until(lambda: len(group.received) == 40)
    assert sorted(group.received) == sorted(values)
    second = group.join()
    group.wait_for_sizes(2, 2)
    third = group.join()
    group.wait_for_sizes(2, 1, 1)
    group.leave(second)
    group.wait_for_sizes(2, 2)
    group.leave(third)
    group.wait_for_sizes(4)


def test_commits_hand_over(group: Group) -> None:
    """A member does not read the records again that the member before has committed."""
    group.produce(40)
    first = group.join()
    group.wait_until(lambda: len(group.received) == 40)
    first.commit(asynchronous=False)
    group.leave(first)
    more = group.produce(8)
    group.received.clear()
    group.join()
    group.wait_until(lambda: len(group.received) == 8)
    assert sorted(group.received) == sorted(more)


def test_tools_see_the_group(group: Group) -> None:
    group.join(client_id="someone")
    group.wait_for_sizes(4)
    described = group.admin.describe_consumer_groups([group.name])[group.name].result(TIMEOUT_S)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == "uniform"
    (member,) = described.members
    assert member.client_id == "someone"
    assert len(member.assignment.topic_partitions) == 4
    listed = group.admin.list_consumer_groups().result(TIMEOUT_S)
    assert ConsumerGroupType.CONSUMER in [item.type for item in listed.valid if item.group_id == group.name]
    group.close()
    group.wait_until(lambda: is_empty(group))
    group.admin.delete_consumer_groups([group.name])[group.name].result(TIMEOUT_S)


def is_empty(group: Group) -> bool:
    found = group.admin.describe_consumer_groups([group.name])[group.name].result(TIMEOUT_S)
    return found.state is ConsumerGroupState.EMPTY


def test_range_is_offered_too(group: Group) -> None:
    group.join(group_remote_assignor="range")
    group.join(group_remote_assignor="range")
    group.wait_for_sizes(2, 2)
    parts = [sorted(partition.partition for partition in member.assignment()) for member in group.members]
    assert sorted(parts) == [[0, 1], [2, 3]]


def test_a_static_member_comes_back(group: Group) -> None:
    first = group.join(group_instance_id="one")
    group.join(group_instance_id="two")
    group.wait_for_sizes(2, 2)
    before = sorted(partition.partition for partition in first.assignment())
    group.leave(first)
    back = group.join(group_instance_id="one")
    group.wait_for_sizes(2, 2)
    assert sorted(partition.partition for partition in back.assignment()) == before


def test_a_member_that_stalls_loses_its_partitions(group: Group) -> None:
    """It exceeds the poll interval; the others take over, and it rejoins when it polls again."""
    first = group.join(max_poll_interval_ms="3000")
    group.wait_for_sizes(4)
    group.members.remove(first)
    group.join()
    group.wait_for_sizes(4)
    with suppress(KafkaException):
        # It may get an error because it was too slow.
        first.poll(0.1)
    group.members.append(first)
    group.wait_for_sizes(2, 2)


LONELY_MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer(
    {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer", "log_level": 0}
)
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
    if len(consumer.assignment()) == 4:
        print("alone", flush=True)
"""


def test_a_member_that_dies_is_replaced(tmp_path: Path, topic: str) -> None:
    """It does not leave the group; the broker ends its session after the time-out."""
    with start_broker(tmp_path / "data", *SETTINGS, *SHORT_SESSIONS) as broker:
        group = Group(broker.address, topic)
        group.create_topic(topic, 4)
        command = [sys.executable, "-c", LONELY_MEMBER, group.bootstrap, group.name, group.topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lonely:
            assert lonely.stdout is not None
            assert lonely.stdout.readline() == "alone\n"
            lonely.kill()
        group.join()
        group.wait_for_sizes(4)
        group.close()


def test_patterns(group: Group) -> None:
    prefix = group.topic
    group.join(f"^{prefix}.*")
    group.wait_for_sizes(4)
    group.create_topic(f"{prefix}-more", 2)
    group.wait_for_sizes(6)
    group.admin.delete_topics([f"{prefix}-more"])[f"{prefix}-more"].result(TIMEOUT_S)
    group.wait_for_sizes(4)


def test_a_topic_grows(group: Group) -> None:
    group.join()
    group.join()
    group.wait_for_sizes(2, 2)
    group.admin.create_partitions([NewPartitions(group.topic, 6)])[group.topic].result(TIMEOUT_S)
    group.wait_for_sizes(3, 3)


def test_classic_members_move_to_the_new_protocol_and_back(group: Group) -> None:
    values = group.produce(16)
    old = [
        group.join(
            protocol="classic",
            partition_assignment_strategy="cooperative-sticky",
            heartbeat_interval_ms="200",
        )
        for _ in range(2)
    ]
    group.wait_for_sizes(2, 2)
    new = group.join()
    group.wait_for_sizes(2, 1, 1)
    for consumer in old:
        group.leave(consumer)
    group.wait_for_sizes(4)
    group.wait_until(lambda: set(values) <= set(group.received))
    group.join(protocol="classic", partition_assignment_strategy="cooperative-sticky", heartbeat_interval_ms="200")
    group.wait_for_sizes(2, 2)
    group.leave(new)
    group.wait_for_sizes(4)


def test_eager_classic_members_share_with_new_ones(group: Group) -> None:
    group.join(protocol="classic", partition_assignment_strategy="range", heartbeat_interval_ms="200")
    group.wait_for_sizes(4)
    group.join()
    group.wait_for_sizes(2, 2)


@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_the_coordinator_restarts_in_the_middle_of_a_rebalance(tmp_path: Path, topic: str, stop: str) -> None:
    with start_broker(tmp_path / "data", *SETTINGS) as broker:
        group = Group(broker.address, topic)
        group.create_topic(topic, 4)
        values = group.produce(40)
        first = group.join()
        group.wait_for_sizes(4)
        group.join()
        # The second has joined, and waits until the first releases partitions.
        group.wait_until(lambda: member_count(group) == 2)
        getattr(broker, stop)()
        with start_broker(tmp_path / "data", *SETTINGS, port=broker.port):
            group.wait_for_sizes(2, 2)
            group.wait_until(lambda: set(values) <= set(group.received))
            first.commit(asynchronous=False)
            group.close()


def member_count(group: Group) -> int:
    found = group.admin.describe_consumer_groups([group.name])[group.name].result(TIMEOUT_S)
    return len(found.members)
