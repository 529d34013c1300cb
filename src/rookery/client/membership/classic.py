"""The state of a member of a classic group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup). Pure: no network, no time.

Theory of operation. Members join; when all have joined, each gets the new generation, and one of them, the leader, also
the subscriptions of all. The leader computes the assignments and sends them with its SyncGroup; the SyncGroup responses
of all members carry their assignments. Heartbeats keep the session alive; their response is REBALANCE_IN_PROGRESS when
the member should join again.

    UNJOINED              -> PREPARING_REBALANCE   join_request
    PREPARING_REBALANCE   -> COMPLETING_REBALANCE  joined: there is a generation
    COMPLETING_REBALANCE  -> STABLE                synced: there is an assignment
    COMPLETING_REBALANCE  -> PREPARING_REBALANCE   join_request, after others joined or left meanwhile
    STABLE                -> PREPARING_REBALANCE   join_request
    any                   -> UNJOINED              the coordinator has removed this member, or the member has left

- An error code about the membership counts only for the current identity: replies to requests of an earlier generation,
  or during a join, are stale.
- `completed_generation` is the generation in which the owned partitions were assigned. It is reset when the membership
  ends, and with it the ownership.
- Errors that no retry can resolve are raised as ApiError.

`classic_shell` runs this for consumers, and `worker` for groups with a custom protocol.
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
    """The caller's next step after a response."""

    CONTINUE = auto()
    JOIN_NOW = auto()
    JOIN_LATER = auto()
    SYNC = auto()
    ADOPT = auto()
    """There is a new assignment."""
    LOSE = auto()
    """The member was removed from the group: all owned partitions are lost."""


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
        """False for a leader that came back within its session: the group keeps its assignment (KIP-814)."""
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
    def may_heartbeat(self) -> bool:
        return self.state in (State.COMPLETING_REBALANCE, State.STABLE)

    def request_rejoin(self, reason: str) -> None:
        """Request another join. The coordinator is sent the first reason since the last join."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    def join_request(self, protocols: Sequence[tuple[str, bytes]]) -> JoinGroupRequest:
        """Build a JoinGroup. `protocols` are the supported assignors, the preferred one first, with the metadata."""
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
                # Only here: what is requested from now on is not part of this join, and needs another one.
                self.rejoin_reason = None
                return Step.SYNC
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                return Step.JOIN_NOW
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return self.lose("the coordinator does not know this member")
            case ErrorCode.REBALANCE_IN_PROGRESS:
                return Step.JOIN_LATER
            case code:
                raise self._group_error(code, "join")

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """Build a SyncGroup. `assignments` are those of all members if this one leads, else empty."""
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
                return Step.ADOPT
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.request_rejoin("the group began another rebalance before this one ended")
                return Step.JOIN_NOW
            case ErrorCode.ILLEGAL_GENERATION:
                return self.lose("the group has a newer generation", keep_member_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return self.lose("the coordinator does not know this member")
            case code:
                raise self._group_error(code, "get an assignment from")

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )

    def on_error_code(self, code: ErrorCode, identity: ConsumerGroupMetadata) -> Step:
        """Process the error code of a heartbeat or commit that was sent with `identity`."""
        if code == ErrorCode.NONE or identity != self.identity or not self.may_heartbeat:
            # A stale reply: dropping the current membership because of an earlier generation's error would revoke
            # partitions that this member owns, and start rebalance after rebalance.
            return Step.CONTINUE
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if self.state == State.STABLE:
                    self.request_rejoin("the group is rebalancing")
                return Step.CONTINUE
            case ErrorCode.ILLEGAL_GENERATION:
                return self.lose("the group has a newer generation", keep_member_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return self.lose("the coordinator does not know this member")
            case _:
                raise self._group_error(code, "stay in")

    def lose(self, reason: str, *, keep_member_id: bool = False) -> Step:
        self.state = State.UNJOINED
        self.generation = self.completed_generation = NO_GENERATION
        if not keep_member_id:
            self.member_id = NO_MEMBER_ID
        self.is_leader = False
        self.members = ()
        self.rejoin_reason = reason
        return Step.LOSE

    def drop_instance_id(self) -> None:
        """Join as a dynamic member from now on: another member has the instance id."""
        self._instance_id = None

    def leave_request(self, reason: str, *, for_good: bool = False) -> LeaveGroupRequest | None:
        """Build a LeaveGroup; None if there is nothing to leave.

        A static member leaves only if `for_good`: otherwise it may come back within its session, and keeps its
        partitions meanwhile.
        """
        if self.member_id == NO_MEMBER_ID or (self._instance_id is not None and not for_good):
            return None
        leaving = MemberIdentity(
            member_id=self.member_id, group_instance_id=self._instance_id, reason=reason[:_REASON_LENGTH_MAX]
        )
        return LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id, members=[leaving])

    def _group_error(self, code: ErrorCode, what: str) -> ApiError:
        text = f"cannot {what} group {self._group_id}"
        if code == ErrorCode.FENCED_INSTANCE_ID:
            text += f": another consumer uses the group.instance.id {self._instance_id}"
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            text += ": its members have no assignor (partition.assignment.strategy) in common with this one"
        elif code == ErrorCode.INVALID_SESSION_TIMEOUT:
            text += f": the broker does not allow session.timeout.ms {self._session_timeout_ms}"
        return ApiError(code, text)
