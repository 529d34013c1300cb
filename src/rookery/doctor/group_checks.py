"""Checks of consumer groups and transactions. Pure."""

from collections.abc import Iterator

from rookery.doctor.findings import Check, Seen, Severity, some
from rookery.doctor.snapshot import ClusterSnapshot
from rookery.lag import GroupLag, Status

_HOUR_S = 3600.0
_ABANDONED_S = 7 * 24 * _HOUR_S


def _groups(snapshot: ClusterSnapshot) -> tuple[GroupLag, ...]:
    return () if snapshot.lags is None else snapshot.lags.groups


def _lag_text(group: GroupLag) -> str:
    age = "" if group.lag_s is None else f", the oldest {group.lag_s:,.0f} s old"
    return f"{group.lag or 0:,} records behind{age}"


def _is_abandoned(group: GroupLag) -> bool:
    return group.group.member_count == 0 and (group.lag_s or 0) > _ABANDONED_S


def stuck(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for group in _groups(snapshot):
        if group.status in (Status.STALL, Status.STOP) and not _is_abandoned(group):
            reason = "no commit advances" if group.status is Status.STALL else "no commits, and no members"
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"{reason}; {_lag_text(group)}",
                command=f"rookery groups describe {group.group_id}",
                advice="start its consumers; if they run, look for a record that they fail on, in their logs",
            )


def falling_behind(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for group in _groups(snapshot):
        if group.status is Status.WARNING:
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"the lag does not fall: {_lag_text(group)}, {group.trend or 0:+,.1f} records/s",
                command=f"rookery groups lag {group.group_id} --partitions --for 60",
                advice="add members, up to the number of partitions, or make them faster",
            )


def lost_records(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for group in _groups(snapshot):
        if group.lost:
            found = [each.partition for each in group.partitions if each.lost]
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"{group.lost:,} offsets were deleted before the group committed them: {some(found)}",
                command=f"rookery groups reset-offsets {group.group_id} --all-topics --to-earliest",
                advice="continue with what is left (add --execute), and lengthen retention.ms of the topic",
            )


def near_retention(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for group in _groups(snapshot):
        for each in () if _is_abandoned(group) else group.partitions:
            if each.expires_s is None or each.expires_s >= min(_HOUR_S, (each.retention_ms or 0) / 10_000):
                continue
            if each.catch_up_s is not None and each.catch_up_s < each.expires_s:
                continue
            topic = each.partition.topic
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"retention may delete unread records of {each.partition} in {each.expires_s:,.0f} s",
                command=f"rookery topics alter {topic} --set retention.ms={2 * (each.retention_ms or 0)}",
                advice="until the group has caught up",
            )
            break


def abandoned(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for group in _groups(snapshot):
        if _is_abandoned(group):
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"no members; {_lag_text(group)}",
                command=f"rookery groups delete {group.group_id}",
                advice="if no program uses it any more",
            )


def idle_members(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for group in _groups(snapshot):
        owners = {each.sample.owner.member_id for each in group.partitions if each.sample.owner is not None}
        idle = group.group.member_count - len(owners)
        if idle > 0 and group.group.state == "Stable":
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"{idle} of {group.group.member_count} members have no partition",
                command=f"rookery groups describe {group.group_id} --members",
                advice="stop them, or add partitions",
            )


def vanished_topics(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    known = {topic.name for topic in snapshot.topics}
    for group in _groups(snapshot):
        found = sorted({each.partition.topic for each in group.partitions} - known)
        if found:
            yield Seen(
                subject=f"group {group.group_id}",
                text=f"offsets of topics that do not exist: {some(found)}",
                command=f"rookery groups delete-offsets {group.group_id} --topic {found[0]}",
            )


def hanging_transactions(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for each in snapshot.hanging:
        tp, producer = each.partition, each.producer
        start = "" if producer.transaction_start is None else f" --start-offset {producer.transaction_start}"
        yield Seen(
            subject=f"partition {tp}",
            text=f"producer {producer.producer_id} has an open transaction that no coordinator will end",
            command=f"rookery transactions abort --topic {tp.topic} --partition {tp.partition}{start}",
        )


CHECKS = (
    Check(
        id="group-stuck",
        severity=Severity.ERROR,
        title="a group with lag that makes no progress",
        why="Its data is not processed, and will be deleted by retention.",
        run=stuck,
    ),
    Check(
        id="group-falling-behind",
        severity=Severity.WARNING,
        title="a group whose lag never falls",
        why="Consumers are slower than producers: the lag grows until retention deletes unread records.",
        run=falling_behind,
    ),
    Check(
        id="group-lost-records",
        severity=Severity.ERROR,
        title="retention has deleted records that a group has not read",
        why="The group skips them: auto.offset.reset decides where it continues, without an error.",
        run=lost_records,
    ),
    Check(
        id="group-near-retention",
        severity=Severity.WARNING,
        title="retention will soon delete unread records",
        why="Within an hour, or a tenth of the retention time, and the group will not have caught up by then.",
        run=near_retention,
    ),
    Check(
        id="group-abandoned",
        severity=Severity.NOTE,
        title="no members, and unread records older than a week",
        why="It hides the groups that matter in every list of lags.",
        run=abandoned,
    ),
    Check(
        id="idle-members",
        severity=Severity.NOTE,
        title="more members than partitions",
        why="Members without a partition do nothing.",
        run=idle_members,
    ),
    Check(
        id="vanished-topics",
        severity=Severity.NOTE,
        title="offsets of a topic that does not exist",
        why="The topic was deleted or renamed. A new topic of that name would be read from these offsets.",
        run=vanished_topics,
    ),
    Check(
        id="hanging-transactions",
        severity=Severity.ERROR,
        title="transactions that no coordinator will end",
        why="read_committed consumers stop before them for ever, and compaction does, too.",
        run=hanging_transactions,
    ),
)
