"""Members of groups of the new protocol (KIP-848): all steps are ConsumerGroupHeartbeat requests.

A member owns the partitions of the last assignment, releases those that are missing there immediately, and sends its
partitions in the next heartbeat.
"""

from uuid import UUID

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.simulation.members import REBALANCE_TIMEOUT_MS, Member, check

_JOINING = 0
_LEAVING = -1
# The group has a new epoch: the response to the next heartbeat has it.
_STALE = ErrorCode.STALE_MEMBER_EPOCH


class ConsumerMember(Member):
    _epoch = _JOINING

    def _learn(self, code: ErrorCode) -> None:
        if code.retriable or code is _STALE:
            return
        self.owned = None
        self._positions = {}
        self._epoch = _JOINING

    async def _join(self) -> None:
        if not self._member_id:
            self._member_id = str(UUID(bytes=self._random.randbytes(16), version=4))
        await self._cluster.refresh(sorted({partition.topic for partition in self._partitions}))
        self._epoch = _JOINING
        await self._beat(owned=frozenset())

    async def _heartbeat(self) -> None:
        assert self.owned is not None
        await self._beat(owned=self.owned)

    async def _beat(self, owned: frozenset[TopicPartition]) -> None:
        response = await self._call(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._request(self._epoch, owned))
        check(response.error_code)
        self._epoch = self.generation = response.member_epoch
        assigned = owned if response.assignment is None else frozenset(self._partitions_of(response.assignment))
        self._history.on_assigned(self.name, self._epoch, assigned)
        if assigned != owned or self.owned is None:
            self._world.note(f"owns {len(assigned)} partitions in epoch {self._epoch}")
        await self._adopt(assigned)

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        self._positions = {partition: at for partition, at in self._positions.items() if partition in assigned}
        self.owned = assigned
        missing = assigned - self._positions.keys()
        if missing:
            try:
                await self._begin_at_committed(frozenset(missing))
            except ApiError as error:
                # The member owns the partitions anyway; the next heartbeat tries again.
                self._world.note(f"does not know yet where to begin: {error.code.name}")

    def _request(self, epoch: int, owned: frozenset[TopicPartition]) -> Message:
        by_topic: dict[str, list[int]] = {}
        for partition in sorted(owned):
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        metadata = self._cluster.metadata
        return Message(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=sorted({partition.topic for partition in self._partitions}),
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[
                Message(topic_id=metadata.topic_id(topic), partitions=indexes) for topic, indexes in by_topic.items()
            ],
        )

    def _partitions_of(self, assignment: Message) -> list[TopicPartition]:
        names = {self._cluster.metadata.topic_id(partition.topic): partition.topic for partition in self._partitions}
        return [
            TopicPartition(names[topic.topic_id], index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        ]

    async def _leave(self) -> None:
        await self._call(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._request(_LEAVING, frozenset()))
