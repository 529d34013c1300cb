"""Group members without a consumer: a membership and a host that records what happens to it.

A `GroupMember` has all parts of one member, with its own connections. `settle` polls several of them in turn until they
share the partitions as expected.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

from rookery.base.types import TopicName, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.membership.assignors.base import Assignor
from rookery.client.membership.assignors.catalogue import choose_assignors
from rookery.client.membership.classic_shell import ClassicMembership
from rookery.client.membership.committer import Committer
from rookery.client.membership.consumer_shell import ConsumerMembership
from rookery.client.membership.interfaces import NO_GENERATION, ListenerEvent, OffsetAndMetadata
from rookery.client.membership.settings import GroupSettings

TIMEOUT_S = 20.0
_TICK_S = 0.02

SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
}


def partitions(topic: TopicName, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


class FakeHost:
    """`log` records the listener's calls and the assignments, in order; the next commit commits `positions`."""

    def __init__(self, topics: Collection[TopicName]) -> None:
        self.topics = frozenset(topics)
        self.log: list[tuple[str, list[int]]] = []
        self.positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self.stopped: set[TopicPartition] = set()
        self.group_topics: frozenset[TopicName] = frozenset()
        self.on_event: Callable[[str, Collection[TopicPartition]], Any] = lambda event, partitions: None
        self._assigned: frozenset[TopicPartition] = frozenset()

    def subscribed_topics(self) -> frozenset[TopicName]:
        return self.topics

    def assigned(self) -> frozenset[TopicPartition]:
        return self._assigned

    def replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned = frozenset(partitions)
        self.positions = {tp: offset for tp, offset in self.positions.items() if tp in self._assigned}
        self.stopped &= self._assigned
        self.log.append(("assignment", sorted(tp.partition for tp in partitions)))

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        self.stopped |= set(partitions)

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return dict(self.positions)

    def watch_group_topics(self, topics: frozenset[TopicName]) -> None:
        self.group_topics = topics

    async def call_listener(self, event: ListenerEvent, partitions: Collection[TopicPartition]) -> None:
        self.log.append((event, [tp.partition for tp in partitions]))
        result = self.on_event(event, partitions)
        if asyncio.iscoroutine(result):
            await result

    def take_events(self) -> list[tuple[str, list[int]]]:
        """Return the listener's calls since the last call of this method."""
        found = [entry for entry in self.log if entry[0] != "assignment"]
        self.log.clear()
        return found


class GroupMember:
    def __init__(
        self,
        bootstrap: str,
        topics: Collection[TopicName],
        settings: GroupSettings,
        *,
        protocol: str = "classic",
        assignors: Sequence[Assignor] = (),
    ) -> None:
        self.cluster = Cluster.at(bootstrap, timeout_s=TIMEOUT_S)
        self.host = FakeHost(topics)
        self.committer = Committer(self.cluster, settings)
        self.membership: ClassicMembership | ConsumerMembership
        if protocol == "consumer":
            self.membership = ConsumerMembership(
                self.cluster, settings, host=self.host, committer=self.committer, randomness=Random()
            )
        else:
            self.membership = ClassicMembership(
                self.cluster,
                settings,
                host=self.host,
                committer=self.committer,
                assignors=choose_assignors(settings.strategies, assignors),
            )

    @property
    def generation(self) -> int:
        return self.membership._member.identity.generation_id

    @property
    def indexes(self) -> list[int]:
        return sorted(tp.partition for tp in self.host.assigned())

    async def poll(self) -> None:
        self.membership.note_poll()
        await self.membership.poll()

    async def close(self) -> None:
        try:
            await self.membership.close(timeout_s=TIMEOUT_S)
        finally:
            await self.cluster.close()

    async def kill(self) -> None:
        """Stop like a killed process, without leaving the group."""
        for name in ("_join_task", "_heartbeat_task"):
            task = getattr(self.membership, name, None)
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self.cluster.close()


def fast(group_id: str, **changes: Any) -> GroupSettings:
    """Return settings with short heartbeat intervals and, unless changed, long sessions."""
    quick = GroupSettings(
        group_id=group_id,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=50,
        max_poll_interval_ms=10_000,
        enable_auto_commit=False,
        strategies=("range",),
    )
    return replace(quick, **changes)


@asynccontextmanager
async def closing(*members: GroupMember) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for member in members:
            await member.close()


async def poll_until(condition: Callable[[], bool], *members: GroupMember) -> None:
    """Poll all members in turn until `condition` holds."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            for member in members:
                await member.poll()
            if condition():
                return
            wakes = [asyncio.ensure_future(member.membership.wake.wait()) for member in members]
            await asyncio.wait(wakes, timeout=_TICK_S, return_when=asyncio.FIRST_COMPLETED)
            for wake in wakes:
                wake.cancel()


async def settle(*members: GroupMember, sizes: Sequence[int]) -> None:
    """Poll until the members have these numbers of partitions, none twice, and are of the same generation."""

    def is_settled() -> bool:
        owned = [tp for member in members for tp in member.host.assigned()]
        is_shared = len(owned) == len(set(owned)) == sum(sizes)
        sharing = sorted(len(member.host.assigned()) for member in members)
        generations = {member.generation for member in members}
        return is_shared and sharing == sorted(sizes) and len(generations) == 1 and generations != {NO_GENERATION}

    await poll_until(is_settled, *members)
