"""The work of `rookery up --brokers N`: a cluster of child processes, each one a `rookery start`.

Each node has a directory with its server.properties and its data. Its output is shown with its name in front of each
line. The first Ctrl-C or SIGTERM stops all nodes gracefully, a second one kills them. A node that ends by itself is
reported and not started again: the others go on, which is what a cluster is for.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from rookery.base.clock import SystemClock
from rookery.base.errors import ConfigError, StartupError
from rookery.base.files import OsFiles
from rookery.base.server_process import run_process
from rookery.base.types import NodeId
from rookery.node.local_cluster import Member, check_count, format_members, make_members, member_settings
from rookery.node.settings import parse_listener

_READY: Final = "ready on "
_COLOURS: Final = (36, 33, 35, 32, 34, 31)
_STOP_SECONDS_MAX: Final = 60
# A line of the log may be longer than asyncio's limit of 64 KiB, for example with a traceback.
_LINE_BYTES_MAX: Final = 1 << 24


class ClusterOptions(NamedTuple):
    brokers: int
    data_dir: Path
    listen: str
    registry: str
    settings: Sequence[str]


class RunningNode(NamedTuple):
    node_id: NodeId
    address: str
    pid: int


# Called with all nodes when they serve.
Announce: TypeAlias = Callable[[Sequence[RunningNode]], None]


def run_cluster(options: ClusterOptions, *, announce: Announce) -> None:
    """Run the cluster in the foreground until SIGTERM or Ctrl-C. StartupError if a node does not start."""
    run_members(_prepare(options), options.settings, announce=announce)


def run_members(members: Sequence[Member], settings: Sequence[str], *, announce: Announce) -> None:
    """Run nodes whose directories have a server.properties and are formatted, as `run_cluster` does."""
    run_process(_run(members, settings, announce))


def _prepare(options: ClusterOptions) -> list[Member]:
    """Write each node's server.properties, and format the directories that are new."""
    check_count(options.data_dir, options.brokers)
    first = parse_listener("--listen", f"PLAINTEXT://{options.listen}")
    if first.port == 0 or first.port + 2 * options.brokers > 65_536:
        raise ConfigError(f"--listen: {options.brokers} brokers need {2 * options.brokers} ports from {first.port} on")
    ports = [(first.port + 2 * index, first.port + 2 * index + 1) for index in range(options.brokers)]
    members = make_members(options.data_dir.absolute(), first.host, ports)
    settings = [member_settings(member, members) for member in members]
    settings[0]["schema.registry.listeners"] = options.registry
    format_members(OsFiles(), members, settings, now_ms=SystemClock().now_ms())
    for member, values in zip(members, settings, strict=True):
        lines = "".join(f"{key}={value}\n" for key, value in values.items())
        _config_path(member).write_text(f"# Written by `rookery up` at each start.\n{lines}", encoding="utf-8")
    return members


def _config_path(member: Member) -> Path:
    return member.directory / "server.properties"


class _Node:
    """A child process. `address` is set when it serves, `returncode` when it has ended and its output was shown."""

    def __init__(self, member: Member, process: Process) -> None:
        self.node_id = member.node_id
        self.process = process
        self.address: str | None = None
        self.returncode: int | None = None
        self._config = _config_path(member)
        colour = _COLOURS[(member.node_id - 1) % len(_COLOURS)]
        name = f"node {member.node_id} |"
        self._prefix = f"\x1b[{colour}m{name}\x1b[0m " if sys.stdout.isatty() else f"{name} "

    @classmethod
    async def start(cls, member: Member, settings: Sequence[str]) -> "_Node":
        command = [sys.executable, "-m", "rookery.cli.main", "start", "--config", str(_config_path(member))]
        command += [argument for item in settings for argument in ("--set", item)]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env={"ROOKERY_LOG_LEVEL": "warning"} | os.environ,
            limit=_LINE_BYTES_MAX,
            # Ctrl-C in a terminal is sent to its whole process group: without this, a second one would interrupt the
            # graceful stop of the nodes.
            start_new_session=True,
        )
        return cls(member, process)

    async def follow(self, changed: asyncio.Event) -> None:
        """Show the node's output until it ends; set `changed` when it serves and when it has ended."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.decode("utf-8", "replace").rstrip("\n")
            if self.address is None and text.startswith(_READY):
                self.address = text.removeprefix(_READY)
                changed.set()
            else:
                _print(self._prefix + text)
        self.returncode = await self.process.wait()
        changed.set()

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def report_end(self) -> None:
        _print(
            f"node {self.node_id} has ended ({_describe(self.returncode)}); the others go on. Start it again with:\n"
            f"  rookery start --config {self._config}"
        )


async def _run(members: Sequence[Member], settings: Sequence[str], announce: Announce) -> None:
    signals, changed = _Signals(), asyncio.Event()
    nodes = [await _Node.start(member, settings) for member in members]
    following = [asyncio.ensure_future(node.follow(changed)) for node in nodes]
    try:
        await _serve(nodes, changed, signals, announce)
    finally:
        await _stop(nodes, following, signals)


async def _serve(nodes: Sequence[_Node], changed: asyncio.Event, signals: "_Signals", announce: Announce) -> None:
    """Return after a signal; StartupError if a node ends before all serve, or if all nodes have ended."""
    reported: set[NodeId] = set()
    is_announced = False
    while not await signals.arrived_before(changed):
        changed.clear()
        ended = [node for node in nodes if node.returncode is not None]
        if not is_announced and not ended and all(node.address is not None for node in nodes):
            is_announced = True
            announce([RunningNode(node.node_id, node.address or "", node.process.pid) for node in nodes])
        if ended and not is_announced:
            names = ", ".join(f"node {node.node_id}" for node in ended)
            raise StartupError(f"{names} did not start ({_describe(ended[0].returncode)}): see its lines above")
        for node in ended:
            if node.node_id not in reported:
                reported.add(node.node_id)
                node.report_end()
        if len(ended) == len(nodes):
            raise StartupError("all nodes have ended")


async def _stop(nodes: Sequence[_Node], following: Sequence["asyncio.Future[None]"], signals: "_Signals") -> None:
    signals.clear()
    for node in nodes:
        node.signal(signal.SIGTERM)
    again = asyncio.ensure_future(signals.wait())
    ends = asyncio.gather(*following)
    await asyncio.wait((ends, again), timeout=_STOP_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    for node in nodes:
        if node.returncode is None:
            node.signal(signal.SIGKILL)
    await ends


class _Signals:
    """SIGTERM and SIGINT of this process."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._arrived.set)

    async def wait(self) -> None:
        await self._arrived.wait()

    def clear(self) -> None:
        self._arrived.clear()

    async def arrived_before(self, other: asyncio.Event) -> bool:
        """Wait for a signal or for the other event; return whether there was a signal."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._arrived, other)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        return self._arrived.is_set()


def _describe(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"by {signal.Signals(-returncode).name}"
    return f"exit code {returncode}"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
