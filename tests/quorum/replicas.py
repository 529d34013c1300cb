"""Replicas of a quorum in a small world: real cores, disks that forget what was not synced, and a bag of messages.

The world does nothing by itself. A test delivers messages, loses them, moves time, syncs disks, kills replicas; every
effect is carried out at once, and after each the invariants of `Checks` must hold.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum import events
from rookery.quorum.core import QuorumCore
from rookery.quorum.election_state import ElectionState
from rookery.quorum.events import Effect, FetchedBatch, FetchResponse, Request, RequestId, Response
from rookery.quorum.log_view import LogView
from rookery.quorum.roles import Leader
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from rookery.storage.checkpoints import EpochStart
from rookery.storage.epochs import LeaderEpochs


class Entry(NamedTuple):
    epoch: LeaderEpoch
    value: str


@dataclass
class Disk:
    """What a replica finds after a crash."""

    state: ElectionState = field(default_factory=ElectionState)
    entries: list[Entry] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether it has what its replica acknowledged; an empty one is never missed."""
        return bool(self.entries) and not self.state.must_catch_up


class Message(NamedTuple):
    """`incarnation` is that of the replica whose request it is, or answers: a restart breaks its connections."""

    source: NodeId
    target: NodeId
    request_id: RequestId
    payload: Request | Response
    incarnation: int

    @property
    def is_request(self) -> bool:
        return isinstance(self.payload, events.Request)


