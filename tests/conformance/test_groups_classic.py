"""Foreign consumers in classic groups: they join, share partitions, leave, and continue at their offsets."""

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

from tests.conformance.clients import confluent_consumer
from tests.conformance.members import (
    MEMBERS,
    TIMEOUT_S,
    AioKafkaMember,
    ConfluentMember,
    KafkaPythonMember,
    Member,
    fill,
    running,
    share,
)
from tests.support.broker import free_port, start_broker
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

# For members whose death should be noticed soon.
SHORT_SESSION_MS = 6000

STRATEGIES = [
    pytest.param(kind, strategy, id=f"{kind.__name__}-{strategy}") for kind in MEMBERS for strategy in kind.strategies
]


def all_read(members: Sequence[Member], partitions: int, count: int) -> bool:
    return len({record for member in members for record in member.records}) == partitions * count


@pytest.mark.parametrize(("kind", "strategy"), STRATEGIES)
def test_members_share_and_take_over(bootstrap: str, topic: str, kind: type[Member], strategy: str) -> None:
    partitions = fill(bootstrap, topic, partitions=4, count=25)
    first = kind(bootstrap, topic, [topic], strategy=strategy)
    with running(first):
        eventually(lambda: share([first], partitions), "one member has all")
        second = kind(bootstrap, topic, [topic], strategy=strategy)
        with running(second):
            eventually(lambda: share([first, second], partitions), "two members share")
            eventually(lambda: all_read([first, second], 4, 25), "all records were read")
        fill(bootstrap, topic, partitions=4, count=5, create=False)
        eventually(lambda: share([first], partitions), "the remaining member has all")
        eventually(lambda: all_read([first, second], 4, 30), "it continues at the other's offsets")
    # The first did not read the records again that the second had committed.
    assert len(first.records) + len(second.records) < 2 * 4 * 30


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_mixed_libraries_in_one_group(bootstrap: str, topic: str, strategy: str) -> None:
    partitions = fill(bootstrap, topic, partitions=9, count=10)
    members: list[Member] = []
    try:
        for kind in MEMBERS:
            members.append(kind(bootstrap, topic, [topic], strategy=strategy))
            eventually(lambda: share(members, partitions), f"{len(members)} members share")
        assert [len(member.partitions) for member in members] == [3, 3, 3]
        eventually(lambda: all_read(members, 9, 10), "all records were read")
        while len(members) > 1:
            # Each library leads once.
            members.pop(0).stop()
            eventually(lambda: share(members, partitions), f"{len(members)} members share")
    finally:
        for member in members:
            member.stop()


def test_members_without_a_common_protocol(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=1, count=1)
    first = ConfluentMember(bootstrap, topic, [topic], strategy="range")
    with running(first):
        eventually(lambda: bool(first.partitions), "the first is in")
        consumer = confluent_consumer(bootstrap, group_id=topic, partition_assignment_strategy="roundrobin")
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == confluent_kafka.KafkaError.INCONSISTENT_GROUP_PROTOCOL
        consumer.close()


@pytest.mark.parametrize("kind", MEMBERS)
def test_pattern_subscription_finds_new_topics(empty_bootstrap: str, topic: str, kind: type[Member]) -> None:
    first = fill(empty_bootstrap, f"{topic}-1", partitions=2, count=5)
    pattern = f"^{re.escape(topic)}-[0-9]+$".replace("\\-", "-")
    member = kind(empty_bootstrap, topic, pattern=pattern)
    with running(member):
        eventually(lambda: share([member], first), "it has the existing topic")
        fill(empty_bootstrap, f"{topic}-other", partitions=1, count=5)
        second = fill(empty_bootstrap, f"{topic}-2", partitions=1, count=5)
        eventually(lambda: share([member], first | second), "it has the new topic")
        eventually(lambda: len(set(member.records)) == 15, "it has read both")


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_static_member_comes_back_without_a_rebalance(bootstrap: str, topic: str, kind: type[Member]) -> None:
    partitions = fill(bootstrap, topic, partitions=4, count=1)
    stays = kind(bootstrap, topic, [topic], instance_id="stays")
    eventually(lambda: share([stays], partitions), "one has all")
    goes = kind(bootstrap, topic, [topic], instance_id="goes")
    with running(stays, goes):
        eventually(lambda: share([stays, goes], partitions), "both share")
        had, before = goes.partitions, describe(bootstrap, topic)
        goes.stop()
        back = kind(bootstrap, topic, [topic], instance_id="goes")
        with running(back):
            eventually(
                lambda: back.partitions == had and share([stays, back], partitions), "it has its partitions again"
            )
            after = describe(bootstrap, topic)
    instances = {member.group_instance_id for member in after.members}
    assert instances == {"stays", "goes"}
    # The other member saw no rebalance, except that kafka-python and aiokafka leave on close even if they are static.
    if kind is ConfluentMember:
        assert id_of(before, "stays") == id_of(after, "stays")
        assert id_of(before, "goes") != id_of(after, "goes")


