"""`EmbeddedCluster`: a real cluster for a test, whose members can be killed, paused and cut off from each other.

The members are the nodes of `node.local_cluster`: each one is a broker, and up to three (five of a larger cluster) are
also controllers. In threads they share the test's process, and their connections to each other go through `links`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from rookery.base.clock import SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId
from rookery.client.admin import Admin
from rookery.client.metadata import Partition
from rookery.node.local_cluster import Member, format_members, make_members, member_settings
from rookery.node.settings import Settings
from rookery.testing.embedded import DEFAULTS, Mode, check_options
from rookery.testing.faults import Faults
from rookery.testing.links import Link, Links
from rookery.testing.logs import routed_logs
from rookery.testing.managed import HOST, Managed, Runner, reserve_port
from rookery.testing.process import BrokerProcess
from rookery.testing.shifted_time import TimeShift
from rookery.testing.shortcuts import DEFAULT_TIMEOUT_S, Shortcuts, run_in_thread
from rookery.testing.thread import BrokerThread, UnsyncedFiles
from rookery.testing.users import scram_credentials

_PAUSE_S: Final = 0.05
_ANSWER_S: Final = 2.0
_REPLICAS_MAX: Final = 3
_FIXED_SETTINGS: Final = {
    "advertised.listeners": "the nodes use free ports of the loopback",
    "controller.quorum.voters": "the first nodes are the voters",
    "node.id": "the nodes are numbered from 1 on",
    "process.roles": "the first nodes are controllers, and all are brokers",
}
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class EmbeddedCluster(Managed, Shortcuts):
    """A context manager, for `with` and `async with`; or call `start` and `stop`.

    The nodes have the ids 1 to `brokers`. `settings` are those of every broker. `mode` "thread" runs the nodes in this
    process, which allows cuts of the network and faults; "process" runs each as another process. The data is stored in
    `data_dir`, or in a temporary directory that is deleted with the cluster. New topics have up to three replicas.
    `security_protocol` is the name of the brokers' listener, with its keys in `settings`; `client_settings` are for the
    clients of the shortcuts. `users` are the first users of SCRAM, with their passwords. With `metrics`, each node
    serves its metrics at `metrics_url`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        mode: Mode = "thread",
        data_dir: Path | str | None = None,
        schema_registry: bool = False,
        security_protocol: str = "PLAINTEXT",
        client_settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        metrics: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError("a cluster has at least one broker")
        check_options(settings or {}, mode, _FIXED_SETTINGS)
        replicas = str(min(brokers, _REPLICAS_MAX))
        defaults = {
            # The first election begins after up to twice this time.
            "controller.quorum.election.timeout.ms": "250",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.num.partitions": "1",
        }
        self._settings = {**DEFAULTS, **defaults, **(settings or {})}
        self._count = brokers
        self._mode = mode
        self._security_protocol = security_protocol
        self._users = dict(users or {})
        self._client_settings = {"security.protocol": security_protocol, **(client_settings or {})}
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._has_registry = schema_registry
        self._registry_port: int | None = None
        self._has_metrics = metrics
        self._metrics_ports: dict[NodeId, int] = {}
        self._resources = ExitStack()
        self._members: list[Member] = []
        self._faults: dict[NodeId, Faults] = {}
        self._shifts: dict[NodeId, TimeShift] = {}
        self._runners: dict[NodeId, Runner] = {}
        self._links: Links | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all nodes, also of those that do not run; for any client."""
        return ",".join(f"{HOST}:{member.port}" for member in self._started())

    @property
    def schema_registry_url(self) -> str:
        """`http://host:port` of the registry, which runs on node 1; the cluster needs `schema_registry=True`."""
        if not self._has_registry:
            raise RuntimeError("the embedded cluster has no schema registry: pass schema_registry=True")
        self._started()
        return f"http://{HOST}:{self._registry_port}"

    def metrics_url(self, node: NodeId) -> str:
        """`http://host:port` of a node's metrics and health checks; the cluster was created with `metrics=True`."""
        return f"http://{HOST}:{self._metrics_ports[node]}"

    @property
    def nodes(self) -> list[NodeId]:
        """The ids of all nodes."""
        return [member.node_id for member in self._started()]

    @property
    def running(self) -> list[NodeId]:
        """The ids of the nodes that run, paused ones included. A node whose disk fails ends by itself."""
        return sorted(self._alive())

    def address(self, node: NodeId) -> str:
        """Return `host:port` of a node."""
        return f"{HOST}:{self._member(node).port}"

    def data_dir(self, node: NodeId) -> Path:
        """Return the directory of a node's logs."""
        return self._member(node).data_dir

    def faults(self, node: NodeId) -> Faults:
        """Return the faults of a node, which survive its restarts."""
        if self._mode == "process":
            raise RuntimeError('faults cannot be injected into another process: leave out mode="process"')
        return self._faults[self._member(node).node_id]

    def start(self, node: NodeId | None = None) -> None:
        """Start the cluster, or a node that was killed or stopped; return when it serves."""
        if node is not None:
            if self._member(node).node_id in self._alive():
                raise RuntimeError(f"node {node} already runs")
            self._start_nodes([node])
            return
        if self._members:
            raise RuntimeError("the embedded cluster is already started")
        try:
            self._prepare()
            self._start_nodes(self.nodes)
        except BaseException:
            self._release()
            raise

    def stop(self, node: NodeId | None = None) -> None:
        """Stop a node gracefully; or the whole cluster, and release its ports and its temporary directory."""
        if node is not None:
            self._runner(node).stop(clean=True)
            del self._runners[node]
            return
        self.heal()
        runners, self._runners = self._alive(), {}
        try:
            # A clean stop only prepares the next start, and there is none from a temporary directory.
            clean = self._given_data_dir is not None
            _run_all([partial(runner.stop, clean=clean) for runner in runners.values()])
        finally:
            self._release()

    def kill(self, node: NodeId) -> None:
        """End a node as a crash of its process does; `start` starts it again with the same address and data."""
        self._runner(node).stop(clean=False)
        del self._runners[node]

    def restart(self, node: NodeId, *, clean: bool = True) -> None:
        """Stop a node, or kill it with `clean=False`, and start it again."""
        if clean:
            self.stop(node)
        else:
            self.kill(node)
        self.start(node)

    def pause(self, node: NodeId) -> None:
        """Suspend a node: it accepts connections and responds to nothing, until `resume`."""
        self._runner(node).pause()

    def resume(self, node: NodeId) -> None:
        """Continue after `pause`; no error if the node is not paused."""
        self._runner(node).resume()

    def cut(
        self, ones: NodeId | Iterable[NodeId], others: NodeId | Iterable[NodeId], *, both_ways: bool = True
    ) -> None:
        """Cut the network between nodes: nothing from `ones` reaches `others`, and with `both_ways` not the reverse.

        Connections stay open, as over a network that loses packets. Clients still reach all nodes.
        """
        pairs = [Link(one, other) for one, other in product(self._ids(ones), self._ids(others)) if one != other]
        if self._links is None:
            raise RuntimeError('the network of processes cannot be cut: leave out mode="process"')
        self._links.cut(pairs + [Link(target, source) for source, target in pairs if both_ways])

    def heal(self) -> None:
        """Undo all cuts; what waited in them arrives now."""
        if self._links is not None:
            self._links.heal()

    def leader_of(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: NodeId | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> NodeId:
        """Return the leader of a partition; wait until a running node, other than `other_than`, leads it.

        Raises TimeoutError.
        """

        def leader(found: Partition) -> NodeId | None:
            return found.leader if found.leader in self._alive() and found.leader != other_than else None

        return self._await_partition(topic, partition, leader, "such a leader", timeout_s)

    def in_sync_replicas(
        self, topic: str, partition: int = 0, *, at_least: int = 0, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[NodeId]:
        """Return the in-sync replicas of a partition; wait until there are enough. Raises TimeoutError."""

        def in_sync(found: Partition) -> list[NodeId] | None:
            return sorted(found.in_sync_replicas) if len(found.in_sync_replicas) >= at_least else None

        return self._await_partition(topic, partition, in_sync, f"{at_least} in-sync replicas", timeout_s)

    def controller(self, *, other_than: NodeId | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> NodeId:
        """Return the active controller, the leader of the quorum; wait until there is one. Raises TimeoutError."""

        async def ask(admin: Admin) -> tuple[int, NodeId]:
            found = await admin.describe_quorum()
            return found.leader_epoch, found.leader_id

        def leader(answers: list[tuple[int, NodeId]]) -> NodeId | None:
            newest = max(answers, default=(0, -1))[1]
            return newest if newest in self._alive() and newest != other_than else None

        return run_in_thread(self._poll(ask, leader, "the quorum had no such leader", timeout_s))

    def _await_partition(
        self, topic: str, index: int, read: Callable[[Partition], Result | None], wanted: str, timeout_s: float
    ) -> Result:
        async def ask(admin: Admin) -> Partition:
            (found,) = await admin.describe_topics([topic])
            if found.error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise ApiError(found.error, f"topic {topic}")
            return found.partitions[index]

        def newest(answers: list[Partition]) -> Result | None:
            # A node that is cut off or lags behind has an older leader.
            return read(max(answers, key=lambda found: found.leader_epoch)) if answers else None

        return run_in_thread(self._poll(ask, newest, f"{topic}-{index} had not {wanted}", timeout_s))

    async def _poll(
        self,
        ask: Callable[[Admin], Awaitable[Answer]],
        read: Callable[[list[Answer]], Result | None],
        complaint: str,
        timeout_s: float,
    ) -> Result:
        """Ask all nodes until `read` finds a result in their answers."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            answers = await asyncio.gather(*(self._ask(node, ask) for node in self._alive()), return_exceptions=True)
            result = read([answer for answer in answers if not isinstance(answer, BaseException)])
            if result is not None:
                return result
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError(f"{complaint} within {timeout_s:g} s; the nodes answered {answers}")
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, node: NodeId, ask: Callable[[Admin], Awaitable[Answer]]) -> Answer:
        """Ask one node. One that is paused or cut off from the others does not answer in time."""
        config = self._config() | {"bootstrap.servers": self.address(node)}
        async with asyncio.timeout(_ANSWER_S), Admin(config) as admin:
            return await ask(admin)

    def _prepare(self) -> None:
        self._resources.enter_context(routed_logs())
        temporary = Path(self._resources.enter_context(TemporaryDirectory(prefix="rookery-")))
        ports = [(self._reserve(), self._reserve()) for _ in range(self._count)]
        self._registry_port = self._reserve() if self._has_registry else None
        if self._has_metrics:
            self._metrics_ports = {node: self._reserve() for node in range(1, self._count + 1)}
        self._members = make_members(self._given_data_dir or temporary, HOST, ports)
        for member in self._members:
            member.directory.mkdir(parents=True, exist_ok=True)
        self._faults = {node: Faults() for node in self.nodes}
        self._shifts = {node: TimeShift() for node in self.nodes}
        files, settings = UnsyncedFiles(), [self._settings_of(member) for member in self._members]
        scram = scram_credentials(self._users)
        format_members(files, self._members, settings, now_ms=SystemClock().now_ms(), scram=scram)
        if self._mode == "thread":
            owners = {port: node for node, pair in enumerate(ports, 1) for port in pair}
            self._links = Links(owners)
            self._resources.callback(self._links.close)

    def _reserve(self) -> int:
        port: int = self._resources.enter_context(reserve_port()).getsockname()[1]
        return port

    def _settings_of(self, member: Member) -> dict[str, str]:
        settings = member_settings(member, self._members, protocol=self._security_protocol) | self._settings
        if self._has_registry and member.node_id == 1:
            settings["schema.registry.listeners"] = self.schema_registry_url
        if self._has_metrics:
            settings["metrics.listeners"] = self.metrics_url(member.node_id)
        return settings

    def _start_nodes(self, nodes: list[NodeId]) -> None:
        """Start nodes concurrently, since the first ones need each other; if one fails, none of them runs."""
        runners = {node: self._make_runner(self._member(node)) for node in nodes}
        failures: list[BaseException] = []

        def start(runner: Runner) -> None:
            try:
                runner.start()
            except BaseException as error:
                # Those of the others only say that they were stopped.
                failures.append(error)
                for other in runners.values():
                    if other is not runner:
                        other.stop(clean=False)

        _run_all([partial(start, runner) for runner in runners.values()])
        if failures:
            raise failures[0]
        self._runners.update(runners)

    def _make_runner(self, member: Member) -> Runner:
        assignments = [f"{key}={value}" for key, value in self._settings_of(member).items()]
        if self._links is None:
            return BrokerProcess(assignments, log_path=member.directory / "broker.log")
        links, node = self._links, member.node_id
        return BrokerThread(
            Settings.load(overrides=assignments, overrides_given_as="settings"),
            shift=self._shifts[node],
            intercept=self._faults[node].intercept,
            new_loop=lambda shift: links.new_loop(node, shift),
        )

    def _release(self) -> None:
        self._resources.close()
        self._members, self._links, self._registry_port = [], None, None

    def _started(self) -> list[Member]:
        if not self._members:
            raise RuntimeError("the embedded cluster is not started")
        return self._members

    def _member(self, node: NodeId) -> Member:
        for member in self._started():
            if member.node_id == node:
                return member
        raise ValueError(f"there is no node {node}, only 1 to {self._count}")

    def _runner(self, node: NodeId) -> Runner:
        runner = self._alive().get(self._member(node).node_id)
        if runner is None:
            raise RuntimeError(f"node {node} is not running")
        return runner

    def _alive(self) -> dict[NodeId, Runner]:
        """Return the runs that were not stopped and have not ended by themselves."""
        for node, runner in list(self._runners.items()):
            if runner.has_ended:
                runner.stop(clean=False)
                del self._runners[node]
        return self._runners

    def _ids(self, given: NodeId | Iterable[NodeId]) -> list[NodeId]:
        return [self._member(node).node_id for node in ([given] if isinstance(given, int) else given)]


def _run_all(calls: list[Callable[[], None]]) -> None:
    """Run the calls concurrently; raises the first failure after all have ended."""
    with ThreadPoolExecutor(len(calls) or 1) as executor:
        for running in [executor.submit(call) for call in calls]:
            running.result()
