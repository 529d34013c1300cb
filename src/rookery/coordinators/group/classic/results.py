"""Requests to classic groups as plain values, and their results."""

from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.values import value_class
from rookery.coordinators.group.classic.group import Protocols

NO_GENERATION = -1


@value_class(kw_only=True)
class JoinRequest:
    """The flags depend on the request's version: since v4 `needs_member_id`, since v9 `can_skip_assignment`."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    can_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    error_code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    # For the leader only.
    members: tuple[JoinedMember, ...] = ()


@value_class(kw_only=True)
class SyncRequest:
    group_id: str
    member_id: str
    instance_id: str | None = None
    generation: int
    # None: the request's version has no such field.
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncResult(NamedTuple):
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@value_class(kw_only=True)
class HeartbeatRequest:
    group_id: str
    member_id: str
    instance_id: str | None = None
    generation: int


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error_code: ErrorCode


class LeaveResult(NamedTuple):
    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