def describe(bootstrap: str, group_id: str) -> Any:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    return admin.describe_consumer_groups([group_id])[group_id].result(TIMEOUT_S)


def id_of(description: Any, instance_id: str) -> str:
    (found,) = [member.member_id for member in description.members if member.group_instance_id == instance_id]
    return str(found)


def test_two_members_with_one_instance_id(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=1, count=1)
    older = confluent_consumer(bootstrap, group_id=topic, group_instance_id="one", auto_offset_reset="earliest")
    older.subscribe([topic])
    assert older.poll(TIMEOUT_S) is not None
    newer = confluent_consumer(bootstrap, group_id=topic, group_instance_id="one", auto_offset_reset="earliest")
    newer.subscribe([topic])
    assert newer.poll(TIMEOUT_S) is not None
    codes: list[int] = []

    def is_fenced() -> bool:
        message = older.poll(0.1)
        error = None if message is None else message.error()
        codes.extend([] if error is None else [error.code()])
        return bool(codes)

    eventually(is_fenced, "the older one is fenced")
    assert codes[0] in (confluent_kafka.KafkaError.FENCED_INSTANCE_ID, confluent_kafka.KafkaError._FATAL)
    newer.close()
    older.close()


def test_a_member_that_is_killed(bootstrap: str, topic: str) -> None:
    partitions = fill(bootstrap, topic, partitions=2, count=5)
    survivor = ConfluentMember(bootstrap, topic, [topic])
    program = (
        "from tests.conformance.members import ConfluentMember\n"
        f"ConfluentMember({bootstrap!r}, {topic!r}, [{topic!r}], session_ms={SHORT_SESSION_MS})._thread.join()"
    )
    root = Path(__file__).parents[2]
    victim = subprocess.Popen([sys.executable, "-c", program], cwd=root)
    try:
        with running(survivor):
            eventually(lambda: len(survivor.partitions) == 1, "two share")
            victim.send_signal(signal.SIGKILL)
            eventually(lambda: share([survivor], partitions), "the survivor has all")
    finally:
        victim.kill()
        victim.wait()


def test_a_member_that_stalls(bootstrap: str, topic: str) -> None:
    """The client leaves the group because it is not polled; when it is polled again it rejoins."""
    partitions = fill(bootstrap, topic, partitions=2, count=5)
    staller = confluent_consumer(
        bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        session_timeout_ms=SHORT_SESSION_MS,
        max_poll_interval_ms=SHORT_SESSION_MS,
    )
    staller.subscribe([topic])
    assert staller.poll(TIMEOUT_S) is not None
    other = ConfluentMember(bootstrap, topic, [topic])
    with running(other):
        eventually(lambda: share([other], partitions), "the other has all")
        eventually(lambda: staller.poll(0.1) is None and len(other.partitions) == 1, "it came back")
    staller.close()


def test_commit_and_seek(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=1, count=10)
    first = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        # It may lead the group before it has the topic's metadata, and assigns nothing until the next refresh.
        metadata_max_age_ms=1000,
    )
    partition = kafka.TopicPartition(topic, 0)
    eventually(lambda: bool(first.poll(2000)), "it reads")
    first.seek(partition, 3)
    records = [record for batch in first.poll(TIMEOUT_S * 1000, max_records=2).values() for record in batch]
    assert [record.offset for record in records] == [3, 4]
    first.commit({partition: kafka.OffsetAndMetadata(5, "a note", 0)})
    assert first.committed(partition, metadata=True).metadata == "a note"
    first.close()
    consumer = confluent_consumer(bootstrap, group_id=topic)
    committed = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_S)
    assert (committed[0].offset, committed[0].metadata) == (5, "a note")
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.offset() == 5
    consumer.close()


