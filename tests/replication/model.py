"""Three replicas of one partition under random faults: real logs and state machines, a bag of messages as the network.

A run is a list of random steps from one seed. Messages wait in a bag and are delivered in any order, or never. Nodes
are killed, lose power, and apply the metadata late. After every step the invariants are checked (`ModelError`):

- a record that was acknowledged with `acks=all` is in the log of every in-sync replica that runs;
- what a consumer could read at an offset, on any node, never changes there;
- a high watermark does not go back while its process runs;
- the leader's maximal ISR contains the controller's ISR.

At the end everything is healed: all replicas must agree and be in sync again within a number of rounds.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from rookery.base.clock import ManualClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.slices import Slices
from rookery.base.types import NodeId, Offset
from rookery.metadata.image import BrokerImage, PartitionImage
from rookery.protocol.fetch import FetchedPartition
from rookery.protocol.fetch_session import SessionRow
from rookery.protocol.message import Message
from rookery.quotas.replication import ReplicationThrottle
from rookery.records.batch import iterate_headers
from rookery.replication.fetcher import FetcherSettings, Follower, ReplicaFetcher
from rookery.replication.following import Following
from rookery.replication.isr import AlteredIsr, IsrConditions, IsrProposal
from rookery.replication.manager import ReplicaManager
from rookery.replication.partition import Partition
from rookery.replication.replica import ACKS_ALL, Replica
from rookery.storage.config import LogConfig
from tests.faults.files import CrashFiles, Survival
from tests.storage.samples import PARTITION, START_MS, TOPIC_ID, batch, open_log, read_bytes

NODES = (1, 2, 3)
_LAG_MS = 31_000
_FETCH_BYTES = 250
_CONFIG = LogConfig(segment_bytes=700, retention_ms=-1)


class ModelError(AssertionError):
    """An invariant does not hold."""


class ModelFetcher(ReplicaFetcher):
    """A fetcher without a task: the model calls it with responses."""

    def __init__(self, model: "Model", process: "Process") -> None:
        self._source = -1
        self._follower = Follower(
            process.node_id, lambda: process.broker_epoch, lambda _: process.replica, ReplicationThrottle()
        )
        self._peers = _Offsets(model)
        self._settings = FetcherSettings(backoff_s=0.0)
        self._slices = Slices()
        self._following = Following(backoff_s=0.0)
        self._loop = _ModelTime(model)  # type: ignore[assignment]  # only `time` is used

    def row(self) -> SessionRow | None:
        following = self._following
        following.settle(following.unsettled, self._loop.time(), _FETCH_BYTES, self._position)
        return following.rows().get(PARTITION)

    def respond(self, asked: SessionRow, result: FetchedPartition) -> None:
        _drive(self._process_partition(PARTITION, asked, result))


class _ModelTime:
    def __init__(self, model: "Model") -> None:
        self._model = model

    def time(self) -> float:
        return self._model.clock.monotonic()


class _Offsets:
    """Answers a follower's ListOffsets at once, from the leader of its epoch."""

    def __init__(self, model: "Model") -> None:
        self._model = model

    async def request(self, node: NodeId, api_key: Any, request: Any, **_: Any) -> Any:
        wanted = request.topics[0].partitions[0]
        for process in self._model.up():
            state = process.replica.state
            if state.is_leader and state.leader_epoch == wanted.current_leader_epoch:
                found = process.replica.find_offset(
                    wanted.timestamp, current_leader_epoch=wanted.current_leader_epoch, node_id=request.replica_id
                )
                row = Message(error_code=found.error_code, offset=found.offset)
                return Message(topics=[Message(partitions=[row])])
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "no such leader")

    async def exchange(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...


def _drive(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that does not have to wait."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine waits")


class Process:
    """One process of a broker: its replica, and how far it has read the metadata."""

    def __init__(self, model: "Model", node_id: NodeId, files: CrashFiles, broker_epoch: int) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.is_up = True
        self.applied = -1
        self.highest_seen: Offset = 0
        self.conditions = IsrConditions()
        self._model = model
        log = open_log(files, Path("/data") / str(PARTITION), _CONFIG, clock=model.clock)
        state = Partition(PARTITION, TOPIC_ID, node_id=node_id, conditions=self.conditions)
        state.restore(high_watermark=0, start_offset=log.start_offset, end_offset=log.end_offset)
        self.replica = Replica(state, log, changed=lambda _: None, flush=lambda _: None, propose=self._propose)
        self.replica.configure(replace(_CONFIG, min_insync_replicas=model.min_isr))
        self.fetcher = ModelFetcher(model, self)

    def _propose(self, replica: Replica) -> None:
        assert replica.state.proposal is not None
        self._model.bag.append(Alter(self, replica.state.proposal))

    def apply(self, version: "Version") -> None:
        """Apply the metadata in the order of `ReplicaManager._update_state`."""
        state, image = self.replica.state, version.partition
        self.conditions.brokers = version.brokers
        is_new_epoch = image.leader_epoch > state.leader_epoch
        if is_new_epoch:
            self.fetcher.stop(PARTITION)
        proposal = state.proposal
        state.set_leader(
            image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            now_s=self._model.clock.monotonic(),
        )
        if is_new_epoch and state.is_leader:
            ReplicaManager._begin_epoch(self.replica)
        if is_new_epoch and not state.is_leader and state.leader >= 0:
            self.fetcher._following.start(PARTITION, TOPIC_ID, state.leader_epoch)
        if state.proposal is not None and state.proposal is not proposal:
            self._propose(self.replica)

    def records(self) -> dict[Offset, int]:
        """Return the checksum of each record; the values of a run are all different."""
        log = self.replica.log
        data = read_bytes(log.read(log.start_offset, 1 << 20).slices)
        return {header.base_offset: header.crc for _, header in iterate_headers(data)}


class Version(NamedTuple):
    """One state of the metadata."""

    partition: PartitionImage
    brokers: dict[NodeId, BrokerImage]


class Fetch(NamedTuple):
    sender: Process
    leader: NodeId
    asked: SessionRow


class Fetched(NamedTuple):
    to: Process
    asked: SessionRow
    result: FetchedPartition


class Alter(NamedTuple):
    sender: Process
    proposal: IsrProposal


class Altered(NamedTuple):
    to: Process
    proposal: IsrProposal
    code: ErrorCode
    altered: AlteredIsr


class Unacknowledged(NamedTuple):
    process: Process
    leader_epoch: int
    offset: Offset
    crc: int


class Model:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock(START_MS)
        self.min_isr = self.random.choice((1, 2))
        self.bag: list[Fetch | Fetched | Alter | Altered] = []
        self.acknowledged: dict[Offset, int] = {}
        self._visible: dict[Offset, int] = {}
        self._waiting: list[Unacknowledged] = []
        self._values = 0
        self._disks = {node: CrashFiles() for node in NODES}
        self._epochs = dict.fromkeys(NODES, 10)
        partition = PartitionImage(index=0, replicas=NODES, isr=NODES, leader=1, leader_epoch=0, partition_epoch=0)
        self.versions = [Version(partition, {node: self._broker(node) for node in NODES})]
        self.processes = {node: Process(self, node, self._disks[node], 10) for node in NODES}
        for process in self.up():
            self._apply_next(process)

    def up(self) -> list[Process]:
        return [process for process in self.processes.values() if process.is_up]

    @property
    def now(self) -> Version:
        return self.versions[-1]

    def _broker(self, node: NodeId, *, fenced: bool = False) -> BrokerImage:
        return BrokerImage(
            broker_id=node,
            incarnation_id=UUID(int=self._epochs[node]),
            broker_epoch=self._epochs[node],
            endpoints=(),
            features=(),
            rack=None,
            fenced=fenced,
            in_controlled_shutdown=False,
            log_directories=(),
        )

    # Steps

    def run(self, steps: int) -> None:
        weighted: Sequence[tuple[Callable[[], None], int]] = (
            (self.fetch, 12),
            (self.deliver, 20),
            (self.produce, 5),
            (self.apply_metadata, 12),
            (self.lose, 1),
            (self.shrink, 1),
            (self.fence, 1),
            (self.kill, 1),
            (self.restart, 4),
        )
        actions = [action for action, _ in weighted]
        for action in self.random.choices(actions, [weight for _, weight in weighted], k=steps):
            action()
            self.check()
        self.heal()

    def produce(self) -> None:
        leaders = [process for process in self.up() if process.replica.state.is_leader]
        if not leaders:
            return
        process = self.random.choice(leaders)
        self._values += 1
        data = batch(value=b"%d" % self._values)
        appended = process.replica.append(data, acks=ACKS_ALL, now_ms=START_MS)
        if appended.error_code is ErrorCode.NONE:
            (_, header), *_ = iterate_headers(data)
            epoch = process.replica.state.leader_epoch
            self._waiting.append(Unacknowledged(process, epoch, appended.base_offset, header.crc))

    def fetch(self) -> None:
        if self.up():
            self._fetch(self.random.choice(self.up()))

    def _fetch(self, process: Process) -> None:
        row = process.fetcher.row()
        if row is not None:
            self.bag.append(Fetch(process, process.replica.state.leader, row))

    def apply_metadata(self) -> None:
        if self.up():
            self._apply_next(self.random.choice(self.up()))

    def _apply_next(self, process: Process) -> None:
        if process.applied + 1 < len(self.versions):
            process.applied += 1
            process.apply(self.versions[process.applied])

    def lose(self) -> None:
        if self.bag:
            # An AlterPartition is sent again until it is answered: losing one only delays it.
            lost = self.bag.pop(self.random.randrange(len(self.bag)))
            if isinstance(lost, (Alter, Altered)):
                self.bag.append(Alter(lost.sender if isinstance(lost, Alter) else lost.to, lost.proposal))

    def shrink(self) -> None:
        self.clock.advance(_LAG_MS)
        for process in self.up():
            if process.replica.state.propose_shrink(self.clock.monotonic()):
                process._propose(process.replica)

    def deliver(self) -> None:
        if self.bag:
            # Mostly a new message: old ones then arrive much later, when the world has changed.
            newest = self.random.random() < 0.8
            self._deliver(self.bag.pop(-1 if newest else self.random.randrange(len(self.bag))))

    def _deliver(self, message: Fetch | Fetched | Alter | Altered) -> None:
        match message:
            case Fetch(sender, leader, asked):
                self._answer(sender, self.processes[leader], asked)
            case Fetched(to, asked, result):
                if to.is_up:
                    to.fetcher.respond(asked, result)
            case Alter(sender, proposal):
                if sender.is_up and sender.replica.state.proposal is proposal:
                    self._alter(sender, proposal)
            case Altered(to, proposal, code, altered):
                if to.is_up:
                    self._settle(to, proposal, code, altered)

    def _answer(self, sender: Process, leader: Process, asked: SessionRow) -> None:
        if not leader.is_up:
            return
        row = asked.row
        found = leader.replica.read(
            row.fetch_offset,
            _FETCH_BYTES,
            current_leader_epoch=row.current_leader_epoch,
            last_fetched_epoch=row.last_fetched_epoch,
            node_id=sender.node_id,
            broker_epoch=sender.broker_epoch,
            start_offset=row.log_start_offset,
        )
        result = FetchedPartition(
            0,
            found.error_code,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            None,
            -1,
            memoryview(read_bytes(found.slices)),
            found.diverging_epoch,
        )
        self.bag.append(Fetched(sender, asked, result))

    # The controller

    def _alter(self, sender: Process, proposal: IsrProposal) -> None:
        before, brokers = self.now
        code = ErrorCode.NONE
        if proposal.leader_epoch != before.leader_epoch or sender.node_id != before.leader:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != before.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(brokers[node].fenced or epoch not in (-1, brokers[node].broker_epoch) for node, epoch in proposal.isr):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self._change(isr=proposal.members)
        after = self.now.partition
        altered = AlteredIsr(after.leader_epoch, after.partition_epoch, after.isr)
        self.bag.append(Altered(sender, proposal, code, altered))

    def _settle(self, to: Process, proposal: IsrProposal, code: ErrorCode, altered: AlteredIsr) -> None:
        state, now_s = to.replica.state, self.clock.monotonic()
        if code is ErrorCode.NONE:
            to.replica.isr_settled(state.accept(proposal, altered, now_s))
        elif code is ErrorCode.INELIGIBLE_REPLICA:
            to.replica.isr_settled(state.withdraw(proposal, now_s))

    def _change(self, brokers: dict[NodeId, BrokerImage] | None = None, **fields: Any) -> None:
        before = self.now
        partition = before.partition
        if fields:
            partition = replace(partition, partition_epoch=partition.partition_epoch + 1, **fields)
        self.versions.append(Version(partition, brokers or before.brokers))

    def fence(self) -> None:
        node = self.random.choice(NODES)
        if not self.now.brokers[node].fenced:
            self._fence(node)

    def _fence(self, node: NodeId) -> None:
        brokers = {**self.now.brokers, node: self._broker(node, fenced=True)}
        partition = self.now.partition
        isr = tuple(each for each in partition.isr if each != node) or partition.isr
        self._elect(isr, brokers, must_move=partition.leader == node)

    def _elect(self, isr: tuple[NodeId, ...], brokers: dict[NodeId, BrokerImage], *, must_move: bool) -> None:
        before = self.now.partition
        leader = before.leader
        if must_move or leader < 0 or leader not in isr:
            leader = next((node for node in NODES if node in isr and not brokers[node].fenced), -1)
        fields: dict[str, Any] = {} if isr == before.isr else {"isr": isr}
        if must_move or leader != before.leader:
            fields |= {"leader": leader, "leader_epoch": before.leader_epoch + 1}
        self._change(brokers, **fields)

    # Processes

    def kill(self) -> None:
        up = self.up()
        if len(up) > 1:
            process = self.random.choice(up)
            # Its last fetch may arrive after its next process has started.
            self._fetch(process)
            process.is_up = False
            process.replica.log.abandon()
            node = process.node_id
            # The records of the last in-sync replica are lost for good with its power; the model does not go there.
            if self.random.random() < 0.7 and set(self.now.partition.isr) != {node}:
                self._lose_power(node)

    def _lose_power(self, node: NodeId) -> None:
        self._disks[node].crash(self.random.choice((Survival.NOTHING, Survival.TORN, Survival.EVERYTHING)))
        # The registration of the next process would do this, before anything can be elected.
        isr = tuple(each for each in self.now.partition.isr if each != node)
        self._elect(isr, {**self.now.brokers, node: self._broker(node, fenced=True)}, must_move=False)

    def restart(self) -> None:
        down = [node for node, process in self.processes.items() if not process.is_up]
        if down:
            self._restart(self.random.choice(down))

    def _restart(self, node: NodeId) -> None:
        self._fence(node)
        self._epochs[node] += 1
        brokers = {**self.now.brokers, node: self._broker(node)}
        partition = self.now.partition
        # Unfenced in the same record batch; a partition without a leader gets one.
        self._elect(partition.isr, brokers, must_move=False)
        process = self.processes[node] = Process(self, node, self._disks[node], self._epochs[node])
        process.applied = len(self.versions) - 1
        process.apply(self.now)

    # Invariants

    def check(self) -> None:
        self._acknowledge()
        isr = self.now.partition.isr
        for process in self.up():
            records, state = process.records(), process.replica.state
            if process.node_id in isr:
                for offset, crc in self.acknowledged.items():
                    if records.get(offset) != crc:
                        raise ModelError(f"acknowledged record {offset} is not on node {process.node_id}")
            if state.high_watermark < process.highest_seen:
                raise ModelError(f"the high watermark of node {process.node_id} went back")
            process.highest_seen = state.high_watermark
            for offset in range(process.replica.log.start_offset, state.high_watermark):
                if self._visible.setdefault(offset, records[offset]) != records[offset]:
                    raise ModelError(f"a consumer on node {process.node_id} reads another record at {offset}")
            is_current = state.is_leader and state.leader_epoch == self.now.partition.leader_epoch
            if is_current and not state.maximal_isr >= set(isr):
                raise ModelError(f"the maximal ISR {set(state.maximal_isr)} of the leader does not contain {isr}")

    def _acknowledge(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            replica = each.process.replica
            if not each.process.is_up or not replica.state.still_leads(each.leader_epoch):
                continue
            if not replica.is_acknowledged(each.offset + 1, ACKS_ALL):
                self._waiting.append(each)
            elif replica.had_enough_replicas:
                self.acknowledged[each.offset] = each.crc

    # The end

    def heal(self) -> None:
        """Let every message arrive and every process run: the replicas must agree after some rounds."""
        for node, process in self.processes.items():
            if not process.is_up or self.now.brokers[node].fenced:
                process.is_up = False
                self._restart(node)
        for _ in range(40):
            for process in self.up():
                while process.applied + 1 < len(self.versions):
                    self._apply_next(process)
                self._fetch(process)
            bag, self.bag = self.bag, []
            for message in bag:
                self._deliver(message)
            self.check()
            if self._is_healed():
                return
        raise ModelError("the replicas do not agree after all faults have ended")

    def _is_healed(self) -> bool:
        partition = self.now.partition
        found = [process.replica for process in self.up()]
        leader = self.processes[partition.leader].replica if partition.leader >= 0 else None
        if leader is None or len(partition.isr) < len(NODES):
            return False
        return all(replica.log.end_offset == leader.log.end_offset for replica in found)


def run(seed: int, steps: int = 150) -> None:
    Model(seed).run(steps)
