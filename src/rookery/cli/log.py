"""`rookery log`: show and repair the files of a broker."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rookery.cli.app import App

app = App(help="Show and repair the files of a broker.")


@app.callback()
def log() -> None:
    """Show the files of a broker, which may be running, and repair those of a stopped one."""


@app.command(
    "dump",
    epilog="Examples:\n\nrookery log dump data/orders-0\n\nrookery log dump data/orders-0/*.log --records --json",
)
def dump(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", exists=True, help="Files, or partition directories.")
    ],
    with_records: Annotated[bool, typer.Option("--records", "-r", help="Also show the records of each batch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each item as one line of JSON.")] = False,
) -> None:
    """Show segments, indexes, aborted transactions, producer snapshots and checkpoints, and verify checksums.

    Exits with 1 if anything is damaged.
    """
    from rookery.cli.dump import dump_file, files_in
    from rookery.cli.errors import CommandError
    from rookery.cli.output import print_json_line

    files = [file for path in paths for file in files_in(path)]
    problems = 0
    for file in files:
        if not as_json:
            typer.secho(str(file), bold=True)
        for item in dump_file(file, with_records=with_records):
            problems += "problem" in item
            if as_json:
                print_json_line({"file": str(file), **item})
            else:
                typer.secho(f"  {_line(item)}", fg="red" if "problem" in item else None)
    if not files:
        raise CommandError(f"no files to show in {', '.join(map(str, paths))}")
    if problems:
        raise CommandError(f"{problems} of the items above are damaged")


@app.command(
    "repair",
    epilog="Examples:\n\nrookery log repair data"
    "\n\nrookery log repair data --partition orders-0 --execute"
    "\n\nrookery log repair /disk1/data /disk2/data --json",
)
def repair(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DATA_DIR...", exists=True, file_okay=False, help="All log directories of a broker."),
    ],
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", "-p", help="Only this partition, such as orders-0. Repeatable.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Repair; without it, only show what would be done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check all logs of a stopped broker, and show the damage, how it can be repaired, and what would be lost.

    With --execute, repair them. A copy of every changed file is kept in a directory next to the logs. Exits with 1 if
    there is damage that was not repaired.
    """
    from rookery.cli.repair import repair_logs

    repair_logs(directories, partitions or [], execute=execute, as_json=as_json)


def _line(item: dict[str, Any]) -> str:
    match item["kind"]:
        case "batch":
            return _batch_line(item)
        case "record":
            return "  " + _fields(item, skip=("kind",))
        case "text":
            return str(item["line"])
        case "damage":
            return f"damaged: {item['problem']}"
        case "checkpoint":
            return f"{item['topic']}-{item['partition']} {item['offset']}"
        case kind:
            return f"{kind}: {_fields(item, skip=('kind',))}"


def _batch_line(batch: dict[str, Any]) -> str:
    flags = [name for name in ("transactional", "control") if batch[name]]
    text = (
        f"batch {batch['base_offset']}..{batch['last_offset']}: {batch['records']} records, "
        f"position {batch['position']}, {batch['size_bytes']} bytes, {batch['compression']}, "
        f"epoch {batch['leader_epoch']}, {batch['timestamp_type']} up to {batch['max_timestamp_ms']}"
    )
    if batch["producer_id"] >= 0:
        sequences = f"{batch['base_sequence']}..{batch['last_sequence']}"
        text += f", producer {batch['producer_id']}/{batch['producer_epoch']} sequence {sequences}"
    text += "".join(f", {flag}" for flag in flags)
    return f"{text}, crc {batch['crc']:#010x} " + (f"BAD: {batch['problem']}" if "problem" in batch else "ok")


def _fields(item: dict[str, Any], *, skip: tuple[str, ...]) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in item.items() if key not in skip)


def _value(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | str) else str(value).lower()