def test_commit_without_a_group(bootstrap: str, topic: str) -> None:
    """Partitions are assigned manually, and offsets are stored on the broker."""
    fill(bootstrap, topic, partitions=1, count=1)
    consumer = confluent_consumer(bootstrap, group_id=topic)
    where = confluent_kafka.TopicPartition(topic, 0, 1)
    consumer.assign([where])
    consumer.commit(offsets=[where], asynchronous=False)
    consumer.close()
    again = confluent_consumer(bootstrap, group_id=topic)
    assert [item.offset for item in again.committed([where], TIMEOUT_S)] == [1]
    again.close()


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})


def test_administration(bootstrap: str, topic: str, admin: Any) -> None:
    partitions = fill(bootstrap, topic, partitions=2, count=3)
    member = AioKafkaMember(bootstrap, topic, [topic])
    with running(member):
        eventually(lambda: len(member.records) == 6, "all was read")
        eventually(lambda: set(committed(admin, topic)) == {(topic, 0, 3), (topic, 1, 3)}, "and committed")
        listed = {group.group_id: group for group in admin.list_consumer_groups().result().valid}
        assert listed[topic].state == confluent_kafka.ConsumerGroupState.STABLE
        description = describe(bootstrap, topic)
        assert description.partition_assignor == "range"
        (described,) = description.members
        owned = {(item.topic, item.partition) for item in described.assignment.topic_partitions}
        assert owned == partitions
        with pytest.raises(confluent_kafka.KafkaException) as refusal:
            admin.delete_consumer_groups([topic])[topic].result()
        assert refusal.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    alter(admin, topic, confluent_kafka.TopicPartition(topic, 0, 1))
    assert set(committed(admin, topic)) == {(topic, 0, 1), (topic, 1, 3)}
    admin.delete_consumer_groups([topic])[topic].result()
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result().valid}


def committed(admin: Any, group_id: str) -> list[tuple[str, int, int]]:
    request = confluent_kafka.ConsumerGroupTopicPartitions(group_id)
    found = admin.list_consumer_group_offsets([request])[group_id].result()
    return [(item.topic, item.partition, item.offset) for item in found.topic_partitions]


def alter(admin: Any, group_id: str, *partitions: confluent_kafka.TopicPartition) -> None:
    request = confluent_kafka.ConsumerGroupTopicPartitions(group_id, list(partitions))
    admin.alter_consumer_group_offsets([request])[group_id].result()


@pytest.mark.parametrize("kills", [False, True], ids=["stopped", "killed"])
def test_members_survive_a_restart_of_the_coordinator(tmp_path: Path, kills: bool) -> None:
    port = free_port()
    broker = start_broker(tmp_path / "data", port=port)
    partitions = fill(broker.address, "t", partitions=4, count=5)
    members: list[Member] = [kind(broker.address, "g", ["t"]) for kind in (ConfluentMember, KafkaPythonMember)]
    with running(*members):
        eventually(lambda: share(members, partitions) and all_read(members, 4, 5), "both share and read")
        before = {member.member_id for member in describe(broker.address, "g").members}
        broker.kill() if kills else broker.stop()
        with start_broker(tmp_path / "data", port=port) as again:
            fill(again.address, "t", partitions=4, count=5, create=False)
            eventually(lambda: all_read(members, 4, 10), "they read on")
            eventually(lambda: share(members, partitions), "both share")
            assert {member.member_id for member in describe(again.address, "g").members} == before
            for member in members:
                member.stop()


def is_rebalancing_or_was(bootstrap: str) -> bool:
    """Return whether a rebalance is or was in progress: it may begin and end between two slow polls."""
    found = describe(bootstrap, "g")
    return found.state.name != "STABLE" or len(found.members) > 1


def test_a_restart_in_the_middle_of_a_rebalance(tmp_path: Path) -> None:
    port = free_port()
    broker = start_broker(tmp_path / "data", port=port)
    partitions = fill(broker.address, "t", partitions=6, count=5)
    first = ConfluentMember(broker.address, "g", ["t"])
    with running(first):
        eventually(lambda: share([first], partitions), "one has all")
        others = [kind(broker.address, "g", ["t"]) for kind in (ConfluentMember, KafkaPythonMember)]
        members = [first, *others]
        with running(*others):
            eventually(lambda: is_rebalancing_or_was(broker.address), "a rebalance begins")
            broker.kill()
            with start_broker(tmp_path / "data", port=port) as again:
                eventually(lambda: share(members, partitions), "all three share")
                fill(again.address, "t", partitions=6, count=5, create=False)
                eventually(lambda: all_read(members, 6, 10), "everything is read")
                for member in members:
                    member.stop()
