"""The output of `rookery quorum status`, and the check whether the quorum works."""

import asyncio
from collections.abc import Mapping
from typing import Any

import typer

from rookery.base.types import TimestampMs, encode_uuid
from rookery.cli.output import Cell, Styled, print_table
from rookery.client.admin import NO_DIRECTORY_ID, Admin, Quorum, QuorumReplica

_LEADER, _VOTER, _OBSERVER = "leader", "voter", "observer"
_LAG_HIGH = 1000
_PAUSE_S = 0.25


def quorum_as_json(quorum: Quorum) -> dict[str, Any]:
    return {
        "leader": quorum.leader_id if quorum.leader_id >= 0 else None,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "log_end_offset": quorum.log_end_offset,
        "voters": [_replica_as_json(quorum, voter, is_voter=True) for voter in quorum.voters],
        "observers": [_replica_as_json(quorum, observer, is_voter=False) for observer in quorum.observers],
    }


def _replica_as_json(quorum: Quorum, replica: QuorumReplica, *, is_voter: bool) -> dict[str, Any]:
    is_leader = is_voter and replica.node_id == quorum.leader_id
    endpoints = quorum.endpoints.get(replica.node_id, ()) if is_voter else ()
    return {
        "node": replica.node_id,
        "role": _LEADER if is_leader else _VOTER if is_voter else _OBSERVER,
        "directory_id": None if replica.directory_id == NO_DIRECTORY_ID else encode_uuid(replica.directory_id),
        "endpoints": [str(endpoint) for endpoint in endpoints],
        "log_end_offset": replica.log_end_offset if replica.log_end_offset >= 0 else None,
        "lag": quorum.lag(replica),
        "last_fetch_ms": replica.last_fetch_ms,
        "last_caught_up_ms": replica.last_caught_up_ms,
    }


def print_summary(cluster_id: str, quorum: Mapping[str, Any]) -> None:
    """Print one line per fact, with the largest lag of a voter."""
    lags = [row["lag"] for row in quorum["voters"]]
    largest = "unknown" if None in lags else f"{max(lags, default=0):,}"
    facts = {
        "cluster id": cluster_id,
        "leader": "none" if quorum["leader"] is None else quorum["leader"],
        "leader epoch": quorum["leader_epoch"],
        "high watermark": quorum["high_watermark"],
        "largest lag of a voter": largest,
        "voters": ", ".join(str(row["node"]) for row in quorum["voters"]),
        "observers": ", ".join(str(row["node"]) for row in quorum["observers"]) or "none",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name:{width}}  {value}")


def print_replicas(quorum: Mapping[str, Any], *, now_ms: TimestampMs, title: str | None = None) -> None:
    rows = [
        (
            row["node"],
            Styled(row["role"], "green" if row["role"] == _LEADER else "dim" if row["role"] == _OBSERVER else ""),
            " ".join(row["endpoints"]) or None,
            row["directory_id"],
            row["log_end_offset"],
            _lag_cell(row["lag"]),
            _age(row["last_fetch_ms"], now_ms),
            _age(row["last_caught_up_ms"], now_ms),
        )
        for row in (*quorum["voters"], *quorum["observers"])
    ]
    columns = ["NODE", "ROLE", "ENDPOINTS", "DIRECTORY", "LOG END", "LAG", "LAST FETCH", "CAUGHT UP"]
    print_table(columns, rows, title=title)


def _lag_cell(lag: int | None) -> Cell:
    if lag is None:
        return Styled("unknown", "red")
    return Styled(str(lag), "yellow" if lag >= _LAG_HIGH else "")


def _age(timestamp_ms: TimestampMs | None, now_ms: TimestampMs) -> Cell:
    # The leader's clock may be ahead of this one.
    return None if timestamp_ms is None else f"{max(0, now_ms - timestamp_ms) / 1000:.1f} s ago"


async def check_quorum(admin: Admin, *, wait_s: float) -> tuple[Quorum, list[str]]:
    """Compare the quorum with a later state of it, up to `wait_s`; return the last state and what is wrong with it."""
    first = await admin.describe_quorum()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        await asyncio.sleep(_PAUSE_S)
        later = await admin.describe_quorum()
        problems = quorum_problems(first, later)
        if not problems or loop.time() >= deadline:
            return later, problems


def quorum_problems(first: Quorum, later: Quorum) -> list[str]:
    """Return why the quorum does not work, or a voter is not part of it; empty if all is well.

    Metadata must be committed: the high watermark grew, or nothing waits to be committed. Each voter must have
    everything that the leader had when `first` was requested, and must have fetched since.
    """
    problems = []
    if later.leader_id < 0:
        problems.append("the quorum has no leader")
    if later.high_watermark <= first.high_watermark and later.high_watermark < later.log_end_offset:
        waiting = later.log_end_offset - later.high_watermark
        problems.append(f"the high watermark stays at {later.high_watermark}, and {waiting} records wait for it")
    before = {(voter.node_id, voter.directory_id): voter.last_fetch_ms for voter in first.voters}
    for voter in later.voters:
        if voter.node_id == later.leader_id:
            continue
        if voter.log_end_offset < first.log_end_offset:
            lag = later.lag(voter)
            problems.append(f"voter {voter.node_id} is {'unknown to the leader' if lag is None else f'{lag} behind'}")
        elif voter.last_fetch_ms is not None and voter.last_fetch_ms == before.get((voter.node_id, voter.directory_id)):
            problems.append(f"voter {voter.node_id} has stopped fetching")
    return problems
