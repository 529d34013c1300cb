"""`rookery perf`: measure how fast the client produces to and consumes from a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.client_configs import consumer_config, producer_config
from rookery.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    ClientSettings,
    Timeout,
)

if TYPE_CHECKING:
    from rookery.cli.perf_loads import Measured

app = App(help="Measure the throughput and latency of producing and consuming.")

_BAR_WIDTH = 40

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Columns = Annotated[bool, typer.Option("--columns", help="Use the column API: whole batches as Arrow columns.")]


@app.command(
    epilog="Examples:"
    "\n\nrookery perf produce orders --records 1000000 --size 100"
    "\n\nrookery perf produce orders --rate 5000 --records 50000 --set acks=1 --set compression.type=lz4"
)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)],
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="The number of records to send.")] = 1_000_000,
    size: Annotated[int, typer.Option("--size", "-s", min=1, metavar="BYTES", help="The size of each value.")] = 100,
    payload_file: Annotated[
        Path | None,
        typer.Option(
            "--payload-file", exists=True, dir_okay=False, help="Send the lines of this file in turn instead."
        ),
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", "-r", min=1, help="Records per second. Default: as fast as possible.")
    ] = None,
    columns: Columns = False,
    settings: ClientSettings = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send records and measure the throughput and the time until each is acknowledged."""
    from rookery.cli.perf_loads import produce_columns, produce_records, values_of

    if columns and rate is not None:
        raise typer.BadParameter("cannot be combined with --columns", param_hint="--rate")
    config = producer_config(bootstrap_server, timeout_s, settings)
    values = values_of(size, payload_file)
    if columns:
        _compile_columns()
        _report(produce_columns(config, topic, values, records), as_json=as_json, durations="acknowledged after")
    else:
        _report(produce_records(config, topic, values, records, rate), as_json=as_json, durations="acknowledged after")


@app.command(
    epilog="Examples:"
    "\n\nrookery perf consume orders"
    "\n\nrookery perf consume orders --records 1000000 --columns --set fetch.min.bytes=100000"
)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)],
    records: Annotated[
        int | None,
        typer.Option("--records", "-n", min=1, help="Stop after this many; without it, at the end of the topic."),
    ] = None,
    columns: Columns = False,
    settings: ClientSettings = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Read a topic from its beginning and measure the throughput and the duration of polls."""
    from rookery.cli.perf_loads import consume_topic

    if columns:
        _compile_columns()
    config = consumer_config(bootstrap_server, timeout_s, settings)
    _report(consume_topic(config, topic, records, columns=columns), as_json=as_json, durations="polls took")


def _compile_columns() -> None:
    """Compile the code for columns before the measurement: it takes seconds, once per machine."""
    from rookery.cli.progress import working
    from rookery.client import arrow

    with working("compiling the code for columns (once per machine)"):
        arrow.load()


def _report(measured: "Measured", *, as_json: bool, durations: str) -> None:
    from rookery.cli.output import print_json

    if as_json:
        print_json(measured.as_json())
        return
    typer.echo(
        f"{measured.records:,} records, {measured.size_bytes / 1e6:,.1f} MB in {measured.elapsed_s:.2f} s: "
        f"{measured.records_per_s:,.0f} records/s, {measured.megabytes_per_s:,.1f} MB/s"
    )
    histogram = measured.durations
    if not histogram.count:
        return
    figures = "  ".join(f"{name} {value:.2f}" for name, value in histogram.summary().items())
    typer.echo(f"{durations}, ms: {figures}")
    bars = histogram.bars()
    widest = max(bar.count for bar in bars)
    for bar in bars:
        line = "█" * max(round(bar.count / widest * _BAR_WIDTH), 1 if bar.count else 0)
        typer.echo(f"{bar.from_ms:>9g} - {bar.to_ms:<7g} {bar.count / histogram.count:>6.1%} {line}".rstrip())
