"""ConsumerGroupHeartbeat: the request by which members of the new protocol join, stay and leave (KIP-848).

A member joins with epoch 0 and then sends only the fields that changed. The response has the member's epoch, and its
partitions when they changed or the request was a full one.
"""

from dataclasses import replace
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.values import value_class
from rookery.coordinators import regex
from rookery.coordinators.group.consumer.assignment import NO_PARTITIONS, Assignment, is_subset
from rookery.coordinators.group.consumer.draft import Draft
from rookery.coordinators.group.consumer.environment import Environment, ErrorResponse, VisibleTopics
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Member, MemberState
from rookery.coordinators.group.consumer.rebalance import advance_member, assign, refresh, remove, restart_session

UNCHANGED_TIMEOUT = -1


@value_class(kw_only=True)
class HeartbeatRequest:
    """A field of None has not changed since the last request; `owned` are the partitions that the member reports."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    # The topics that a pattern may match, None if it may match all.
    visible: VisibleTopics | None = None

    @property
    def is_leave(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_full(self) -> bool:
        subscribes = self.topic_names is not None or self.topic_regex is not None
        has_all_fields = self.rebalance_timeout_ms != UNCHANGED_TIMEOUT and subscribes and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or has_all_fields


@value_class(kw_only=True)
class HeartbeatResponse:
    """`assignment` is None where it has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def validate(
    request: HeartbeatRequest, assignors: tuple[str, ...], *, member_id_required: bool
) -> ErrorResponse | None:
    """Return the error of a request that is invalid in any group, None if it is valid."""
    reason = _problem(request, member_id_required=member_id_required)
    if reason is not None:
        return ErrorResponse(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return ErrorResponse(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    return None


def _problem(request: HeartbeatRequest, *, member_id_required: bool) -> str | None:
    names_member = member_id_required or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH
    if names_member and not request.member_id.strip():
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if request.member_epoch == JOIN_EPOCH:
        return _join_problem(request)
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if request.member_epoch < STATIC_LEAVE_EPOCH else None


def _join_problem(request: HeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.topic_names is None and request.topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def heartbeat(draft: Draft, request: HeartbeatRequest, environment: Environment) -> HeartbeatResponse | ErrorResponse:
    """Let a member join, or process its regular heartbeat. The request has a member id."""
    group, settings = draft.group, environment.settings
    if not group.has_capacity_for(request.member_id, request.instance_id, settings.size_max):
        reason = f"The consumer group has reached its maximum capacity of {settings.size_max} members."
        return ErrorResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
    found = _find_member(draft, request)
    if isinstance(found, ErrorResponse):
        return found
    invalid = _regex_problem(request, found)
    if invalid is not None:
        return invalid
    is_new = found.member_id not in draft.group.members
    member = _update(draft, request, found)
    changed = is_new or (member.topic_names, member.topic_regex) != (found.topic_names, found.topic_regex)
    refresh(draft, environment, changed=changed)
    assign(draft, environment)
    member = advance_member(draft, member, request.owned)
    restart_session(draft, member, environment)
    includes_assignment = request.is_full or member.assigned != found.assigned
    return HeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=member.assigned if includes_assignment else None,
    )


def _update(draft: Draft, request: HeartbeatRequest, member: Member) -> Member:
    """Return the member with the fields of the request, and write it if they changed it."""
    changes: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "topic_names": request.topic_names,
        "topic_regex": request.topic_regex,
        "server_assignor": request.server_assignor,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if request.rebalance_timeout_ms != UNCHANGED_TIMEOUT:
        given["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    updated = replace(member, client_id=request.client_id, client_host=request.client_host, classic=None, **given)
    if updated != member or member.member_id not in draft.group.members:
        draft.set_member(updated)
    return updated


def _regex_problem(request: HeartbeatRequest, member: Member) -> ErrorResponse | None:
    if not request.topic_regex or request.topic_regex == member.topic_regex:
        return None
    reason = regex.problem(request.topic_regex)
    if reason is None:
        return None
    message = f"SubscribedTopicRegex `{request.topic_regex}` is not a valid regular expression: {reason}."
    return ErrorResponse(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


def _find_member(draft: Draft, request: HeartbeatRequest) -> Member | ErrorResponse:
    if request.instance_id is not None:
        return _find_static_member(draft, request, request.instance_id)
    member = draft.group.members.get(request.member_id)
    if member is not None:
        return _epoch_problem(member, request) or member
    if request.member_epoch == JOIN_EPOCH:
        return Member(member_id=request.member_id)
    return unknown_member(draft.group, request.member_id)


def _find_static_member(draft: Draft, request: HeartbeatRequest, instance_id: str) -> Member | ErrorResponse:
    existing = draft.group.static_member(instance_id)
    if request.member_epoch != JOIN_EPOCH:
        found = known_static_member(existing, request.member_id, instance_id)
        return found if isinstance(found, ErrorResponse) else _epoch_problem(found, request) or found
    if existing is None:
        return draft.group.members.get(request.member_id) or Member(member_id=request.member_id)
    if existing.member_id == request.member_id:
        return existing
    if existing.classic is None and not existing.has_left_for_now:
        # The instance id is in use. Replacing its member would let two processes that were started with the same id
        # by mistake fence each other for ever.
        reason = (
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {existing.member_id} member."
        )
        return ErrorResponse(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
    return draft.replace_member(existing, request.member_id)


def known_static_member(existing: Member | None, member_id: str, instance_id: str) -> Member | ErrorResponse:
    if existing is None:
        return ErrorResponse(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        reason = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        return ErrorResponse(ErrorCode.FENCED_INSTANCE_ID, reason)
    return existing


def unknown_member(group: ConsumerGroup, member_id: str) -> ErrorResponse:
    return ErrorResponse(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _epoch_problem(member: Member, request: HeartbeatRequest) -> ErrorResponse | None:
    """Return the fencing error, unless the epoch is the member's, or 0, or the response with the newest was lost."""
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return None
    # A member whose last response was lost still reports the epoch before. It may continue only if it owns nothing
    # beyond its present assignment: other partitions may belong to another member by now.
    missed_response = epoch == member.previous_member_epoch and epoch < member.member_epoch
    if missed_response and request.owned is not None and is_subset(request.owned, member.assigned):
        return None
    relation = "greater" if epoch > member.member_epoch else "smaller"
    reason = (
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin."
    )
    return ErrorResponse(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def find_leaving(group: ConsumerGroup, request: HeartbeatRequest) -> Member | ErrorResponse:
    if request.instance_id is not None:
        existing = group.static_member(request.instance_id)
        return known_static_member(existing, request.member_id, request.instance_id)
    return group.members.get(request.member_id) or unknown_member(group, request.member_id)


def leave(draft: Draft, request: HeartbeatRequest, member: Member, environment: Environment) -> HeartbeatResponse:
    """Remove a member; one that leaves temporarily (a static one) keeps its partitions until its session ends."""
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        draft.set_current(
            replace(
                member,
                member_epoch=STATIC_LEAVE_EPOCH,
                state=MemberState.STABLE,
                pending_revocation=NO_PARTITIONS,
            )
        )
    else:
        remove(draft, [member], environment)
    return HeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
