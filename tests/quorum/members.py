"""A quorum of drivers in simulated time: machines with disks, a network between them, and what they must never do.

A `Member` is a machine whose process is a driver and a listener. Its state is the list of all values that were
published to it; a snapshot holds all of them. `Cluster` owns the members and the checks, which are named after the
invariants of Raft:

- one leader per epoch;
- same values: an offset is published with the same value everywhere, for ever;
- in order: a member publishes every offset once, in order, and its high watermark never falls in a process;
- a snapshot is the state at its end;
- a leader gets no snapshot;
- the epoch survives: a member starts in no earlier epoch than it had saved;
- kept: a value whose append returned is published on every member in the end, once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from rookery.base.errors import ApiError, StorageError
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.metadata.features import KRAFT_VERSION, KRAFT_VERSIONS
from rookery.net.address import Address
from rookery.net.connection import ConnectionInfo, Handler
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.send import Reply
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import decode_request, encode_response
from rookery.protocol.framing import parse_request_header, response_prefix
from rookery.protocol.message import Message
from rookery.quorum.driver import QuorumDriver
from rookery.quorum.log_view import NOTHING
from rookery.quorum.snapshots import Snapshot, SnapshotFiles
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from rookery.storage.directory import LogDirectory
from rookery.storage.names import METADATA_PARTITION
from tests.faults.files import Crash
from tests.simulation.loop import Process
from tests.simulation.world import Machine, World

DATA = Path("/data")
PORT = 9093
CLUSTER_ID = "simulated"
SERVED = (
    ApiKey.API_VERSIONS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
EVERYTHING = {"retention_bytes": 0, "retention_ms": -1}


def host_of(node_id: NodeId) -> str:
    return f"node-{node_id}"


def quorum_handler(
    driver: Callable[[], QuorumDriver], *, kraft_versions: Callable[[], tuple[int, int]] = lambda: KRAFT_VERSIONS
) -> Handler:
    """Return the handler of a listener that serves the quorum and nothing else."""

    async def respond(api_key: ApiKey, version: int, correlation_id: int, request: Message) -> Reply:
        if api_key == ApiKey.API_VERSIONS:
            rows = [
                Message(api_key=key, min_version=DEFINED[key].minimum, max_version=DEFINED[key].maximum)
                for key in SERVED
            ]
            lowest, highest = kraft_versions()
            features = [Message(name=KRAFT_VERSION, min_version=lowest, max_version=highest)]
            response: Any = Message(error_code=0, api_keys=rows, throttle_time_ms=0, supported_features=features)
        else:
            response = await driver().receive(api_key, request)
        body = encode_response(api_key, version, response)
        prefix = response_prefix(api_key, version, correlation_id=correlation_id, body_size=len(body))
        return [prefix + body]

    def handle(frame: memoryview, info: ConnectionInfo) -> Awaitable[Reply]:
        header, position = parse_request_header(frame)
        api_key, version = ApiKey(header.api_key), header.api_version
        return respond(api_key, version, header.correlation_id, decode_request(api_key, version, frame, position))

    return handle


class Member(Machine):
    def __init__(self, cluster: "Cluster", node_id: NodeId, *, is_observer: bool) -> None:
        super().__init__(cluster.world, host_of(node_id), ())
        self.node_id = node_id
        self.is_observer = is_observer
        self.driver: QuorumDriver | None = None
        self.values: list[bytes] = []
        self.end_offset: Offset = 0
        self.led: list[LeaderEpoch] = []
        self.is_leading = False
        self.snapshots_loaded = 0
        # What a test may change before a boot.
        self.directory_id = UUID(int=node_id)
        self.port = PORT
        self.joins = False
        self.kraft_versions = KRAFT_VERSIONS
        self._cluster = cluster
        # The epoch that was saved when the process ended.
        self._saved_epoch: LeaderEpoch = 0

    @property
    def running(self) -> QuorumDriver:
        assert self.is_up, f"{self.name} is down"
        assert self.driver is not None, f"{self.name} is starting"
        return self.driver

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def boot(self) -> None:
        self.driver, self.is_leading = None, False
        super().boot()

    async def _run(self, process: Process) -> None:
        if not self.disk.exists(DATA):
            self._format()
        try:
            await self._start()
        except (Crash, StorageError) as error:
            self._world.note(f"did not start: {error}")
        except Exception as error:
            if process.alive:
                self._world.violations.add("no-bug", f"{self.name} did not start: {error!r}")
            self.kill()

    def _format(self) -> None:
        """Make the log directory; with the voters, if they are dynamic and this is one of them."""
        directory, cluster = DATA / str(METADATA_PARTITION), self._cluster
        for path in (DATA, directory):
            self.disk.make_directory(path)
            self.disk.sync_directory(path.parent)
        if cluster.is_dynamic and ReplicaKey(self.node_id, self.directory_id) in cluster.voters:
            snapshots = SnapshotFiles(self.disk, directory)
            snapshots.write(NOTHING, [], last_timestamp_ms=0, now_ms=0, voters=cluster.voters)

    async def _start(self) -> None:
        driver = QuorumDriver.open(
            self.disk,
            LogDirectory(DATA),
            node_id=self.node_id,
            directory_id=self.directory_id,
            clock=self.clock,
            cluster_id=CLUSTER_ID,
            voters=None if self._cluster.is_dynamic else self._cluster.voters,
            bootstrap=[Address(member.name, member.port) for member in self._cluster.members.values()],
            joins=self.joins,
            settings=self._cluster.settings,
            jitter=Random(self._random.getrandbits(64)).random,
            endpoints={"CONTROLLER": Endpoint(self.name, self.port)},
            is_observer=self.is_observer,
        )
        self.values, self.end_offset = [], 0
        if driver.leader_epoch < self._saved_epoch:
            self._violate("the epoch survives", f"{driver.leader_epoch} after {self._saved_epoch}")
        self.driver = driver
        handle = quorum_handler(lambda: self.running, kraft_versions=lambda: self.kraft_versions)
        listener = Listener(self.name, self.port, handle, settings=ListenerSettings(), network=self._world.network)
        await listener.bind()
        await listener.start()
        await driver.start()
        # As a node does it: nothing is replayed before all that is committed is here.
        await driver.caught_up()
        end_offset, loaded = driver.high_watermark, driver.take_loaded()
        if loaded is not None:
            self._check_snapshot(loaded)
            self.values, self.end_offset = list(loaded.values), loaded.position.offset
        for base_offset, values in driver.batches(end_offset):
            await self._on_commit(base_offset, list(values))
        driver.follow(
            self._on_commit,
            self._on_snapshot,
            from_offset=end_offset,
            on_lead=self._on_lead,
            on_stop_leading=self._on_stop_leading,
        )

    def _end(self, process: Process, *, silently: bool, responses_arrive: bool = True) -> None:
        if self.driver is not None:
            self._saved_epoch = self.driver._log.state.epoch
        super()._end(process, silently=silently, responses_arrive=responses_arrive)

    def lose_disk(self) -> None:
        super().lose_disk()
        self._saved_epoch = 0

    # What is published

    async def _on_commit(self, base_offset: Offset, values: Sequence[bytes]) -> None:
        if base_offset < self.end_offset:
            self._violate("in order", f"offset {base_offset} is published after {self.end_offset}")
        self._cluster.publish(self, base_offset, values)
        self.values.extend(values)
        self.end_offset = base_offset + len(values)
        await asyncio.sleep(0)

    async def _on_snapshot(self, snapshot: Snapshot) -> None:
        if self.is_leading:
            self._violate("a leader gets no snapshot", f"{snapshot.position} in epoch {self.led[-1]}")
        self._check_snapshot(snapshot)
        self.snapshots_loaded += 1
        self.values, self.end_offset = list(snapshot.values), snapshot.position.offset
        await asyncio.sleep(0)

    def _check_snapshot(self, snapshot: Snapshot) -> None:
        expected = self._cluster.values_before(snapshot.position.offset)
        if list(snapshot.values) != expected:
            self._violate("a snapshot is the state at its end", f"{snapshot.position}")

    def _on_lead(self, epoch: LeaderEpoch) -> None:
        self.is_leading = True
        self.led.append(epoch)
        other = self._cluster.leaders.setdefault(epoch, self.node_id)
        if other != self.node_id:
            self._violate("one leader per epoch", f"epoch {epoch} was led by node {other}")

    def _on_stop_leading(self, epoch: LeaderEpoch) -> None:
        self.is_leading = False

    def _violate(self, name: str, text: str) -> None:
        self._world.violations.add(name, f"{self.name}: {text}")

    # What tests do

    async def append(self, *values: bytes) -> bool:
        """Append as the leader; whether that was acknowledged."""
        driver = self.running
        try:
            await driver.append(list(values), epoch=driver.leader_epoch)
        except (ApiError, StorageError):
            return False
        self._cluster.acknowledged.extend(values)
        return True

    async def take_snapshot(self, **limits: int) -> None:
        """Take a snapshot of the state, and remove what it replaces if `limits` allow it."""
        driver = self.running
        if self.end_offset > driver.snapshot_end and self.end_offset <= driver.high_watermark:
            await driver.take_snapshot(self.end_offset, list(self.values))
            if limits:
                await driver.clean(**limits)


class Cluster:
    """Voters 1 to `size`, then observers; `spare` members are controllers that are no voters yet.

    Everything random comes from `seed`. `is_dynamic`: the voters are in the log, not in the configuration.
    """

    def __init__(
        self,
        seed: int,
        size: int = 3,
        *,
        observers: int = 0,
        spare: int = 0,
        is_dynamic: bool = False,
        settings: QuorumSettings | None = None,
    ) -> None:
        self.is_dynamic = is_dynamic
        self.world = World(seed)
        self.settings = settings or QuorumSettings()
        self.voters = VoterSet(
            Voter(
                ReplicaKey(node_id, UUID(int=node_id if is_dynamic else 0)),
                {"CONTROLLER": Endpoint(host_of(node_id), PORT)},
            )
            for node_id in range(1, size + 1)
        )
        self.members = {
            node_id: Member(self, node_id, is_observer=node_id > size + spare)
            for node_id in range(1, size + spare + observers + 1)
        }
        self.world._machines.update({member.name: member for member in self.members.values()})
        self.leaders: dict[LeaderEpoch, NodeId] = {}
        self.acknowledged: list[bytes] = []
        # The published value of each offset.
        self.ledger: dict[Offset, bytes] = {}
        self._number = 0

    # Checks

    def publish(self, member: Member, base_offset: Offset, values: Sequence[bytes]) -> None:
        for offset, value in enumerate(values, base_offset):
            known = self.ledger.setdefault(offset, value)
            if known != value:
                text = f"{member.name} publishes {value!r} at {offset}, where {known!r} was"
                self.world.violations.add("same values", text)

    def values_before(self, offset: Offset) -> list[bytes]:
        return [value for at, value in sorted(self.ledger.items()) if at < offset]

    # Steps of tests

    def boot(self) -> None:
        for member in self.members.values():
            if not member.is_up:
                member.boot()

    @property
    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_up and member.driver is not None]

    def leader(self) -> Member | None:
        """The member that leads, as the newest epoch has it; None if there is none."""
        leading = [member for member in self.up if member.is_leading and member.running.is_leading]
        return max(leading, key=lambda member: member.running.leader_epoch, default=None)

    async def until(self, condition: Callable[[], object], within_s: float = 30.0) -> None:
        deadline_s = self.world.loop.time() + within_s
        while not condition():
            for member in self.up:
                if member.running.failure is not None:
                    self.world.violations.add("no contradiction", f"{member.name}: {member.running.failure}")
                    raise AssertionError(f"{member.name} has failed: {member.running.failure}")
            if self.world.loop.time() > deadline_s:
                self.world.violations.add("progress", f"not within {within_s} s: {self.describe()}")
                raise TimeoutError(f"not within {within_s} s: {self.describe()}")
            await asyncio.sleep(0.005)

    def describe(self) -> str:
        return ", ".join(
            f"{member.name}: {type(member.running._core.role).__name__} of epoch {member.running.leader_epoch}, "
            f"{member.running.high_watermark} of {member.running.next_offset}, failed: {member.running.failure}"
            for member in self.up
        )

    async def elect(self, within_s: float = 30.0) -> Member:
        await self.until(lambda: self.leader() is not None, within_s)
        leader = self.leader()
        assert leader is not None
        return leader

    def new_value(self) -> bytes:
        self._number += 1
        return b"value %d" % self._number

    def spawn_append(self, member: Member, count: int = 1) -> "asyncio.Task[bool]":
        return self.world.loop.spawn(member.process, member.append(*(self.new_value() for _ in range(count))))

    async def append(self, count: int = 1) -> None:
        """Append to the present leader until it is acknowledged."""
        while True:
            leader = await self.elect()
            done, _ = await asyncio.wait((self.spawn_append(leader, count),), timeout=10)
            if any(task.result() for task in done):
                return

    async def converge(self, within_s: float = 30.0) -> None:
        """Append one more value, and wait until every member has everything."""
        await self.append()
        await self.until(lambda: len(self.up) == len(self.members), within_s)
        await self.until(lambda: all(member.end_offset > max(self.ledger) for member in self.up), within_s)
        expected = self.values_before(max(self.ledger) + 1)
        for member in self.up:
            if member.values != expected:
                self.world.violations.add("same values", f"{member.name} ends with {member.values[-3:]}")
        for value in self.acknowledged:
            if expected.count(value) != 1:
                self.world.violations.add("kept", f"{value!r} is there {expected.count(value)} times")
        sets = {member.name: sorted(member.running.voters.keys) for member in self.up}
        if any(voters != sets[self.up[0].name] for voters in sets.values()):
            self.world.violations.add("same voters", f"{sets}")

    def run(self, scenario: Callable[["Cluster"], Awaitable[None]]) -> None:
        async def main() -> None:
            self.boot()
            await scenario(self)

        self.world.run(main())
        assert not self.world.violations.found, "; ".join(map(str, self.world.violations.found))

    def find_violations(self, scenario: Callable[["Cluster"], Awaitable[None]]) -> set[str]:
        """Run a scenario with a planted bug, and return the names of the checks that found it."""
        try:
            self.run(scenario)
        except (AssertionError, TimeoutError):
            return {violation.checker for violation in self.world.violations.found}
        return set()
