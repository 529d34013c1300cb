"""Steps of the quorum's core, and their effects on the disk, the connections and the clock of this node.

Every event reaches the core through `_step`, which runs on the event loop without an await: it carries out the effects
of one event in order before the next one begins. So a vote is on the disk before its response leaves, and the log has
what the core believes. Everything that takes long happens in tasks of its own, whose ends are events: syncs in a worker
thread (`Synced`), requests to other nodes (`Answered`, `Failed`), the download of a snapshot (`SnapshotEnded`). A timer
is set to the core's deadline. `driver` adds what the rest of the node calls.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import ApiError, ErrorCode, NotControllerError, RookeryError, StorageError
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum import events, wire
from rookery.quorum.controllers import Controllers
from rookery.quorum.core import QuorumCore
from rookery.quorum.events import Effect, RequestId
from rookery.quorum.log_view import LogPosition
from rookery.quorum.messages import DYNAMIC_VOTERS, kraft_version_record, leader_change_record, voters_record
from rookery.quorum.publication import Publication
from rookery.quorum.replica_log import ReplicaLog
from rookery.quorum.roles import Follower, Leader
from rookery.quorum.snapshot_download import Source, download
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import ReplicaKey, VoterSet
from rookery.quorum.wire import FetchedRecords, WireError
from rookery.records.record import Record, build_batch

logger = structlog.get_logger(__name__)

# An early timer must not make the loop spin until the deadline.
_TIMER_S_MIN = 0.001


class Proposal(NamedTuple):
    """A batch to append as the leader, and the caller that waits for it; no batch for a change of the voters."""

    batch: bytearray
    values: Sequence[bytes]
    waiter: "asyncio.Future[None]"


class ReceivedRequest(NamedTuple):
    """A request of another node that waits for the core's response. `max_bytes` bounds the records of a fetch."""

    response: "asyncio.Future[tuple[events.Response, bytes]]"
    max_bytes: int


