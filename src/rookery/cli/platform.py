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
SECURE_REGISTRY = "https://127.0.0.1:8081"
BROKERS_MAX = 9


class UpOptions(NamedTuple):
    data_dir: Path = Path(DATA_DIR)
    listen: str = BROKER
    registry: str = REGISTRY
    settings: Sequence[str] = ()
    brokers: int = 1
    secure: bool = False


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
    if options.secure:
        _run_secured(options)
        return
    _check_not_secured(options.data_dir)
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


def _run_secured(options: UpOptions) -> None:
    from rookery.cli.errors import extra_required

    with extra_required("security"):
        from rookery.cli.secured_platform import prepare
    registry = SECURE_REGISTRY if options.registry == REGISTRY else options.registry
    options = options._replace(registry=registry)
    platform = prepare(options.data_dir, options.brokers, options.listen, registry)
    if options.brokers > 1:
        from rookery.cli.local_cluster import run_members

        run_members(
            platform.members,
            options.settings,
            announce=lambda nodes: _announce_cluster(nodes, options, platform.client_file),
        )
        return
    config = platform.members[0].directory / "server.properties"
    run_broker(
        StartOptions(config, options.settings, None, None),
        announce=lambda address: _announce(address, options, platform.client_file),
        log_level="warning",
    )


def _check_not_secured(data_dir: Path) -> None:
    """Raise ConfigError for the directory of a secured platform: its data must not be served without login."""
    if (data_dir / "ca" / "ca.key").exists():
        from rookery.base.errors import ConfigError

        raise ConfigError(f"{data_dir} has a secured platform: add --secure, or name another --data-dir")


def _check_single(data_dir: Path) -> None:
    if (data_dir / "node-1").is_dir():
        from rookery.node.local_cluster import check_count

        check_count(data_dir, 1)


def _announce(address: str, options: UpOptions, client_file: Path | None = None) -> None:
    broker = f"broker            {address}"
    _print_banner("Rookery is running. Ctrl-C stops it; its data is in", broker, address, options, client_file)


def _announce_cluster(nodes: "Sequence[RunningNode]", options: UpOptions, client_file: Path | None = None) -> None:
    lines = [
        f"{f'broker {node.node_id}':18}{node.address:{len(nodes[0].address)}}  process {node.pid}" for node in nodes
    ]
    title = f"Rookery is running with {len(nodes)} brokers. Ctrl-C stops them; their data is in"
    _print_banner(title, "\n  ".join(lines), nodes[0].address, options, client_file)


def _print_banner(title: str, brokers: str, address: str, options: UpOptions, client_file: Path | None) -> None:
    text = f"""{title} {options.data_dir}.

  {brokers}
  schema registry   {options.registry}

"""
    text += _next_steps(address, options) if client_file is None else _secured_steps(client_file)
    sys.stdout.write(text)
    sys.stdout.flush()


def _next_steps(address: str, options: UpOptions) -> str:
    broker_option = "" if address == BROKER else f" -b {address}"
    registry_option = "" if options.registry == REGISTRY else f" -r {options.registry}"
    return f"""\
The address of a broker is the bootstrap.servers of any Kafka client, that of the registry the schema.registry.url of
Confluent's serializers and ours. Try, in another terminal:

  echo hello | rookery produce greetings{broker_option}
  rookery consume greetings --from beginning{broker_option}
  rookery cluster describe{broker_option}
  rookery schemas list{registry_option}
"""


def _secured_steps(client_file: Path) -> str:
    from shlex import quote

    return f"""\
Clients need encryption and a login. The settings of the user admin, which may do everything, are in
{client_file.parent}:
  {client_file.name:32}for Rookery and Java
  {"admin.librdkafka.properties":32}for librdkafka
  {"admin.registry.properties":32}for clients of the schema registry
Try, in another terminal:

  export ROOKERY_COMMAND_CONFIG={quote(str(client_file))}
  echo hello | rookery produce greetings
  rookery consume greetings --from beginning
  rookery schemas list
  rookery keys create order-service --produce greetings
"""
