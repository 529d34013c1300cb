"""Members of consumer groups, reduced to the protocol: join, heartbeat, commit, leave.

A member does not read records: it advances its positions and commits them, which is enough for the checkers of groups.
It starts at the group's committed offset and commits only partitions that it owns, so that an offset that moves back or
vanishes is a fault of the broker.

A member does not know whether a commit without a response was carried out; the history keeps such commits as unsettled.
Members handle errors like real clients. `classic_members` and `consumer_members` implement the two protocols.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.simulation.checkers import GroupHistory
from tests.simulation.users import REQUEST_TIMEOUT_S
from tests.simulation.world import World

SESSION_TIMEOUT_MS = 6_000
REBALANCE_TIMEOUT_MS = 8_000
JOIN_TIMEOUT_S = 15.0
_HEARTBEAT_S = 0.8
_STALL_CHANCE = 0.03
_STALL_S = 1.5 * SESSION_TIMEOUT_MS / 1000
NO_GENERATION = -1
# Newer versions identify topics by id.
_COMMIT_VERSION = 9
_FETCH_VERSION = 8


class Member(ABC):
    """A bare member. `owned` is None while it does not know its assignment; in new groups `generation` is its epoch."""

    def __init__(
        self,
        world: World,
        history: GroupHistory,
        *,
        name: str,
        group: str,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.name = name
        self.generation = NO_GENERATION
        self.owned: frozenset[TopicPartition] | None = None
        self.may_stall = True
        self._world = world
        self._history = history
        self._group = group
        self._partitions = partitions
        self._random: Random = world.new_random()
        self._member_id = ""
        self._cluster = Cluster.at(bootstrap, client_id=name, timeout_s=REQUEST_TIMEOUT_S)
        self._coordinators = Coordinators(self._cluster)
        self._positions: dict[TopicPartition, Offset] = {}
        self._is_leaving = False

    async def run(self) -> None:
        while not self._is_leaving:
            try:
                await self._live()
            except ApiError as error:
                self._world.note(f"{error.code.name} in generation {self.generation}")
                self._learn(error.code)
                # The coordinator may have moved: the next request looks for it.
                self._coordinators.forget(self._group)
                await asyncio.sleep(self._random.uniform(0.05, 0.3))
        self.owned = None
        try:
            await self._leave()
        except ApiError as error:
            self._world.note(f"ended without leaving: {error.code.name}")
        await self._cluster.close()

    def leave(self) -> None:
        """Leave the group after the current step."""
        self._is_leaving = True

    @abstractmethod
    async def _join(self) -> None:
        """Join the group and get an assignment."""

    @abstractmethod
    async def _heartbeat(self) -> None: ...

    @abstractmethod
    async def _leave(self) -> None: ...

    @abstractmethod
    def _learn(self, code: ErrorCode) -> None:
        """Update the member's state after an error."""

    async def _live(self) -> None:
        if self.owned is None:
            await self._join()
        while not self._is_leaving:
            await asyncio.sleep(self._random.uniform(0.1, _HEARTBEAT_S))
            if self.may_stall and self._random.random() < _STALL_CHANCE:
                # Long enough for the session to expire: the member continues without knowing that.
                self._world.note("stalls")
                await asyncio.sleep(_STALL_S)
            if self._random.random() < 0.8:
                await self._commit()
            if self._random.random() < 0.3:
                await self._fetch_committed(sorted(self._positions))
            await self._heartbeat()

    async def _call(self, api_key: ApiKey, request: Message, *, version: int | None = None) -> Message:
        connection = await self._cluster.connection(await self._coordinators.find(self._group))
        timeout_s = JOIN_TIMEOUT_S if api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP) else REQUEST_TIMEOUT_S
        return await connection.request(api_key, request, timeout_s=timeout_s, api_version=version)

    async def _fetch_committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        return await fetch_committed(self._cluster, self._group, partitions, self._history)

    async def _begin_at_committed(self, partitions: frozenset[TopicPartition]) -> None:
        """Set the positions of new partitions to the committed offsets."""
        self._positions |= await self._fetch_committed(sorted(partitions))

    async def _commit(self) -> None:
        if not self._positions:
            return
        moved = {partition: offset + self._random.randint(1, 5) for partition, offset in self._positions.items()}
        self._history.on_committing(moved)
        response = await self._call(
            ApiKey.OFFSET_COMMIT,
            Message(
                group_id=self._group,
                generation_id_or_member_epoch=self.generation,
                member_id=self._member_id,
                group_instance_id=None,
                topics=_by_topic(moved),
            ),
            version=_COMMIT_VERSION,
        )
        codes = {row.error_code for topic in response.topics for row in topic.partitions}
        if codes == {ErrorCode.NONE}:
            self._history.on_committed(moved)
            self._positions = moved
        elif ErrorCode.NONE not in codes and not any(ErrorCode(code).retriable for code in codes):
            self._history.on_rejected(moved)
        for code in sorted(codes):
            check(code)


async def fetch_committed(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition], history: GroupHistory
) -> dict[TopicPartition, Offset]:
    """Fetch the group's offsets, 0 if there are none, and check them against the commits acknowledged before."""
    floor = history.floor(partitions)
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    topics = [Message(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
    connection = await cluster.connection(await Coordinators(cluster).find(group))
    response = await connection.request(
        ApiKey.OFFSET_FETCH,
        Message(groups=[Message(group_id=group, topics=topics)], require_stable=True),
        timeout_s=REQUEST_TIMEOUT_S,
        api_version=_FETCH_VERSION,
    )
    (answer,) = response.groups
    check(answer.error_code)
    found: dict[TopicPartition, Offset] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            check(row.error_code)
            found[TopicPartition(topic.name, row.partition_index)] = row.committed_offset
    history.on_fetched(found, floor)
    return {partition: max(0, found[partition]) for partition in partitions}


def _by_topic(offsets: dict[TopicPartition, Offset]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for partition, offset in offsets.items():
        row = Message(
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        topics.setdefault(partition.topic, []).append(row)
    return [Message(name=name, partitions=rows) for name, rows in topics.items()]


def check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), "group request")