class QuorumShell:
    """One replica at work. `_step` is the only way to the core."""

    def __init__(
        self,
        core: QuorumCore,
        log: ReplicaLog,
        controllers: Controllers,
        *,
        clock: Clock,
        settings: QuorumSettings,
        on_failure: Callable[[RookeryError], None] | None,
    ) -> None:
        self._core = core
        self._log = log
        self._controllers = controllers
        self._clock = clock
        self._settings = settings
        self._on_failure = on_failure
        self._publication = Publication(log)
        self._received: dict[RequestId, ReceivedRequest] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing: asyncio.Task[None] | None = None
        self._is_stepping = self._is_closed = False
        self._is_catching_up = False
        # When this node last had a leader.
        self._led_s = clock.monotonic()
        self._failure: RookeryError | None = None
        # The last error code of each node, so that it is logged once.
        self._warned: dict[NodeId | None, ErrorCode] = {}
        self._leader_change = asyncio.Event()
        # What was committed at the leader when this node first heard of it; None until then.
        self._target: Offset | None = None
        self._caught_up = asyncio.Event()
        # Whether the quorum refused this node before it had caught up, because it belongs to another cluster.
        self._is_refused = False

    @property
    def is_leading(self) -> bool:
        """Whether this node leads and knows what is committed."""
        return isinstance(self._core.role, Leader) and self._core.role.has_committed and self._failure is None

    @property
    def has_leader(self) -> bool:
        """Whether this node leads, or its last fetch from the leader succeeded and the connection is not lost."""
        role = self._core.role
        return self.is_leading or (isinstance(role, Follower) and role.has_fetched)

    def _step(
        self,
        event: events.Event | None,
        *,
        proposal: Proposal | None = None,
        fetched: Sequence[FetchedRecords] = (),
    ) -> None:
        """Pass an event to the core (None: start it) and carry out the effects."""
        if self._failure is not None or self._is_closed:
            return
        assert not self._is_stepping, "the effects of an event are carried out before the next event"
        self._is_stepping = True
        before = (self._core.leader_id, self._core.epoch)
        try:
            now_ms = self._now_ms()
            effects = self._core.start(now_ms) if event is None else self._core.step(event, now_ms)
            self._carry_out(effects, proposal, fetched)
        except RookeryError as error:
            self._fail(error)
            return
        finally:
            self._is_stepping = False
        self._set_timer()
        self._flush_soon()
        self._report_catching_up()
        if self.has_leader:
            self._led_s = self._clock.monotonic()
        if before != (self._core.leader_id, self._core.epoch):
            changed, self._leader_change = self._leader_change, asyncio.Event()
            changed.set()
        if self.is_leading or (self._target is not None and self._core.high_watermark >= self._target):
            self._caught_up.set()

    def _report_catching_up(self) -> None:
        must_catch_up = self._core.state.must_catch_up and isinstance(self._core.role, Follower)
        if must_catch_up and not self._is_catching_up:
            logger.warning(
                "this voter has an empty log and does not vote until it has caught up",
                leader=self._core.leader_id,
                change="nothing if the voter is new, or its disk was replaced; else stop it, and correct "
                "metadata.log.dir or log.dirs",
            )
        elif self._is_catching_up and not self._core.state.must_catch_up:
            logger.info("this voter has caught up and votes")
        self._is_catching_up = self._core.state.must_catch_up and (must_catch_up or self._is_catching_up)

    def _carry_out(
        self, effects: Iterable[Effect], proposal: Proposal | None, fetched: Sequence[FetchedRecords]
    ) -> None:
        for effect, following in pairwise([*effects, None]):
            match effect:
                case events.Save(state):
                    # Nothing depends on a state that the next effect replaces.
                    if not isinstance(following, events.Save):
                        self._log.save(state)
                case events.Truncate(end_offset):
                    self._log.truncate(end_offset)
                case events.AppendLeaderChange(epoch, base_offset, granting, voters):
                    self._log.append(self._leader_change_batch(granting, voters), epoch, base_offset)
                case events.AppendVoters(epoch, base_offset, voters, is_upgrade):
                    assert proposal is not None
                    records = [kraft_version_record(DYNAMIC_VOTERS)] if is_upgrade else []
                    records.append(voters_record(voters))
                    self._log.append(self._control_batch(records), epoch, base_offset)
                    self._publication.add_control(base_offset, len(records), proposal.waiter)
                case events.AppendProposal(epoch, base_offset):
                    assert proposal is not None
                    self._log.append(proposal.batch, epoch, base_offset)
                    self._publication.add(base_offset, proposal.values, proposal.waiter)
                case events.RefuseProposal(epoch):
                    assert proposal is not None
                    proposal.waiter.set_exception(NotControllerError(f"this node does not lead epoch {epoch}"))
                case events.AppendFetched(batch_count):
                    for batch in fetched[:batch_count]:
                        self._log.append_fetched(batch.data, batch.header)
                case None:
                    raise AssertionError("only the last pair has none")
                case _:
                    self._carry_out_message(effect)

    def _carry_out_message(self, effect: Effect) -> None:
        match effect:
            case events.Send(request_id, to, request):
                self._spawn(self._send(request_id, to, request))
            case events.Respond(request_id, response):
                self._respond(request_id, response)
            case events.SendRecords(request_id, response, offset):
                # Read now: after a truncation, other records of a later epoch may be at this offset.
                received = self._received.get(request_id)
                if received is not None:
                    self._respond(request_id, response, self._log.read(offset, received.max_bytes))
            case events.Commit(high_watermark):
                self._publication.commit(high_watermark)
            case events.Lead(epoch):
                logger.info("leads the quorum", epoch=epoch)
                self._publication.lead(epoch)
            case events.StopLeading():
                self._publication.stop_leading()
            case events.VoterWentBack(replica, offset, acknowledged):
                logger.error(
                    "a voter has lost records that it had acknowledged",
                    node_id=replica.node_id,
                    offset=offset,
                    acknowledged=acknowledged,
                    change="if its disk was replaced, it copies the log and votes again then; if the disk is an old "
                    "copy, stop the node and format it again",
                )
            case events.DownloadSnapshot(leader_id, epoch, snapshot):
                self._spawn(self._download(leader_id, epoch, snapshot))

    def _leader_change_batch(self, granting: Sequence[ReplicaKey], voters: VoterSet | None) -> bytearray:
        records = [leader_change_record(self._core.me.node_id, voters=self._core.voters.keys, granting=granting)]
        if voters is not None:
            records += [kraft_version_record(DYNAMIC_VOTERS), voters_record(voters)]
        return self._control_batch(records)

    def _control_batch(self, records: Sequence[tuple[bytes, bytes]]) -> bytearray:
        now_ms = self._clock.now_ms()
        return build_batch([Record(index, now_ms, *record) for index, record in enumerate(records)], control=True)

    def _respond(self, request_id: RequestId, response: events.Response, records: bytes = b"") -> None:
        received = self._received.get(request_id)
        # The request's connection may be gone.
        if received is not None and not received.response.done():
            received.response.set_result((response, records))

    def _fail(self, error: RookeryError) -> None:
        """Take no part in the quorum any more: what the core believes may not be on the disk."""
        if self._failure is not None:
            return
        self._failure = error
        logger.error("this node leaves the quorum until it is restarted", error=str(error))
        self._cancel_timer()
        self._publication.stop_leading(self._failure_error())
        for received in self._received.values():
            if not received.response.done():
                received.response.set_exception(WireError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        # Callers that wait for another leader, or for the metadata, look at `failure`.
        self._leader_change.set()
        self._caught_up.set()
        if self._on_failure is not None:
            self._on_failure(error)

    def _failure_error(self) -> RookeryError:
        """Return a new exception: re-raising one would accumulate tracebacks."""
        if isinstance(self._failure, StorageError):
            return self._log.log_directory.offline_error()
        return NotControllerError(f"this node takes no part in the quorum any more: {self._failure}")

    # Tasks

    def _spawn(self, body: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(body)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, request_id: RequestId, to: NodeId | None, request: events.Request) -> None:
        try:
            incoming = await self._controllers.ask(to, request)
        except ApiError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION and isinstance(request, events.VoteRequest):
                unsupported = events.VoteResponse(ErrorCode.UNSUPPORTED_VERSION, request.epoch, None)
                self._step(events.Answered(request_id, unsupported))
            else:
                self._step(events.Failed(request_id))
        except WireError as error:
            if self._warned.get(to) is not error.code:
                # Once, not for each retry.
                self._warned[to] = error.code
                logger.warning("a request of the quorum failed", node_id=to, code=error.code.name, reason=str(error))
            if self._controllers.is_refused and not self._caught_up.is_set():
                self._is_refused = True
                self._caught_up.set()
            self._step(events.Failed(request_id))
        except Exception:
            # A bug. The core must learn of the end of every request: it sends no other fetch meanwhile.
            logger.exception("request failed", node_id=to, request=type(request).__name__)
            self._step(events.Failed(request_id))
        else:
            self._warned.pop(to, None)
            self._accept(request_id, incoming)

    def _accept(self, request_id: RequestId, incoming: wire.Incoming) -> None:
        response = incoming.response
        if isinstance(response, events.FetchResponse) and response.error is ErrorCode.NONE and self._target is None:
            self._target = response.high_watermark if response.high_watermark >= 0 else None
        self._step(events.Answered(request_id, response), fetched=incoming.batches)

    async def _download(self, leader_id: NodeId, epoch: LeaderEpoch, position: LogPosition) -> None:
        controllers = self._controllers
        source = Source(controllers.peers, leader_id, epoch, self._core.me, controllers.cluster_id, self._settings)
        try:
            snapshot = await download(
                self._log,
                source,
                position,
                on_progress=lambda: self._step(events.SnapshotProgress()),
                is_wanted=lambda: self._core.downloading == position and self._failure is None,
            )
        except StorageError as error:
            self._fail(error)
            return
        if snapshot is None:
            self._step(events.SnapshotFailed(position))
        else:
            self._step(events.SnapshotEnded(position, snapshot.voters))

    def _flush_soon(self) -> None:
        must_sync = not self._core.is_observer and self._log.end_offset > self._log.synced_offset
        if must_sync and self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Sync the log until all of it is synced; batches that are appended meanwhile are in the next sync."""
        try:
            while self._failure is None and self._log.end_offset > self._log.synced_offset:
                await self._log.flush()
                self._step(events.Synced(self._log.synced_offset))
        except RookeryError as error:
            self._fail(error)
        except BaseException as error:
            # Callers of `append` would wait for ever.
            self._publication.stop_leading(error)
            raise
        finally:
            self._flushing = None

    async def _flushed(self) -> None:
        if self._flushing is not None:
            await asyncio.shield(self._flushing)

    def _set_timer(self) -> None:
        self._cancel_timer()
        deadline_ms = self._core.deadline_ms
        if deadline_ms < inf:
            delay_s = max((deadline_ms - self._now_ms()) / 1000, _TIMER_S_MIN)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._step, events.Tick())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
