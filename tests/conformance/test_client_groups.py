"""Rookery's consumer in one group with other libraries': each leads once, gets assignments of others, is replaced."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from rookery.base.errors import ApiError
from rookery.client.consume.consumer import Consumer
from rookery.client.errors import CommitFailedError
from rookery.client.sync import Admin
from tests.conformance.java_tools import tool_command
from tests.conformance.members import (
    HEARTBEAT_MS,
    AioKafkaMember,
    ConfluentMember,
    KafkaPythonMember,
    Member,
    fill,
    running,
    share,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

_POLL_S = 0.1


class RookeryMember(Member):
    strategies: ClassVar = ("range", "roundrobin", "sticky", "cooperative-sticky")

    def poll_until_stopped(self) -> None:
        asyncio.run(self._poll_until_stopped())

    async def _poll_until_stopped(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "partition.assignment.strategy": self.strategy,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": self.session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "metadata.max.age.ms": 1000,
        }
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        consumer: Consumer[bytes, bytes] = Consumer(settings)
        async with consumer:
            consumer.subscribe(self.topics)
            while not self._stopping.is_set():
                read = await consumer.poll(_POLL_S)
                self.records += [(record.topic, record.partition, record.offset) for record in read]
                self.partitions = frozenset((tp.topic, tp.partition) for tp in consumer.assignment())
                if self.commits and read:
                    await self._commit(consumer)

    @staticmethod
    async def _commit(consumer: Any) -> None:
        try:
            await consumer.commit()
        except CommitFailedError:
            return
        except ApiError as error:
            if error.code.name != "REBALANCE_IN_PROGRESS":
                raise


class JavaMember(Member):
    """Kafka's VerifiableConsumer, which prints its events to its standard output."""

    strategies: ClassVar = ("range", "roundrobin", "sticky", "cooperative-sticky")
    _ASSIGNORS: ClassVar = {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }

    def poll_until_stopped(self) -> None:
        assignor = f"org.apache.kafka.clients.consumer.{self._ASSIGNORS[self.strategy]}"
        command = tool_command(
            "verifiable-consumer",
            *("--bootstrap-server", self.bootstrap, "--topic", self.topics[0], "--group-id", self.group_id),
            *("--session-timeout", str(self.session_ms), "--reset-policy", "earliest"),
            *("--assignment-strategy", assignor),
        )
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        stopper = threading.Thread(target=self._terminate_when_stopped, args=(process,), daemon=True)
        stopper.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                self._take(json.loads(line))
        process.wait()
        self._stopping.set()
        stopper.join()

    def _terminate_when_stopped(self, process: "subprocess.Popen[str]") -> None:
        self._stopping.wait()
        process.terminate()

    def _take(self, event: dict[str, Any]) -> None:
        named = event.get("partitions", ())
        if event["name"] == "partitions_assigned":
            self.partitions |= {(tp["topic"], tp["partition"]) for tp in named}
        elif event["name"] == "partitions_revoked":
            self.partitions -= {(tp["topic"], tp["partition"]) for tp in named}
        elif event["name"] == "records_consumed":
            for tp in named:
                offsets = range(tp["minOffset"], tp["maxOffset"] + 1)
                self.records += [(tp["topic"], tp["partition"], offset) for offset in offsets]


def all_read(members: Sequence[Member], partitions: int, count: int) -> bool:
    return len({record for member in members for record in member.records}) == partitions * count


def committed(bootstrap: str, group_id: str) -> list[int]:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        return [position.offset for _, position in sorted(admin.committed_offsets(group_id).items())]


@pytest.mark.parametrize("strategy", RookeryMember.strategies)
def test_our_members_share_and_take_over(bootstrap: str, topic: str, strategy: str) -> None:
    partitions = fill(bootstrap, topic, partitions=4, count=25)
    first = RookeryMember(bootstrap, topic, [topic], strategy=strategy)
    with running(first):
        eventually(lambda: share([first], partitions), "one member has all")
        second = RookeryMember(bootstrap, topic, [topic], strategy=strategy)
        with running(second):
            eventually(lambda: share([first, second], partitions), "two members share")
            eventually(lambda: all_read([first, second], 4, 25), "all records were read")
            eventually(lambda: committed(bootstrap, topic) == [25] * 4, "all of it was committed")
        eventually(lambda: share([first], partitions), "the remaining member has all")
        before = len(first.records)
        fill(bootstrap, topic, partitions=4, count=5, create=False)
        eventually(lambda: all_read([first, second], 4, 30), "it continues at the other's offsets")
    assert sorted(first.records[before:]) == [(topic, index, offset) for index in range(4) for offset in range(25, 30)]


MIXED: list[Any] = [
    pytest.param(strategy, kinds, id=strategy)
    for strategy, kinds in {
        "range": (RookeryMember, ConfluentMember, KafkaPythonMember, AioKafkaMember),
        "roundrobin": (RookeryMember, ConfluentMember, KafkaPythonMember, AioKafkaMember),
        "sticky": (RookeryMember, KafkaPythonMember, AioKafkaMember),
        "cooperative-sticky": (RookeryMember, ConfluentMember, RookeryMember, ConfluentMember),
    }.items()
] + [
    pytest.param(strategy, kinds, id=f"java-{strategy}", marks=pytest.mark.java)
    for strategy, kinds in {
        "range": (RookeryMember, JavaMember, ConfluentMember),
        "roundrobin": (RookeryMember, JavaMember, ConfluentMember),
        "sticky": (RookeryMember, JavaMember, RookeryMember),
        "cooperative-sticky": (RookeryMember, JavaMember, ConfluentMember),
    }.items()
]


@pytest.mark.parametrize(("strategy", "kinds"), MIXED)
@pytest.mark.parametrize("ours_leads", [True, False], ids=["ours-first", "ours-last"])
def test_mixed_libraries_in_one_group(
    bootstrap: str, topic: str, strategy: str, kinds: Sequence[type[Member]], ours_leads: bool
) -> None:
    partitions = fill(bootstrap, topic, partitions=12, count=10)
    members: list[Member] = []
    try:
        for kind in kinds if ours_leads else reversed(kinds):
            members.append(kind(bootstrap, topic, [topic], strategy=strategy))
            # Cooperative members release partitions one by one: the shares may be uneven before that.
            eventually(
                lambda: share(members, partitions) and len({len(member.partitions) for member in members}) == 1,
                lambda: f"{len(members)} share: {[(type(m).__name__, sorted(m.partitions)) for m in members]}",
            )
        eventually(lambda: all_read(members, 12, 10), "all records were read")
        while len(members) > 1:
            # Each library leads once.
            members.pop(0).stop()
            eventually(lambda: share(members, partitions), f"{len(members)} members share")
    finally:
        for member in members:
            member.stop()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_our_static_member_comes_back_without_a_rebalance(bootstrap: str, topic: str, strategy: str) -> None:
    partitions = fill(bootstrap, topic, partitions=4, count=1)
    stays = ConfluentMember(bootstrap, topic, [topic], instance_id="stays", strategy=strategy)
    eventually(lambda: share([stays], partitions), "one has all")
    goes = RookeryMember(bootstrap, topic, [topic], instance_id="goes", strategy=strategy)
    with running(stays, goes):
        eventually(lambda: share([stays, goes], partitions), "both share")
        had = goes.partitions
        goes.stop()
        back = RookeryMember(bootstrap, topic, [topic], instance_id="goes", strategy=strategy)
        with running(back):
            eventually(lambda: back.partitions == had, "it has its partitions again")
            assert stays.partitions == partitions - had
