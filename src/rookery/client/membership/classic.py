"""A member of a classic consumer group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), without network or time.

Theory of operation. Members join; when all have, each learns the new generation, and one of them, the leader, the
subscriptions of all. The leader shares the partitions out and sends the result with its SyncGroup; the SyncGroups of
the others are answered with their part. Heartbeats say that a member lives, and are answered with REBALANCE_IN_PROGRESS
when it should join again.

    UNJOINED              -> PREPARING_REBALANCE   join_request
    PREPARING_REBALANCE   -> COMPLETING_REBALANCE  joined: there is a generation
    COMPLETING_REBALANCE  -> STABLE                synced: there is an assignment
    COMPLETING_REBALANCE  -> PREPARING_REBALANCE   join_request, after others joined or left meanwhile
    STABLE                -> PREPARING_REBALANCE   join_request
    any                   -> UNJOINED              the coordinator does not know us (any more), or we left

- An answer that says that we are not a member counts only for who we are now: answers to what was sent in an earlier
  generation, or while a join is under way, are stale.
- `completed_generation` is the generation in which what we own was assigned. It is lost with the membership, and with
  it everything that is owned.
- Errors that no new try can mend are raised as ApiError.

`classic_shell` runs this for consumers, and `worker` for groups with a protocol of their own.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.membership.interfaces import NO_GENERATION, NO_MEMBER_ID, ConsumerGroupMetadata
from rookery.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
_REASON_LENGTH_MAX = 255


class State(Enum):
    UNJOINED = auto()
    PREPARING_REBALANCE = auto()
    COMPLETING_REBALANCE = auto()
    STABLE = auto()


class Step(Enum):
    """What an answer asks of whoever runs the member."""

    GO_ON = auto()
    JOIN_NOW = auto()
    JOIN_LATER = auto()
    SYNC = auto()
    SETTLE = auto()
    """There is an assignment to follow."""
    LOSE = auto()
    """We are no member any more: everything owned is lost."""


class ClassicMember:
    def __init__(
        self,
        group_id: str,
        *,
        instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str = PROTOCOL_TYPE,
    ) -> None:
        self.state = State.UNJOINED
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.completed_generation = NO_GENERATION
        self.assignor = ""
        self.is_leader = False
        self.must_assign = False
        """A leader that came back within its session need not: the group keeps its assignment (KIP-814)."""
        self.members: Sequence[JoinGroupResponseMember] = ()
        self.assignment = b""
        self.rejoin_reason: str | None = "initialized"
        self._group_id = group_id
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._protocol_type = protocol_type

    @property
    def identity(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._group_id, self.generation, self.member_id, self._instance_id)

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    @property
    def may_beat(self) -> bool:
        return self.state in (State.COMPLETING_REBALANCE, State.STABLE)

    def request_rejoin(self, reason: str) -> None:
        """The next join happens as soon as its runner can; the first reason is told."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    def join_request(self, protocols: Sequence[tuple[str, bytes]]) -> JoinGroupRequest:
        """`protocols`: the assignors that we know, the preferred one first, each with our subscription."""
        self.state = State.PREPARING_REBALANCE
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            reason=(self.rejoin_reason or "")[:_REASON_LENGTH_MAX],
        )

    def joined(self, response: JoinGroupResponse) -> Step:
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                self.member_id = response.member_id
                self.generation = response.generation_id
                self.assignor = response.protocol_name or ""
                self.is_leader = response.leader == response.member_id
                self.must_assign = self.is_leader and not response.get("skip_assignment", False)
                self.members = response.members
                self.state = State.COMPLETING_REBALANCE
                # What happens from now on is a reason to join again.
                self.rejoin_reason = None
                return Step.SYNC
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                return Step.JOIN_NOW
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return self.lose("the coordinator does not know us")
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return Step.JOIN_LATER
            case code:
                raise self._refused(code, "join")

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """`assignments`: of all members if we lead, none otherwise."""
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=self._protocol_type,
            protocol_name=self.assignor,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assignments.items()
            ],
        )

    def synced(self, response: SyncGroupResponse) -> Step:
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                self.state = State.STABLE
                self.completed_generation = self.generation
                self.assignment = response.assignment
                return Step.SETTLE
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.request_rejoin("the group began another rebalance before this one ended")
                return Step.JOIN_NOW
            case ErrorCode.ILLEGAL_GENERATION:
                return self.lose("the group has a newer generation", keep_member_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return self.lose("the coordinator does not know us")
            case code:
                raise self._refused(code, "share the partitions of")

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )

    def told(self, code: ErrorCode, who: ConsumerGroupMetadata) -> Step:
        """The coordinator answered a heartbeat or a commit of ours, sent as `who`."""
        if code == ErrorCode.NONE or who != self.identity or not self.may_beat:
            return Step.GO_ON
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if self.state == State.STABLE:
                    self.request_rejoin("the group is rebalancing")
                return Step.GO_ON
            case ErrorCode.ILLEGAL_GENERATION:
                return self.lose("the group has a newer generation", keep_member_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return self.lose("the coordinator does not know us")
            case _:
                raise self._refused(code, "stay in")

    def lose(self, reason: str, *, keep_member_id: bool = False) -> Step:
        self.state = State.UNJOINED
        self.generation = self.completed_generation = NO_GENERATION
        if not keep_member_id:
            self.member_id = NO_MEMBER_ID
        self.is_leader = False
        self.members = ()
        self.rejoin_reason = reason
        return Step.LOSE

    def give_up_instance(self) -> None:
        """Another member has our instance id: from now on we join as one more."""
        self._instance_id = None

    def leave_request(self, reason: str, *, for_good: bool = False) -> LeaveGroupRequest | None:
        """None if there is nothing to leave. Static members leave only for good: else they are back within their
        session."""
        if self.member_id == NO_MEMBER_ID or (self._instance_id is not None and not for_good):
            return None
        leaving = MemberIdentity(
            member_id=self.member_id, group_instance_id=self._instance_id, reason=reason[:_REASON_LENGTH_MAX]
        )
        return LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id, members=[leaving])

    def _refused(self, code: ErrorCode, what: str) -> ApiError:
        text = f"cannot {what} group {self._group_id}"
        if code == ErrorCode.FENCED_INSTANCE_ID:
            text += f": another consumer uses the group.instance.id {self._instance_id}"
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            text += ": its members have no assignor (partition.assignment.strategy) in common with us"
        elif code == ErrorCode.INVALID_SESSION_TIMEOUT:
            text += f": the broker does not allow session.timeout.ms {self._session_timeout_ms}"
        return ApiError(code, text)
