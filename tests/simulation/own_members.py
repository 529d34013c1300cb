"""Members that are Rookery's consumer: they read, commit what they have read, and release revoked partitions.

Unlike the bare members, these read records, so that one more invariant can be checked: every record below a committed
offset was delivered to a member. A member that stalls does not poll; although it sends heartbeats, it leaves the group
after max.poll.interval.ms.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from rookery.base.errors import ApiError
from rookery.base.types import NO_OFFSET, Offset, TopicPartition
from rookery.client import Consumer, RebalanceListener
from tests.simulation.checkers import GroupHistory
from tests.simulation.members import NO_GENERATION, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from tests.simulation.users import as_read, new_consumer
from tests.simulation.world import World

_STALL_CHANCE = 0.03
_STALL_S = 1.5 * REBALANCE_TIMEOUT_MS / 1000
_COMMIT_CHANCE = 0.6
_LOOK_CHANCE = 0.2
_STATIC_CHANCE = 0.25
# A commit that took longer may have been sent twice, and the first request may still arrive.
_RETRY_S_MIN = 0.05
_CLASSIC = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 1_500}
# The settings that all members of a group share; the seed chooses one entry for each group.
KINDS: Sequence[Mapping[str, object]] = (
    {"group.protocol": "consumer"},
    _CLASSIC | {"partition.assignment.strategy": "range"},
    _CLASSIC | {"partition.assignment.strategy": "sticky"},
    _CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
)


class OwnMember(RebalanceListener):
    """One consumer. `owned` is None before the first assignment."""

    def __init__(
        self,
        world: World,
        history: GroupHistory,
        *,
        name: str,
        group: str,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        kind: Mapping[str, object],
    ) -> None:
        self.name = name
        self.generation = NO_GENERATION
        self.owned: frozenset[TopicPartition] | None = None
        self.may_stall = True
        self._world = world
        self._history = history
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._random = world.new_random()
        self._settings = {"group.id": group, "max.poll.interval.ms": REBALANCE_TIMEOUT_MS, **kind}
        if self._random.random() < _STATIC_CHANCE:
            self._settings["group.instance.id"] = name
        self._positions: dict[TopicPartition, Offset] = {}
        self._is_leaving = False
        self._consumer: Consumer[bytes, bytes]

    async def run(self) -> None:
        while not self._is_leaving:
            self._consumer = new_consumer(
                self._world, name=self.name, bootstrap=self._bootstrap, settings=self._settings
            )
            try:
                async with self._consumer:
                    self._consumer.subscribe(sorted({partition.topic for partition in self._partitions}), self)
                    while not self._is_leaving:
                        await self._live()
            except ApiError as error:
                self._world.note(f"restarts: {error}")
                await asyncio.sleep(self._random.uniform(0.05, 0.3))
        self._world.note("has left")

    def leave(self) -> None:
        """Leave the group after the current step."""
        self._is_leaving = True

    async def _live(self) -> None:
        for record in await self._consumer.poll(self._random.uniform(0.1, 0.8)):
            read = as_read(record)
            self._history.on_read(read)
            self._positions[read.partition] = read.offset + 1
        self._note_owned()
        if self.may_stall and self._random.random() < _STALL_CHANCE:
            self._world.note("stalls")
            await asyncio.sleep(_STALL_S)
        try:
            if self._random.random() < _COMMIT_CHANCE:
                await self._commit(dict(self._positions))
            if self._random.random() < _LOOK_CHANCE:
                await self._look()
        except ApiError as error:
            self._world.note(f"{error} in generation {self.generation}")

    async def _commit(self, offsets: dict[TopicPartition, Offset]) -> None:
        if not offsets:
            return
        started_s = self._world.loop.time()
        self._history.on_committing(offsets)
        await self._consumer.commit(offsets)
        self._history.on_committed(offsets)
        if self._world.loop.time() - started_s > _RETRY_S_MIN:
            self._history.on_committing(offsets)

    async def _look(self) -> None:
        """Fetch the committed offsets and check them against the commits acknowledged before."""
        floor = self._history.floor(self._partitions)
        committed = await self._consumer.committed(self._partitions)
        found = {tp: committed[tp].offset if tp in committed else NO_OFFSET for tp in self._partitions}
        self._history.on_fetched(found, floor)

    def _note_owned(self) -> None:
        generation = self._consumer.group_metadata().generation_id
        if generation > 0:
            self.generation, self.owned = generation, self._consumer.assignment()
            self._history.on_assigned(self.name, generation, self.owned)

    # The listener

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note_owned()
        self._world.note(f"is given {len(partitions)} partitions in generation {self.generation}")

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit the positions; if that fails, the next owner reads the records again."""
        given_up = {tp: self._positions.pop(tp) for tp in partitions if tp in self._positions}
        try:
            if self._random.random() < _COMMIT_CHANCE:
                await self._commit(given_up)
        except ApiError as error:
            self._world.note(f"releases partitions without a commit: {error}")

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._world.note(f"has lost {len(partitions)} partitions")
        for partition in partitions:
            self._positions.pop(partition, None)
