"""`rookery plan`: how many partitions, brokers, disks, network and memory a workload needs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout
from rookery.cli.quantities import parse_bytes, parse_network, parse_seconds

if TYPE_CHECKING:
    from rookery.cli.sizing import Sizing, Workload

EXAMPLES = (
    "Examples:"
    "\n\nrookery plan --rate 50MB/s --retention 7d --consumers 3"
    "\n\nrookery plan --records-per-second 20000 --record-size 800 --retention 3d --disk 2TB --network 10Gbit"
    "\n\nrookery plan --rate 50MB/s --measure --topic orders       (p and c from a short run)"
)

Rate = Annotated[
    str | None, typer.Option("--rate", metavar="RATE", help="What producers send at the peak, compressed: 50MB/s.")
]
RecordsPerSecond = Annotated[
    float | None, typer.Option("--records-per-second", metavar="N", help="Instead of --rate, with --record-size.")
]
RecordSize = Annotated[int, typer.Option("--record-size", metavar="BYTES", min=1, help="The size of a record.")]
Average = Annotated[
    str | None, typer.Option("--average-rate", metavar="RATE", help="The average, for storage. Default: the peak.")
]
Retention = Annotated[str, typer.Option("--retention", metavar="TIME", help="How long records are kept: 7d, 36h.")]
Replication = Annotated[int, typer.Option("--replication", "-r", min=1, help="The number of replicas.")]
Consumers = Annotated[int, typer.Option("--consumers", min=0, help="How many groups read everything.")]
GroupSize = Annotated[int, typer.Option("--group-size", min=1, help="The members of the largest group.")]
PartitionRate = Annotated[
    str | None, typer.Option("--partition-rate", metavar="RATE", help="What one partition takes. Default: 10MB/s.")
]
ConsumerRate = Annotated[
    str | None, typer.Option("--consumer-rate", metavar="RATE", help="What one consumer processes. Default: 10MB/s.")
]
Measure = Annotated[
    bool, typer.Option("--measure", help="Take both rates from a short run against the cluster, in a topic of its own.")
]
Disk = Annotated[str, typer.Option("--disk", metavar="SIZE", help="The disk of a broker.")]
Network = Annotated[str, typer.Option("--network", metavar="RATE", help="The network of a broker: 10Gbit.")]
Headroom = Annotated[float, typer.Option("--headroom", help="The part of disk and network to leave free.")]
Survive = Annotated[
    int | None,
    typer.Option("--survive", min=0, help="How many brokers may be missing. Default: 1; 0 with one replica."),
]
Lag = Annotated[str, typer.Option("--lag", metavar="TIME", help="How far the slowest group is usually behind.")]
Topic = Annotated[str, typer.Option("--topic", "-t", help="The topic's name in the printed command.")]


def plan(
    rate: Rate = None,
    records_per_second: RecordsPerSecond = None,
    record_size: RecordSize = 1000,
    average_rate: Average = None,
    retention: Retention = "7d",
    replication: Replication = 3,
    consumers: Consumers = 1,
    group_size: GroupSize = 1,
    partition_rate: PartitionRate = None,
    consumer_rate: ConsumerRate = None,
    measure: Measure = False,
    disk: Disk = "1TB",
    network: Network = "1Gbit",
    headroom: Headroom = 0.3,
    survive: Survive = None,
    lag: Lag = "30s",
    topic: Topic = "my-topic",
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Size a topic and its cluster: partitions, brokers, disks, network, memory; with the reason for each number."""
    from rookery.cli.output import print_json
    from rookery.cli.sizing import PARTITION_BYTES_S, Workload, size

    if measure and (partition_rate or consumer_rate):
        raise typer.BadParameter("--measure finds --partition-rate and --consumer-rate: give one or the other")
    workload = Workload(
        rate_bytes_s=_rate(rate, records_per_second, record_size),
        average_bytes_s=None if average_rate is None else parse_bytes(average_rate, "--average-rate"),
        retention_s=parse_seconds(retention, "--retention"),
        replication=replication,
        read_by=consumers,
        group_size=group_size,
        partition_bytes_s=parse_bytes(partition_rate, "--partition-rate") if partition_rate else PARTITION_BYTES_S,
        consumer_bytes_s=parse_bytes(consumer_rate, "--consumer-rate") if consumer_rate else PARTITION_BYTES_S,
        disk_bytes=parse_bytes(disk, "--disk"),
        network_bytes_s=parse_network(network, "--network"),
        headroom=headroom,
        survives=min(1, replication - 1) if survive is None else survive,
        lag_s=parse_seconds(lag, "--lag"),
    )
    if measure:
        workload = _measured(workload, bootstrap_server, timeout_s, record_size)
    sizing = size(workload)
    command = create_command(sizing, workload, topic)
    if as_json:
        print_json(_as_json(sizing, command))
    else:
        _print(sizing, command)


def create_command(sizing: "Sizing", workload: "Workload", topic: str) -> str:
    return (
        f"rookery topics create {topic} --partitions {sizing.partitions} --replication-factor {workload.replication} "
        f"--set retention.ms={round(workload.retention_s * 1000)} "
        f"--set min.insync.replicas={sizing.min_insync_replicas}"
    )


def _rate(rate: str | None, records_per_second: float | None, record_size: int) -> float:
    if (rate is None) == (records_per_second is None):
        raise typer.BadParameter("give the load: either --rate, or --records-per-second with --record-size")
    return parse_bytes(rate, "--rate") if rate is not None else (records_per_second or 0) * record_size


def _measured(workload: "Workload", bootstrap_server: str, timeout_s: float, record_size: int) -> "Workload":
    from dataclasses import replace

    from rookery.cli.plan_measurement import measure
    from rookery.cli.sizing import check_workload

    check_workload(workload)
    found = measure(bootstrap_server, timeout_s, replication=workload.replication, record_bytes=record_size)
    return replace(
        workload,
        partition_bytes_s=found.produced_bytes_s,
        consumer_bytes_s=found.consumed_bytes_s,
        is_measured=True,
    )


def _as_json(sizing: "Sizing", command: str) -> dict[str, Any]:
    return {
        "partitions": sizing.partitions,
        "brokers": sizing.brokers,
        "min_insync_replicas": sizing.min_insync_replicas,
        "bottleneck": sizing.bottleneck,
        "lines": [{"key": line.key, "value": line.value, "reason": line.reason} for line in sizing.lines],
        "commands": [command],
    }


def _print(sizing: "Sizing", command: str) -> None:
    from rookery.cli.output import Styled, print_table

    rows = [(line.name, Styled(line.text, "bold"), line.reason) for line in sizing.lines]
    print_table(["WHAT", "NEEDED", "BECAUSE"], rows)
    typer.echo(f"\nThe number of brokers is decided by: {sizing.bottleneck}\n\n{command}")
