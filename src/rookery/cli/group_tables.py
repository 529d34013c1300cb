"""The output of `rookery groups`: groups, members, offsets and lag, as tables and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from rookery.cli.output import Cell, Styled, indexes_by_topic, indexes_text, note, print_json, print_table
from rookery.cli.resets import Change
from rookery.client.admin import Admin, GroupDescription, GroupMember, PartitionLag

_STATE_STYLES = {"Stable": "green", "Empty": "dim", "Dead": "red"}
_LAG_HIGH = 10_000


def state_cell(state: str) -> Cell:
    return Styled(state, _STATE_STYLES.get(state, "yellow")) if state else None


async def describe_groups(admin: Admin, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return groups as JSON values; all consumer groups if none is named."""
    wanted = names or [group.group_id for group in await admin.list_groups(types=("classic", "consumer"))]
    return [await _describe(admin, group.check()) for group in await admin.describe_groups(wanted)]


async def _describe(admin: Admin, group: GroupDescription) -> dict[str, Any]:
    owners = {tp: member for member in group.members for tp in member.assignment}
    rows = [_lag_as_json(lag, owners.get(lag.partition)) for lag in await admin.lags(group.group_id, owners)]
    known = [row["lag"] for row in rows if row["lag"] is not None]
    return _group_as_json(group) | {"total_lag": sum(known) if known else None, "offsets": rows}


def _group_as_json(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [_member_as_json(member) for member in group.members],
    }


def _member_as_json(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "epoch": member.epoch,
        "assignment": indexes_by_topic(member.assignment),
        "target": None if member.target is None else indexes_by_topic(member.target),
    }


def _lag_as_json(lag: PartitionLag, owner: GroupMember | None) -> dict[str, Any]:
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed_offset": lag.committed,
        "end_offset": lag.end,
        "lag": lag.lag,
        "member": None if owner is None else owner.member_id,
        "client": None if owner is None else owner.client_id,
    }


def print_group(group: dict[str, Any], *, members: bool, offsets: bool) -> None:
    """Print a title line and the requested tables."""
    count = len(group["members"])
    size = f"{count} member{'' if count == 1 else 's'}"
    kind = [group["type"], group["state"], size, f"coordinator {group['coordinator']}"]
    kind += [f"assignor {group['assignor']}"] if group["assignor"] else []
    kind += [f"epoch {group['epoch']}"] if group["epoch"] is not None else []
    lag = "unknown" if group["total_lag"] is None else f"{group['total_lag']:,}"
    typer.echo(f"{group['group']}  ({', '.join(kind)}, lag {lag})")
    if members and group["members"]:
        _print_members(group["members"])
    if offsets and group["offsets"]:
        _print_offsets(group["offsets"])


def _print_members(members: Iterable[dict[str, Any]]) -> None:
    rows = [
        (
            member["member"],
            member["instance"],
            member["client"],
            member["host"],
            sum(map(len, member["assignment"].values())),
            indexes_text(member["assignment"]),
        )
        for member in members
    ]
    print_table(["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS", "ASSIGNMENT"], rows)


def _print_offsets(offsets: Iterable[dict[str, Any]]) -> None:
    rows = [
        (
            row["topic"],
            row["partition"],
            row["committed_offset"],
            row["end_offset"],
            _lag_cell(row["lag"]),
            row["member"],
            row["client"],
        )
        for row in offsets
    ]
    print_table(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT"], rows)


def _lag_cell(lag: int | None) -> Cell:
    if lag is None:
        return None
    if lag == 0:
        return Styled("0", "green")
    return Styled(str(lag), "bold red" if lag >= _LAG_HIGH else "yellow")


def print_changes(group_id: str, changes: Sequence[Change], *, executed: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {"topic": c.partition.topic, "partition": c.partition.partition, "old_offset": c.old, "new_offset": c.new}
            for c in changes
        ]
        print_json({"group": group_id, "executed": executed, "offsets": rows})
        return
    print_table(["TOPIC", "PARTITION", "OLD", "NEW", "CHANGE"], [_change_row(change) for change in changes])
    if not executed:
        note("nothing was changed: add --execute to reset the offsets")


def _change_row(change: Change) -> tuple[Cell, ...]:
    if change.old is None:
        difference: Cell = "new"
    else:
        moved = change.new - change.old
        difference = Styled(f"{moved:+d}" if moved else "0", "dim" if not moved else "yellow" if moved < 0 else "green")
    return (*change.partition, change.old, change.new, difference)
