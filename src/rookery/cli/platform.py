"""The work of `rookery up`; does not import typer, for the reason given in `cli.broker`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rookery.cli.broker import StartOptions, plain_values, run_broker

if TYPE_CHECKING:
    from rookery.cli.local_cluster import RunningNode

DATA_DIR = "rookery-data"
BROKER = "127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8081"
BROKERS_MAX = 9


class UpOptions(NamedTuple):
    data_dir: Path = Path(DATA_DIR)
    listen: str = BROKER
    registry: str = REGISTRY
    settings: Sequence[str] = ()
    brokers: int = 1


def plain_up_options(arguments: Sequence[str]) -> UpOptions | None:
    """Parse the options if each is a full name with a value; None means that typer must parse them."""
    given = plain_values(arguments, ("--data-dir", "--listen", "--registry", "--set", "--brokers"))
    if given is None or any(Path(path).is_file() for path in given["--data-dir"]):
        return None
    brokers = (given["--brokers"] or ["1"])[-1]
    if brokers not in map(str, range(1, BROKERS_MAX + 1)):
        return None
    data_dir, listen, registry = (given[name][-1:] for name in ("--data-dir", "--listen", "--registry"))
    return UpOptions(
        data_dir=Path(*data_dir or [DATA_DIR]),
        listen=(listen or [BROKER])[0],
        registry=(registry or [REGISTRY])[0],
        settings=given["--set"],
        brokers=int(brokers),
    )


def run_platform(options: UpOptions) -> None:
    """Run brokers and registry in the foreground until SIGTERM or Ctrl-C."""
    if options.brokers > 1:
        from rookery.cli.local_cluster import ClusterOptions, run_cluster

        chosen = ClusterOptions(options.brokers, options.data_dir, options.listen, options.registry, options.settings)
        run_cluster(chosen, announce=lambda nodes: _announce_cluster(nodes, options))
        return
    _check_single(options.data_dir)
    settings = (f"schema.registry.listeners={options.registry}", *options.settings)
    run_broker(
        StartOptions(None, settings, options.data_dir, options.listen),
        announce=lambda address: _announce(address, options),
        log_level="warning",
    )


def _check_single(data_dir: Path) -> None:
    if (data_dir / "node-1").is_dir():
        from rookery.node.local_cluster import check_count

        check_count(data_dir, 1)


def _announce(address: str, options: UpOptions) -> None:
    broker = f"broker            {address}"
    _print_banner("Rookery is running. Ctrl-C stops it; its data is in", broker, address, options)


def _announce_cluster(nodes: "Sequence[RunningNode]", options: UpOptions) -> None:
    lines = [
        f"{f'broker {node.node_id}':18}{node.address:{len(nodes[0].address)}}  process {node.pid}" for node in nodes
    ]
    title = f"Rookery is running with {len(nodes)} brokers. Ctrl-C stops them; their data is in"
    _print_banner(title, "\n  ".join(lines), nodes[0].address, options)


def _print_banner(title: str, brokers: str, address: str, options: UpOptions) -> None:
    broker_option = "" if address == BROKER else f" -b {address}"
    registry_option = "" if options.registry == REGISTRY else f" -r {options.registry}"
    sys.stdout.write(
        f"""{title} {options.data_dir}.

  {brokers}
  schema registry   {options.registry}

The address of a broker is the bootstrap.servers of any Kafka client, that of the registry the schema.registry.url of
Confluent's serializers and ours. Try, in another terminal:

  echo hello | rookery produce greetings{broker_option}
  rookery consume greetings --from beginning{broker_option}
  rookery cluster describe{broker_option}
  rookery schemas list{registry_option}
"""
    )
    sys.stdout.flush()
