"""The phases of a rebalance: subscribed topics, the group's epoch, the target assignment, and a member's next step."""

from rookery.base.types import TopicName
from rookery.coordinators.group.consumer.assignment import Assignment
from rookery.coordinators.group.consumer.assignors import ASSIGNORS, Subscriber
from rookery.coordinators.group.consumer.draft import Draft
from rookery.coordinators.group.consumer.environment import (
    Environment,
    MemberTimer,
    TimerKind,
    cancel_timers,
)
from rookery.coordinators.group.consumer.group import ConsumerGroup, Subscription
from rookery.coordinators.group.consumer.member import Member, MemberState
from rookery.coordinators.group.consumer.reconciliation import reconcile
from rookery.coordinators.result import Timer


def refresh(draft: Draft, environment: Environment, *, changed: bool) -> None:
    """Compute the subscribed topics again if the members (`changed`) or the cluster's topics did.

    A difference increments the group's epoch, upon which `assign` computes another target.
    """
    if not changed and not _is_stale(draft, environment):
        return
    resolved, is_complete = _resolve_regexes(draft, environment)
    changed |= resolved
    subscriptions = _subscriptions(draft.group, environment)
    if subscriptions != draft.group.subscriptions:
        draft.set_subscriptions(subscriptions)
        changed = True
    if changed:
        draft.set_epoch(draft.group.epoch + 1)
    if is_complete:
        # While a pattern is still being matched, the topics do not count as seen: the next heartbeat tries again.
        draft.set_volatile(seen_topics=environment.topics, seen_version=environment.visible_version)


def _is_stale(draft: Draft, environment: Environment) -> bool:
    """Return whether the cluster's topics changed since the patterns were matched, or which of them are visible."""
    volatile, version = draft.volatile, environment.visible_version
    return volatile.seen_topics is not environment.topics or (version is not None and volatile.seen_version != version)


def assign(draft: Draft, environment: Environment) -> None:
    """Compute a new target assignment if the group's epoch is ahead of the target's."""
    group = draft.group
    if group.epoch <= group.target_epoch:
        return
    counts = {topic.topic_id: topic.partition_count for topic in group.subscriptions.values()}
    subscribers = [_subscriber(group, member) for member in group.members.values()]
    targets = ASSIGNORS[assignor_name(group, environment)](subscribers, counts)
    for member_id, target in targets.items():
        if draft.group.targets.get(member_id) != target:
            draft.set_target(member_id, target)
    draft.set_target_epoch(draft.group.epoch)


def assignor_name(group: ConsumerGroup, environment: Environment) -> str:
    """Return the assignor that the members prefer, or the default if that one is no longer enabled."""
    default = environment.settings.assignors[0]
    preferred = group.assignor_name(default)
    return preferred if preferred in environment.settings.assignors else default


def advance_member(draft: Draft, member: Member, owned: Assignment | None) -> Member:
    """Move a member as far towards its target as is possible now; `owned` are the partitions that it reports."""
    group = draft.group
    target = group.target_of(member.member_id)
    after = reconcile(member, target, target_epoch=group.target_epoch, owned=owned, is_free=group.is_free)
    if after == member:
        return member
    draft.set_current(after)
    if after.classic is None:
        # Without a limit, a member that never acknowledges a revocation would keep the partitions from their next
        # owner for as long as it sends heartbeats. Classic members have their REJOIN timer for that.
        delay_ms = after.rebalance_timeout_ms if after.state is MemberState.UNREVOKED_PARTITIONS else None
        draft.timers.append(Timer(MemberTimer(TimerKind.REVOCATION, group.group_id, member.member_id), delay_ms))
    return after


def remove(draft: Draft, members: list[Member], environment: Environment) -> None:
    """Remove members from the group; the others get their partitions with the next target assignment."""
    for member in members:
        draft.remove_member(member.member_id)
        draft.timers += cancel_timers(draft.group.group_id, member.member_id)
    rejoining = draft.volatile.rejoining.difference(member.member_id for member in members)
    if rejoining != draft.volatile.rejoining:
        draft.set_volatile(rejoining=rejoining)
    refresh(draft, environment, changed=True)


def restart_session(draft: Draft, member: Member, environment: Environment) -> None:
    delay_ms = environment.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
    draft.timers.append(Timer(MemberTimer(TimerKind.SESSION, draft.group.group_id, member.member_id), delay_ms))


def _resolve_regexes(draft: Draft, environment: Environment) -> tuple[bool, bool]:
    """Match the patterns that are new, or all if the cluster's topics changed.

    Returns whether the matched topics changed, and whether the result is complete: while a pattern is still being
    matched, its members keep the topics that they have.
    """
    known, used = draft.group.regexes, draft.group.used_regexes()
    for pattern in sorted(known.keys() - used):
        draft.delete_regex(pattern)
    stale = _is_stale(draft, environment)
    changed, is_complete = False, True
    for pattern in sorted(used):
        if stale or pattern not in known:
            topics = environment.match(pattern, environment.topics)
            if topics is None:
                is_complete = False
            elif known.get(pattern) != topics:
                draft.set_regex(pattern, topics, now_ms=environment.now_ms)
                changed = True
    return changed, is_complete


def _subscriptions(group: ConsumerGroup, environment: Environment) -> dict[TopicName, Subscription]:
    found = ((name, environment.topics.get(name)) for name in sorted(group.subscribed_topics()))
    return {name: Subscription(topic.topic_id, len(topic.partitions)) for name, topic in found if topic is not None}


def _subscriber(group: ConsumerGroup, member: Member) -> Subscriber:
    names = group.topics_of(member) & group.subscriptions.keys()
    topic_ids = frozenset(group.subscriptions[name].topic_id for name in names)
    return Subscriber(member.member_id, member.instance_id, topic_ids, group.target_of(member.member_id))
