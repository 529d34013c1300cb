"""Conversion of a group that has members to the other kind.

The first member of the new protocol that joins a classic group of consumers converts it to a consumer group. Its
classic members stay: they keep their partitions, and rejoin with JoinGroup when a response of REBALANCE_IN_PROGRESS
asks for it (see `classic_members`). When the last member of the new protocol leaves and classic ones remain, the group
is converted back to a classic group, which rebalances. `group.consumer.migration.policy` says which directions are
allowed.

A conversion is one batch: the tombstones of the one kind and the records of the other. If they were written separately,
a crash between them would lose the group, or some of its members.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import PartitionIndex, TopicName
from rookery.coordinators.group.classic.draft import ClassicDraft
from rookery.coordinators.group.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from rookery.coordinators.group.classic.group import Member as ClassicMember
from rookery.coordinators.group.classic.rebalance import begin_rebalance
from rookery.coordinators.group.classic.results import JoinResult, SyncResult
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignment import Assignment
from rookery.coordinators.group.consumer.draft import Draft
from rookery.coordinators.group.consumer.environment import Environment, ErrorResponse, cancel_timers
from rookery.coordinators.group.consumer.group import ConsumerGroup, tombstones
from rookery.coordinators.group.consumer.member import ClassicMembership, ClassicProtocol, Member
from rookery.coordinators.group.consumer.rebalance import restart_session
from rookery.coordinators.group.records import GroupMetadataKey, GroupRecord
from rookery.coordinators.group.timers import JoinTimer, SessionTimer, SyncTimer
from rookery.coordinators.result import Completion, CoordinatorResult, Timer
from rookery.protocol import consumer_protocol


def upgrade(classic: ClassicGroup, environment: Environment) -> Draft | ErrorResponse:
    """Return a draft of a consumer group that replaces a classic one and has its members."""
    tombstone = GroupRecord(GroupMetadataKey(classic.group_id), None)
    draft = Draft(ConsumerGroup(classic.group_id), [tombstone])
    if not classic.members:
        _close_classic(draft, classic)
        return draft
    settings = environment.settings
    is_possible = settings.migration_policy.may_upgrade and classic.uses_consumer_protocol
    if not is_possible or len(classic.members) > settings.size_max:
        return _not_a_consumer_group(classic.group_id)
    members = [_upgraded(member, classic, environment) for member in classic.members.values()]
    if None in members:
        return _not_a_consumer_group(classic.group_id)
    _close_classic(draft, classic)
    _write_members(draft, _without_overlaps(member for member in members if member is not None), classic.generation)
    for member in draft.group.members.values():
        restart_session(draft, member, environment)
    return draft


def _not_a_consumer_group(group_id: str) -> ErrorResponse:
    return ErrorResponse(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _close_classic(draft: Draft, classic: ClassicGroup) -> None:
    """Fail the classic group's waiting requests, upon which their clients join again, and cancel its timers."""
    for member in classic.members.values():
        if member.join_token is not None:
            result = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            draft.completions.append(Completion(member.join_token, result))
        if member.sync_token is not None:
            draft.completions.append(Completion(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
    sessions = [SessionTimer(classic.group_id, member_id) for member_id in (*classic.members, *classic.pending_joins)]
    for key in (*sessions, JoinTimer(classic.group_id), SyncTimer(classic.group_id)):
        draft.timers.append(Timer(key, None))


def _upgraded(member: ClassicMember, classic: ClassicGroup, environment: Environment) -> Member | None:
    """Return a classic member as one of a consumer group, with its assignment; None if its bytes are unreadable."""
    chosen = classic.protocol_name or member.protocols[0][0]
    subscription = consumer_protocol.read_subscription(member.metadata(chosen))
    partitions = consumer_protocol.read_assignment(member.assignment)
    if subscription is None or partitions is None:
        return None
    # JoinGroup responses will name its first choice, which must be the protocol that it uses at present.
    protocols = sorted(member.protocols, key=lambda offered: offered[0] != chosen)
    return Member(
        member_id=member.member_id,
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topics,
        assigned=to_ids(partitions, environment),
        classic=ClassicMembership(
            member.session_timeout_ms, tuple(ClassicProtocol(name, metadata) for name, metadata in protocols)
        ),
    )


def to_ids(partitions: Iterable[tuple[TopicName, PartitionIndex]], environment: Environment) -> Assignment:
    """Return partitions by topic id, without those that do not exist."""
    found = ((environment.topics.get(name), index) for name, index in partitions)
    return assignment.collect(
        (topic.topic_id, index) for topic, index in found if topic is not None and index in topic.partitions
    )


def _without_overlaps(members: Iterable[Member]) -> Iterable[Member]:
    """Yield the members with disjoint assignments.

    A faulty client-side assignor may have assigned a partition to two members; the first keeps it. A consumer group
    with two owners of a partition would hand it to a third while one of the two still reads it.
    """
    taken: Assignment = {}
    for member in members:
        assigned = assignment.difference(member.assigned, taken)
        taken = assignment.union(taken, assigned)
        yield replace(member, assigned=assigned)


def _write_members(draft: Draft, members: Iterable[Member], epoch: int) -> None:
    draft.set_epoch(epoch)
    for member in members:
        draft.set_member(member)
        draft.set_target(member.member_id, member.assigned)
        draft.set_current(member)
    draft.set_target_epoch(epoch)


def finish(draft: Draft, response: Any, environment: Environment) -> CoordinatorResult[Any]:
    """Return the result of a draft; if no member uses the new protocol any more, converted to a classic group."""
    classic = _downgraded(draft, environment)
    if classic is None:
        return draft.result(response)
    classic_draft = ClassicDraft(classic, environment.classic_settings, environment.now_ms)
    classic_draft.store()
    for member in classic.members.values():
        classic_draft.restart_session(member)
    begin_rebalance(classic_draft)
    downgrade = classic_draft.result(response)
    timers_off = [timer for member_id in classic.members for timer in cancel_timers(classic.group_id, member_id)]
    return replace(
        downgrade,
        records=[*draft.records, *tombstones(draft.group), *downgrade.records],
        completions=[*draft.completions, *downgrade.completions],
        timers=[*draft.timers, *timers_off, *downgrade.timers],
    )


def _downgraded(draft: Draft, environment: Environment) -> ClassicGroup | None:
    group = draft.group
    if not draft.records or not group.members or group.has_consumer_members or not draft.had_consumer_members:
        return None
    fits = len(group.members) <= environment.classic_settings.size_max
    if not environment.settings.migration_policy.may_downgrade or not fits:
        return None
    members = {member_id: _classic(member, environment) for member_id, member in group.members.items()}
    if not set.intersection(*({name for name, _ in member.protocols} for member in members.values())):
        return None
    classic = ClassicGroup(
        group_id=group.group_id,
        state=State.STABLE,
        previous_state=State.COMPLETING_REBALANCE,
        state_timestamp_ms=environment.now_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        leader_id=next(iter(members)),
        members=members,
        instances=dict(group.static_members),
    )
    classic.protocol_name = classic.select_protocol()
    return classic


def _classic(member: Member, environment: Environment) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple((offered.name, offered.metadata) for offered in member.classic.protocols),
        assignment=embedded_assignment(member, environment),
    )


def embedded_assignment(member: Member, environment: Environment) -> bytes:
    """Encode a classic member's partitions in the version of its subscription."""
    assert member.classic is not None
    subscription = consumer_protocol.read_subscription(member.classic.protocols[0].metadata)
    names = {topic.topic_id: name for name, topic in environment.topics.items() if topic.topic_id in member.assigned}
    topics = [(names[topic_id], sorted(indexes)) for topic_id, indexes in member.assigned.items() if topic_id in names]
    return consumer_protocol.write_assignment(0 if subscription is None else subscription.version, sorted(topics))
