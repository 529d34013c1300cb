"""`rookery pipelines`: init, validate, run, list, status, stop."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli.app import App
from rookery.cli.errors import extra_required
from rookery.cli.option_values import parse_pairs
from rookery.cli.options import Json

if TYPE_CHECKING:
    from rookery.pipelines.application import RunOptions
    from rookery.pipelines.states import StateDirectory

app = App(help="Check, run and watch data pipelines on Spark, described by a YAML file.")

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The pipeline's YAML file.")
]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="The Spark master: local[*], local[2], spark://host:7077, ...")
]
SparkSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="spark.KEY=VALUE", help="A Spark setting. Repeatable.")
]
DEFAULT_MASTER = "local[*]"


class Template(StrEnum):
    """The templates of `init`."""

    stream = "stream"
    etl = "etl"
    elt = "elt"


@app.command(
    "init", epilog="Examples:\n\nrookery pipelines init page-views\n\nrookery pipelines init orders --template etl"
)
@extra_required("spark")
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name. The file is NAME.yaml.")],
    template: Annotated[
        Template,
        typer.Option("--template", "-t", help="stream: windows; etl: clean, then load; elt: load raw, then SQL."),
    ] = Template.stream,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIR", file_okay=False, help="The directory of the file.")
    ] = Path(),
) -> None:
    """Write a commented pipeline to start from. It runs unchanged with `rookery up`."""
    from rookery.cli.pipeline_commands import write_template

    write_template(name, template.value, directory)


@app.command(
    "validate",
    epilog="Examples:\n\nrookery pipelines validate page-views.yaml"
    "\n\nrookery pipelines validate page-views.yaml --offline --json",
)
@extra_required("spark")
def validate(
    file: PipelineFile,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check the file alone, without Spark and the platform.")
    ] = False,
    as_json: Json = False,
    master: Master = DEFAULT_MASTER,
    settings: SparkSettings = None,
) -> None:
    """Check a pipeline's keys, topics, columns, schemas and output modes. Prints all problems with their lines."""
    from rookery.cli.pipeline_commands import print_validation

    print_validation(file, _options(master, settings), offline=offline, as_json=as_json)


@app.command(
    "run",
    epilog="Examples:\n\nrookery pipelines run page-views.yaml\n\nrookery pipelines run page-views.yaml --available-now"
    "\n\nrookery pipelines run page-views.yaml --master spark://host:7077 --metrics-port 9400"
    " --set spark.executor.memory=4g",
)
@extra_required("spark")
def run(
    file: PipelineFile,
    master: Master = DEFAULT_MASTER,
    settings: SparkSettings = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve Prometheus metrics on this port; 0: any free port.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", metavar="HOST", help="The address on which metrics are served.")
    ] = "127.0.0.1",
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Process the available records, then end, whatever trigger the file has."),
    ] = False,
) -> None:
    """Run a pipeline and show its progress. Ctrl-C or SIGTERM stops it after the running batches, or 120 s."""
    from dataclasses import replace

    from rookery.cli.output import note
    from rookery.pipelines import application

    options = _options(master, settings)
    application.run(
        file,
        replace(options, metrics_host=metrics_host, metrics_port=metrics_port, available_now=available_now),
        say=note,
    )


@app.command("list")
@extra_required("spark")
def list_(as_json: Json = False) -> None:
    """List the pipelines that are running on this machine."""
    from rookery.cli.pipeline_commands import print_list

    print_list(_states(), as_json=as_json)


@app.command("status", epilog="Example: rookery pipelines status page-views --json")
@extra_required("spark")
def status(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")], as_json: Json = False
) -> None:
    """Show the flows of a running pipeline: rows, batches, lag, dead letters."""
    from rookery.cli.pipeline_commands import print_status

    print_status(_states(), name, as_json=as_json)


@app.command("stop", epilog="Example: rookery pipelines stop page-views")
@extra_required("spark")
def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")],
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait until it has stopped.")
    ] = 150.0,
) -> None:
    """Stop a running pipeline after its running batches, or 120 s, and wait until it has stopped."""
    from rookery.cli.pipeline_commands import stop_pipeline

    stop_pipeline(_states(), name, timeout_s=timeout_s)


def _options(master: str, settings: list[str] | None) -> "RunOptions":
    from rookery.pipelines.application import RunOptions

    return RunOptions(master=master, settings=parse_pairs(settings or (), "--set"))


def _states() -> "StateDirectory":
    import os

    from rookery.pipelines.states import StateDirectory, default_directory

    return StateDirectory(default_directory(os.environ))
