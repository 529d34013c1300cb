"""The work and the output of the `rookery pipelines` commands; the module `pipelines` declares them."""

import sys
from dataclasses import asdict
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import typer

from rookery.base.clock import SystemClock
from rookery.cli.errors import FAILED, CommandError
from rookery.cli.output import Cell, Styled, note, print_json, print_table

if TYPE_CHECKING:
    from rookery.pipelines.application import RunOptions
    from rookery.pipelines.progress import Figures
    from rookery.pipelines.states import PipelineStatus, RunningPipeline, StateDirectory

_TEMPLATES = files("rookery.pipelines") / "template_files"
_NAME_PLACEHOLDER = "PIPELINE_NAME"
_POLL_S = 0.1
_MS_PER_S = 1000
_STATE_STYLES = {"killed": "red", "failing": "yellow"}


def write_template(name: str, template: str, directory: Path) -> None:
    from rookery.pipelines.parser import PIPELINE_NAME, PIPELINE_NAME_FORM

    if not PIPELINE_NAME.fullmatch(name):
        raise CommandError(f"the name {name} {PIPELINE_NAME_FORM}")
    path = directory / f"{name}.yaml"
    if path.exists():
        raise CommandError(f"the file {path} already exists: choose another name or directory")
    text = (_TEMPLATES / f"{template}.yaml").read_text().replace(_NAME_PLACEHOLDER, name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None
    typer.echo(f"wrote {path}")
    note(f"With `rookery up` running: rookery pipelines validate {path}; rookery pipelines run {path}")


def print_validation(file: Path, options: "RunOptions", *, offline: bool, as_json: bool) -> None:
    from rookery.pipelines.application import validate
    from rookery.pipelines.spec import PipelineError

    try:
        pipeline = validate(file, options, offline=offline)
    except PipelineError as error:
        rows = [
            {"file": problem.location.file, "line": problem.location.line, "message": problem.message}
            for problem in error.problems
        ]
        if as_json:
            print_json({"valid": False, "problems": rows})
        else:
            typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from None
    if as_json:
        print_json({"valid": True, "problems": []})
    else:
        flows = ", ".join(sink.name for sink in pipeline.sinks)
        typer.echo(f"{file} is valid: pipeline {pipeline.name} with the flows {flows}")


def print_list(states: "StateDirectory", *, as_json: bool) -> None:
    found = states.list()
    if as_json:
        print_json([_as_json(each) for each in found])
        return
    rows: list[list[Cell]] = [
        [
            each.pipeline.name,
            _state_cell(each),
            each.pipeline.pid if each.alive else None,
            _time_text(each.pipeline.started_ms),
            len(each.pipeline.flows),
            _records_behind(each),
            each.pipeline.file,
        ]
        for each in found
    ]
    print_table(("PIPELINE", "STATE", "PID", "STARTED", "FLOWS", "LAG", "FILE"), rows)


def print_status(states: "StateDirectory", name: str, *, as_json: bool) -> None:
    found = _find(states, name)
    if as_json:
        print_json(_as_json(found))
        return
    pipeline = found.pipeline
    served = f", metrics on {pipeline.metrics_address}" if pipeline.metrics_address else ""
    if found.alive:
        since = f"process {pipeline.pid} since {_time_text(pipeline.started_ms)}"
    else:
        since = f"process {pipeline.pid} is gone, last seen {_time_text(pipeline.updated_ms)}"
    title = f"{name}: {_state(found)}, {since}, {pipeline.file}{served if found.alive else ''}"
    if sys.stdout.isatty():
        _print_flows(title, pipeline)
        return
    rows = [_flow_row(each) for each in pipeline.flows]
    columns = ("FLOW", "STATE", "BATCH", "ROWS IN", "ROWS OUT", "IN/S", "OUT/S", "BATCH MS", "LAG", "BEHIND S")
    print_table((*columns, "DEAD LETTERS", "RESTARTS"), rows, title=title)
    for each in pipeline.flows:
        if each.error:
            typer.echo(f"{each.flow}: {each.error}")


def _print_flows(title: str, pipeline: "RunningPipeline") -> None:
    """Print all flows in the table of `run`, which fits the width of the terminal."""
    from rich.console import Console

    from rookery.pipelines.display import FlowTable

    typer.echo(title)
    Console().print(FlowTable(pipeline.name, pipeline.flows, is_live=False))


def stop_pipeline(states: "StateDirectory", name: str, *, timeout_s: float) -> None:
    found = _find(states, name)
    if not states.signal_stop(name):
        states.remove_stale(name)
        typer.echo(f"{name} is not running: its process {found.pipeline.pid} was killed")
        return
    clock = SystemClock()
    deadline_s = clock.monotonic() + timeout_s
    while (again := states.find(name)) is not None and again.alive:
        if clock.monotonic() > deadline_s:
            raise CommandError(
                f"{name} has not stopped within {timeout_s:g} s: process {found.pipeline.pid} is still running"
            )
        Event().wait(_POLL_S)
    typer.echo(f"stopped {name}")


def _find(states: "StateDirectory", name: str) -> "PipelineStatus":
    found = states.find(name)
    if found is None:
        running = ", ".join(each.pipeline.name for each in states.list()) or "none"
        raise CommandError(f"no pipeline {name} is running on this machine; running pipelines: {running}")
    return found


def _as_json(found: "PipelineStatus") -> dict[str, object]:
    pipeline = found.pipeline
    flows = [{**asdict(each), "lag_records": each.lag_records} for each in pipeline.flows]
    own = {"state": _state(found), "alive": found.alive, "lag_records": _records_behind(found)}
    return {**pipeline.to_json(), "flows": flows, **own}


def _state(found: "PipelineStatus") -> str:
    if not found.alive:
        return "killed"
    states = {each.state for each in found.pipeline.flows}
    if states & {"restarting", "failed"}:
        return "failing"
    return "running" if "running" in states else "starting"


def _state_cell(found: "PipelineStatus") -> Cell:
    state = _state(found)
    return Styled(state, _STATE_STYLES[state]) if state in _STATE_STYLES else state


def _records_behind(found: "PipelineStatus") -> int | None:
    from rookery.pipelines.progress import records_behind

    return records_behind(each.lags for each in found.pipeline.flows)


def _flow_row(figures: "Figures") -> list[Cell]:
    return [
        figures.flow,
        figures.state,
        figures.batch_id if figures.batches else None,
        figures.rows_in,
        figures.rows_out,
        *(None if figures.has_ended else round(rate) for rate in (figures.rows_in_per_s, figures.rows_out_per_s)),
        figures.batch_ms,
        figures.lag_records,
        None if figures.lag_s is None else f"{figures.lag_s:.1f}",
        figures.dead_letters,
        figures.restarts,
    ]


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / _MS_PER_S).astimezone().isoformat(" ", "seconds")