class ViolationError(AssertionError):
    """An invariant of Raft does not hold. The name says which."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Checks:
    """What must hold over all replicas and all time."""

    def __init__(self) -> None:
        self.committed: list[Entry] = []
        self._leaders: dict[LeaderEpoch, NodeId] = {}
        self._epochs: dict[NodeId, LeaderEpoch] = {}

    def leads(self, node_id: NodeId, epoch: LeaderEpoch) -> None:
        other = self._leaders.setdefault(epoch, node_id)
        if other != node_id:
            raise ViolationError("one leader per epoch", f"nodes {other} and {node_id} lead epoch {epoch}")

    def saves(self, node_id: NodeId, epoch: LeaderEpoch) -> None:
        if epoch < self._epochs.get(node_id, 0):
            raise ViolationError("epochs grow", f"node {node_id} goes back to epoch {epoch}")
        self._epochs[node_id] = epoch

    def forget(self, node_id: NodeId) -> None:
        """The disk of a replica was replaced."""
        self._epochs.pop(node_id, None)

    def commits(self, replica: "Replica", high_watermark: Offset, disks: Iterable[Disk], majority: int) -> None:
        entries = replica.entries[:high_watermark]
        if len(entries) < high_watermark:
            raise ViolationError("committed is there", f"node {replica.node_id} has {len(entries)} of {high_watermark}")
        known = min(len(entries), len(self.committed))
        if entries[:known] != self.committed[:known]:
            raise ViolationError(
                "committed stays", f"node {replica.node_id} commits other records before {high_watermark}"
            )
        if high_watermark > len(self.committed):
            holders = sum(disk.entries[:high_watermark] == entries for disk in disks)
            if holders < majority:
                raise ViolationError("committed is synced", f"{holders} disks have what is before {high_watermark}")
            self.committed = entries

    def logs_match(self, replicas: Iterable["Replica"]) -> None:
        """Two logs that have the same epoch at an offset are the same up to there."""
        logs = [replica.entries for replica in replicas]
        for number, one in enumerate(logs):
            for other in logs[number + 1 :]:
                for offset in reversed(range(min(len(one), len(other)))):
                    if one[offset].epoch == other[offset].epoch:
                        if one[: offset + 1] != other[: offset + 1]:
                            raise ViolationError("logs match", f"two logs differ before offset {offset}")
                        break


class Replica:
    """One node: its disk, and while it is alive a core and a log in memory."""

    def __init__(self, world: "World", key: ReplicaKey) -> None:
        self.key = key
        self.node_id = key.node_id
        self.disk = Disk()
        self.entries: list[Entry] = []
        self.alive = False
        self.incarnation = 0
        self.is_syncing = False
        self.high_watermark = 0
        self.led: list[LeaderEpoch] = []
        self.proposed: list[str] = []
        self.went_back: list[events.VoterWentBack] = []
        self._world = world
        self.core: QuorumCore

    def boot(self) -> None:
        self.entries = list(self.disk.entries)
        self.incarnation += 1
        self.alive, self.is_syncing, self.high_watermark = True, False, 0
        epochs: list[EpochStart] = []
        for offset, entry in enumerate(self.entries):
            if not epochs or epochs[-1].epoch != entry.epoch:
                epochs.append(EpochStart(entry.epoch, offset))
        self.core = QuorumCore(
            self.key,
            state=self.disk.state,
            log=LogView(LeaderEpochs(epochs), end_offset=len(self.entries)),
            voters=VoterHistory(self._world.voters),
            settings=self._world.settings,
            jitter=lambda: self._world.jitter(),
        )
        self.carry_out(self.core.start(self._world.now_ms))

    def kill(self) -> None:
        self.alive = False
        self._world.break_connections(self)

    def replace_disk(self) -> None:
        """Boot with an empty disk under the same key. That takes longer than an election, or than a message travels."""
        if self.alive:
            self.kill()
        self.disk = Disk()
        self._world.checks.forget(self.node_id)
        self._world.lose_messages()
        self._world.advance(3 * self._world.settings.election_timeout_ms)
        self._world.lose_messages()
        self.boot()

    def step(self, event: events.Event, message: Message | None = None) -> None:
        self.carry_out(self.core.step(event, self._world.now_ms), message)

    def sync(self) -> None:
        """Finish the sync of what is in the log now."""
        self.disk.entries = list(self.entries)
        self.is_syncing = False
        self.step(events.Synced(len(self.entries)))

    def propose(self, value: str) -> None:
        self.proposed = [value]
        self.step(events.Propose(self.core.epoch, 1))

    def carry_out(self, effects: list[Effect], message: Message | None = None) -> None:
        world = self._world
        for effect in effects:
            match effect:
                case events.Save(state):
                    world.checks.saves(self.node_id, state.epoch)
                    self.disk.state = state
                case events.Truncate(end_offset):
                    del self.entries[end_offset:]
                case events.AppendLeaderChange(epoch, base_offset, _):
                    world.checks.leads(self.node_id, epoch)
                    self._append(base_offset, Entry(epoch, f"leader {self.node_id}"))
                case events.AppendProposal(epoch, base_offset):
                    self._append(base_offset, Entry(epoch, self.proposed[0]))
                case events.AppendFetched(batch_count):
                    assert message is not None
                    self._append_fetched(world.fetched.pop(id(message.payload), []), batch_count)
                case events.Send(request_id, to, request):
                    target = world.any_node(self.node_id) if to is None else to
                    world.post(Message(self.node_id, target, request_id, request, self.incarnation))
                case events.Respond(request_id, response):
                    world.reply(self, request_id, response)
                case events.SendRecords(request_id, response, offset):
                    world.reply_records(self, request_id, response, offset)
                case events.Commit(high_watermark):
                    assert high_watermark > self.high_watermark
                    self.high_watermark = high_watermark
                    world.check_commit(self)
                case events.Lead(epoch):
                    self.led.append(epoch)
                case events.VoterWentBack():
                    self.went_back.append(effect)
        if self.alive:
            assert len(self.entries) == self.core.log.end_offset, "the core knows the log"

    def _append(self, base_offset: Offset, entry: Entry) -> None:
        assert base_offset == len(self.entries)
        self.entries.append(entry)
        self.is_syncing = True

    def _append_fetched(self, entries: list[Entry], count: int) -> None:
        for entry in entries[:count]:
            self._append(len(self.entries), entry)


class World:
    """Replicas 1 to `size`, the messages between them, and the time."""

    def __init__(
        self, size: int = 3, *, jitter: Callable[[], float] = lambda: 0.5, settings: QuorumSettings | None = None
    ) -> None:
        self.settings = settings or QuorumSettings()
        self.jitter = jitter
        self.now_ms = 0.0
        self.fetch_records_max = 3
        self.checks = Checks()
        self.messages: list[Message] = []
        # The entries that travel in a fetch response, by the response's identity.
        self.fetched: dict[int, list[Entry]] = {}
        self._kept: list[Response] = []
        self._asked: dict[tuple[NodeId, RequestId], Message] = {}
        self._last_received = 0
        keys = [ReplicaKey(node_id, UUID(int=node_id)) for node_id in range(1, size + 1)]
        self.voters = VoterSet(Voter(key, {"CONTROLLER": Endpoint("localhost", 9000 + key.node_id)}) for key in keys)
        self.replicas = {key.node_id: Replica(self, key) for key in keys}

    def boot(self) -> "World":
        for replica in self.replicas.values():
            replica.boot()
        return self

    @property
    def alive(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.alive]

    @property
    def leaders(self) -> list[Replica]:
        return [replica for replica in self.alive if isinstance(replica.core.role, Leader)]

    def any_node(self, source: NodeId) -> NodeId:
        others = [node_id for node_id in self.replicas if node_id != source]
        return others[int(self.jitter() * len(others))] if others else source

    def post(self, message: Message) -> None:
        self.messages.append(message)

    def reply(self, replica: Replica, request_id: RequestId, response: Response) -> None:
        asked = self._asked.pop((replica.node_id, request_id), None)
        if asked is not None:
            self._kept.append(response)
            self.post(Message(replica.node_id, asked.source, asked.request_id, response, asked.incarnation))

    def break_connections(self, replica: Replica) -> None:
        """The requests that a killed replica has not answered fail."""
        for key, asked in list(self._asked.items()):
            if key[0] == replica.node_id:
                del self._asked[key]
                self.fail(asked)

    def reply_records(self, replica: Replica, request_id: RequestId, response: FetchResponse, offset: Offset) -> None:
        entries = replica.entries[offset : offset + self.fetch_records_max]
        batches = tuple(FetchedBatch(entry.epoch, offset + number, 1) for number, entry in enumerate(entries))
        full = response._replace(batches=batches)
        self.fetched[id(full)] = entries
        self.reply(replica, request_id, full)

    def deliver(self, message: Message) -> None:
        target = self.replicas[message.target]
        if not target.alive:
            self.fail(message)
        elif message.is_request:
            self._last_received += 1
            self._asked[message.target, self._last_received] = message
            assert isinstance(message.payload, events.Request)
            target.step(events.Received(self._last_received, message.payload))
        elif message.incarnation == target.incarnation:
            assert isinstance(message.payload, events.Response)
            target.step(events.Answered(message.request_id, message.payload), message)

    def fail(self, message: Message) -> None:
        """Lose a message; its sender, or the replica that waits for it, sees that its request failed."""
        waiting = self.replicas[message.source if message.is_request else message.target]
        if waiting.alive and waiting.incarnation == message.incarnation:
            waiting.step(events.Failed(message.request_id))

    def lose_messages(self) -> None:
        """Lose all messages that are on their way."""
        lost, self.messages = self.messages, []
        for message in lost:
            self.fail(message)

    def check_commit(self, replica: Replica) -> None:
        disks = [other.disk for other in self.replicas.values()]
        self.checks.commits(replica, replica.high_watermark, disks, self.voters.majority)

    def check(self) -> None:
        self.checks.logs_match(self.alive)

    def advance(self, by_ms: float) -> None:
        self.now_ms += by_ms
        for replica in self.alive:
            if replica.core.deadline_ms <= self.now_ms:
                replica.step(events.Tick())

    def run(self, for_ms: float, *, cut: frozenset[NodeId] = frozenset()) -> None:
        """A calm network: messages arrive in order and at once, disks sync at once. `cut` nodes hear nothing."""
        end_ms = self.now_ms + for_ms
        while True:
            self._settle(cut)
            deadlines = [replica.core.deadline_ms for replica in self.alive]
            next_ms = max(min(deadlines, default=end_ms), self.now_ms + 1)
            if next_ms > end_ms:
                self.now_ms = end_ms
                return
            self.advance(next_ms - self.now_ms)

    def run_one(self) -> None:
        """The next thing that happens on a calm network: a sync, a message, or a deadline."""
        for replica in self.alive:
            if replica.is_syncing:
                replica.sync()
                return
        if self.messages:
            self.deliver(self.messages.pop(0))
        else:
            self.advance(max(min(replica.core.deadline_ms for replica in self.alive) - self.now_ms, 1))

    def _settle(self, cut: frozenset[NodeId]) -> None:
        for _ in range(10_000):
            for replica in self.alive:
                if replica.is_syncing:
                    replica.sync()
            if not self.messages:
                return
            message = self.messages.pop(0)
            if {message.source, message.target} & cut or not self.replicas[message.target].alive:
                self.fail(message)
            else:
                self.deliver(message)
            self.check()
        raise ViolationError("calm", "the replicas never stop talking without time passing")
