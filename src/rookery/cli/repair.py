"""Shows and executes the repair of a stopped broker's log directories, for `rookery log repair`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from rookery.base.clock import SystemClock
from rookery.base.files import OsFiles
from rookery.cli.errors import CommandError
from rookery.cli.output import print_json_line
from rookery.node.repair import Repair, parse_partition, plan_repair

_REMEDIES = {
    "mend": "the changed byte is corrected, nothing is lost",
    "remove": "the bad bytes are removed",
    "fill": "empty records replace the lost ones",
    "accept": "this cannot be repaired, the loss is accepted",
    "restart": "the next start truncates it: it was never synced",
}


def repair_logs(directories: Sequence[Path], partitions: Sequence[str], *, execute: bool, as_json: bool) -> None:
    repair = plan_repair(OsFiles(), directories, [parse_partition(name) for name in partitions])
    try:
        copies = repair.execute(SystemClock().now_ms()) if execute and repair.is_needed else []
        if as_json:
            print_json_line(_to_json(repair, copies, executed=execute))
        else:
            _show(repair, copies, executed=execute)
    finally:
        repair.close()
    if repair.is_needed and not execute:
        raise CommandError("damage was found, nothing was changed: add --execute to repair it")


def _to_json(repair: Repair, copies: Sequence[Path], *, executed: bool) -> dict[str, Any]:
    return {
        "executed": executed and repair.is_needed,
        "damaged": repair.is_needed,
        "lost_offsets": _lost(repair),
        "logs": [log.to_json() for log in repair.logs],
        "topics_without_metadata": repair.unknown_topics,
        "copies": [str(path) for path in copies],
    }


def _lost(repair: Repair) -> int:
    return sum(problem.lost_offsets for log in repair.logs for problem in log.plan.problems)


def _show(repair: Repair, copies: Sequence[Path], *, executed: bool) -> None:
    for log in repair.logs:
        typer.secho(str(log.log_directory / str(log.partition)), bold=True)
        for problem in log.plan.problems:
            typer.echo(f"  {problem.path.name}, byte {problem.position}: {problem.reason}")
            typer.echo(f"    {_REMEDIES[problem.remedy]}")
            if problem.lost_offsets:
                last = problem.end_offset - 1
                typer.secho(f"    lost: offsets {problem.offset} to {last}, at most {problem.lost_offsets}", fg="red")
    for topic in repair.unknown_topics:
        typer.secho(f"topic {topic}: its records exist, but the metadata log does not have the topic", fg="red")
    for path in copies:
        typer.echo(f"the original files are in {path}")
    if not repair.is_needed:
        typer.echo("no damage was found")
    elif executed:
        typer.echo(f"repaired; at most {_lost(repair)} offsets are lost")
