"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the leader assigns the partitions."""

from collections.abc import Iterable, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.simulation.members import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Member, check

_PROTOCOL = "range"
_REJOIN_AS_NEW_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


class ClassicMember(Member):
    def _learn(self, code: ErrorCode) -> None:
        if code.retriable:
            return
        # A rebalance, or this member was removed: it must not commit its former partitions any more.
        self.owned = None
        self._positions = {}
        if code in _REJOIN_AS_NEW_MEMBER:
            self._member_id = ""

    async def _join(self) -> None:
        response = await self._join_once()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            response = await self._join_once()
        check(response.error_code)
        self._member_id = response.member_id
        self.generation = response.generation_id
        assignments = []
        if response.leader == self._member_id:
            assignments = self._assign([member.member_id for member in response.members])
        await self._sync(assignments)

    async def _join_once(self) -> Message:
        return await self._call(
            ApiKey.JOIN_GROUP,
            Message(
                group_id=self._group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[Message(name=_PROTOCOL, metadata=b"")],
                reason=None,
            ),
        )

    def _assign(self, members: Sequence[str]) -> list[Message]:
        """Assign the partitions. The format of the bytes is free, because brokers do not parse them."""
        hands: dict[str, list[str]] = {member: [] for member in sorted(members)}
        for index, partition in enumerate(self._partitions):
            hands[sorted(members)[index % len(members)]].append(f"{partition.topic}/{partition.partition}")
        return [Message(member_id=member, assignment=",".join(hand).encode()) for member, hand in hands.items()]

    async def _sync(self, assignments: list[Message]) -> None:
        response = await self._call(
            ApiKey.SYNC_GROUP,
            Message(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name=_PROTOCOL,
                assignments=assignments,
            ),
        )
        check(response.error_code)
        owned = frozenset(_parse(response.assignment))
        self._history.on_assigned(self.name, self.generation, owned)
        self._world.note(f"owns {len(owned)} partitions in generation {self.generation}")
        self.owned = owned
        try:
            await self._begin_at_committed(owned)
        except ApiError:
            # Without committed offsets there is no position to start from: the next round begins with a join.
            self.owned = None
            raise

    async def _heartbeat(self) -> None:
        response = await self._call(
            ApiKey.HEARTBEAT,
            Message(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self._member_id,
                group_instance_id=None,
            ),
        )
        check(response.error_code)

    async def _leave(self) -> None:
        identity = Message(member_id=self._member_id, group_instance_id=None, reason=None)
        await self._call(ApiKey.LEAVE_GROUP, Message(group_id=self._group, members=[identity]))


def _parse(assignment: bytes) -> Iterable[TopicPartition]:
    for item in filter(None, bytes(assignment).decode().split(",")):
        topic, _, index = item.partition("/")
        yield TopicPartition(topic, int(index))
