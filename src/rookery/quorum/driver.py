"""The quorum as the rest of the node uses it: start, append, follow what is committed, answer requests of other nodes.

One append is one batch: its records survive together or not at all. Appends are not serialised: a sync covers all
batches that were appended before it began. A sole voter has nothing to wait for: it leads when `start` returns.

`core` decides, `shell` carries out, `replica_log` has the files, `publication` passes committed batches to this node,
`controllers` sends requests, `wire` and `voter_changes` convert messages, and `snapshot_download` fetches snapshots.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, NamedTuple, cast
from uuid import UUID

import structlog

from rookery.base.bounds import METADATA_RECORDS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.errors import ApiError, ErrorCode, RookeryError, StartupError, StorageError
from rookery.base.files import Files
from rookery.base.types import LeaderEpoch, NodeId, Offset, TimestampMs
from rookery.net.address import Address
from rookery.net.opener import UNPROTECTED, ChannelOpener
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.quorum import description, events, voter_changes, wire
from rookery.quorum.controllers import Controllers
from rookery.quorum.core import QuorumCore
from rookery.quorum.events import RequestId
from rookery.quorum.messages import DYNAMIC_VOTERS
from rookery.quorum.publication import CommitListener, EpochListener, Listener, SnapshotListener, iterate_values
from rookery.quorum.replica_log import METADATA_LOG_CONFIG, ReplicaLog
from rookery.quorum.roles import Follower, Leader, Resigned
from rookery.quorum.shell import Proposal, QuorumShell, ReceivedRequest
from rookery.quorum.snapshots import Snapshot
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voter_changes import NewVoter, Report, VoterChange
from rookery.quorum.voters import NO_DIRECTORY, Endpoint, ReplicaKey, VoterHistory, VoterSet
from rookery.quorum.wire import WireError
from rookery.records.record import Record, build_batch
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory

logger = structlog.get_logger(__name__)

CONTROLLER_LISTENER = "CONTROLLER"
_RESIGN_TIMEOUT_S = 1.0
_SNAPSHOT_PIECE_MAX = 8 << 20


class QuorumStatus(NamedTuple):
    """The state of this node in the quorum, under Kafka's names."""

    state: str
    voted: NodeId | None
    last_epoch: LeaderEpoch


class QuorumDriver(QuorumShell):
    """Made by `open`; `start` begins. `follow` publishes what is committed to the node."""

    def __init__(
        self,
        core: QuorumCore,
        log: ReplicaLog,
        controllers: Controllers,
        *,
        clock: Clock,
        settings: QuorumSettings,
        joins: bool,
        executor: Executor | None,
        on_failure: Callable[[RookeryError], None] | None,
    ) -> None:
        super().__init__(
            core,
            log,
            controllers,
            clock=clock,
            settings=settings,
            on_failure=on_failure,
        )
        self._joins = joins
        self._executor = executor
        self._last_received: RequestId = 0
        self._is_started = False
        # The epoch whose leader knows the directory of this voter of the configuration.
        self._reported_epoch: LeaderEpoch | None = None

    @classmethod
    def open(
        cls,
        files: Files,
        log_directory: LogDirectory,
        *,
        node_id: NodeId,
        clock: Clock,
        cluster_id: str = "",
        directory_id: UUID = NO_DIRECTORY,
        voters: VoterSet | None,
        settings: QuorumSettings | None = None,
        jitter: Callable[[], float] = lambda: 0.0,
        bootstrap: Sequence[Address] = (),
        listener_name: str = CONTROLLER_LISTENER,
        endpoints: Mapping[str, Endpoint] | None = None,
        is_observer: bool = False,
        joins: bool = False,
        executor: Executor | None = None,
        config: LogConfig = METADATA_LOG_CONFIG,
        on_failure: Callable[[RookeryError], None] | None = None,
        opener: ChannelOpener = UNPROTECTED,
    ) -> "QuorumDriver":
        """Recover the log. Blocks; StorageError or CorruptionError if that cannot be done.

        `voters` are those of the configuration; None: only the log has them. Those in the log, or with which the node
        was formatted, come first. Without any, this node waits for those of a leader.
        `jitter` returns random numbers from 0 up to 1. `bootstrap` are addresses of controllers, one of which may know
        the leader. `endpoints` are those at which other nodes reach this one, by the name of the listener;
        `listener_name` is the listener of controllers. `is_observer`: this node is not a controller, and can never
        become a voter. `joins`: it becomes one by itself (`controller.quorum.auto.join.enable`). `on_failure` is called
        with the value of `failure`. `opener` opens the connections to other controllers.

        DamagedLogError, with all files as they were, if something that was synced cannot be read.
        """
        log = ReplicaLog.open(files, log_directory, clock=clock, executor=executor, config=config)
        settings, me = settings or QuorumSettings(), ReplicaKey(node_id, directory_id)
        core = _new_core(me, log, log.voter_history(voters), settings, jitter, is_observer=is_observer)
        controllers = Controllers(
            core,
            cluster_id=cluster_id,
            settings=settings,
            jitter=jitter,
            bootstrap=bootstrap,
            listener_name=listener_name,
            endpoints=endpoints or {},
            on_lost=lambda lost_id: driver.connection_lost(lost_id),
            opener=opener,
        )
        driver = cls(
            core,
            log,
            controllers,
            clock=clock,
            settings=settings,
            joins=joins,
            executor=executor,
            on_failure=on_failure,
        )
        return driver

    # State

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the epoch, as far as this node knows; it may have lost that role."""
        return self._core.leader_id

    @property
    def leaderless_s(self) -> float:
        """For how long this node has had no leader that it can reach; 0 while it has one."""
        return 0 if self.has_leader else self._clock.monotonic() - self._led_s

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._core.epoch

    @property
    def high_watermark(self) -> Offset:
        """The offset after the last record that this node knows to be committed."""
        return self._core.high_watermark

    @property
    def next_offset(self) -> Offset:
        """Where the next appended record will be."""
        return self._log.end_offset

    @property
    def voters(self) -> VoterSet:
        return self._core.voters

    @property
    def status(self) -> QuorumStatus:
        core = self._core
        name = type(core.role).__name__.lower()
        return QuorumStatus(
            state="observer" if name == "follower" and not core.is_voter else name,
            voted=None if core.state.voted is None else core.state.voted.node_id,
            last_epoch=core.log.last_epoch,
        )

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version`: 1 if the voters are in the log, 0 if they are in the configuration."""
        return DYNAMIC_VOTERS if self._core.voter_history.is_dynamic else 0

    @property
    def failure(self) -> RookeryError | None:
        """Why this node takes no part in the quorum any more: its disk failed, or the logs contradict each other."""
        return self._failure

    @property
    def is_online(self) -> bool:
        """False after a failure of the disk: nothing can be appended until a restart."""
        return self._log.log_directory.is_online

    def address_of(self, node_id: NodeId) -> Address | None:
        """Return where a controller, or a bootstrap server, can be reached; None if that is not known."""
        return self._controllers.address_of(node_id)

    async def leader_changed(self) -> None:
        """Return when this node learns of another leader or epoch."""
        await self._leader_change.wait()

    # Starting and stopping

    async def start(self) -> None:
        """Start the core; a sole voter leads when this returns. StorageError if its disk fails."""
        self._is_started = True
        self._step(None)
        is_alone = self._core.voters.is_only_voter(self._core.me)
        if not self._core.is_observer and (self._core.voter_history.is_dynamic or not is_alone):
            self._spawn(self._keep_membership())
        if is_alone:
            await self._flushed()
            if self._failure is not None:
                raise self._failure

    async def caught_up(self) -> None:
        """Return when this node has everything that was committed when it first heard of the leader.

        Raises StartupError if the controllers belong to another cluster: without it, the node would wait for ever. If
        this node has failed before, raises the failure.
        """
        await self._caught_up.wait()
        if self._failure is not None:
            raise self._failure
        if self._is_refused:
            raise StartupError(
                f"this node belongs to cluster {self._controllers.cluster_id}, and the controllers to another one: "
                "correct controller.quorum.voters or controller.quorum.bootstrap.servers, or format the directories "
                "for that cluster"
            )

    async def resign(self) -> None:
        """Let another voter lead, and wait until the others know; without other voters this does nothing."""
        if not isinstance(self._core.role, Leader) or len(self._core.voters) == 1:
            return
        self._step(events.Resign())
        deadline_s = self._clock.monotonic() + _RESIGN_TIMEOUT_S
        while isinstance(self._core.role, Resigned) and self._core.role.unaware:
            if self._clock.monotonic() >= deadline_s or self._failure is not None:
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop, sync and close the log. The core is not stepped any more."""
        self._is_closed = True
        self._cancel_timer()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._flushed()
        await self._publication.close()
        await self._controllers.peers.close()
        for received in self._received.values():
            received.response.cancel()
        self._log.close()

    # The log

    def take_loaded(self) -> Snapshot | None:
        """Return the newest snapshot, which `batches` continues, once: it is large."""
        return self._log.take_loaded()

    def batches(self, end_offset: Offset | None = None) -> Iterator[tuple[Offset, Iterable[bytes]]]:
        """Yield the committed batches after the newest snapshot: the offset of the first record, and the values.

        The values are read one by one: a batch may have ten thousand. `end_offset` is a high watermark; None: the
        present one.
        """
        start = max(self._log.start_offset, self._log.newest.offset)
        end = self._core.high_watermark if end_offset is None else end_offset
        for header, batch in self._log.batches(start, end):
            if not header.is_control:
                yield header.base_offset, iterate_values(batch)

    def follow(
        self,
        on_commit: CommitListener,
        on_snapshot: SnapshotListener | None = None,
        *,
        from_offset: Offset,
        on_lead: EpochListener | None = None,
        on_stop_leading: EpochListener | None = None,
    ) -> None:
        """From now on pass each committed batch from `from_offset` on to `on_commit`, and wait for it.

        `on_snapshot` gets a snapshot that replaces everything before its end. `on_lead` is called when this node leads
        an epoch and everything that was committed before has been published; `on_stop_leading` after that, when it does
        not lead any more.
        """
        self._publication.follow(Listener(on_commit, on_snapshot, on_lead, on_stop_leading), from_offset)

    async def append(self, values: Sequence[bytes], *, epoch: LeaderEpoch | None = None) -> None:
        """Append records as one batch, as the leader of `epoch`; None: of the present one.

        Returns when they are committed and published here; raises what `propose` raises, or its future.
        """
        _, published = await self.propose(values, epoch=self._core.epoch if epoch is None else epoch)
        await published

    async def propose(self, values: Sequence[bytes], *, epoch: LeaderEpoch) -> "tuple[Offset, asyncio.Future[None]]":
        """Append records as one batch, as the leader of `epoch`, without waiting for their commit.

        Returns the offset of the last one, and a future that is done when they are committed and published here.
        NotControllerError if this node does not lead the epoch; from the future, if it stopped to before they were
        committed: the next leader may still commit them. StorageError if the disk failed.
        """
        batch = await self._build(values)
        published = self._propose(events.Propose(epoch, len(values)), batch, values)
        if published.done():
            # Refused: nothing was appended. A sole voter, too, commits in a later turn of the loop.
            published.result()
        return self._log.end_offset - 1, published

    def _propose(
        self, event: events.Propose | events.ChangeVoters, batch: bytearray, values: Sequence[bytes]
    ) -> "asyncio.Future[None]":
        """Append a batch as the leader. The future has a result when it is committed, and published if it has values.

        StorageError if this node has failed.
        """
        if self._failure is not None:
            raise self._failure_error()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._step(event, proposal=Proposal(batch, values, waiter))
        if not waiter.done() and self._failure is not None:
            raise self._failure_error()
        return waiter

    async def _build(self, values: Sequence[bytes]) -> bytearray:
        now_ms = self._clock.now_ms()
        if len(values) <= METADATA_RECORDS_PER_SLICE:
            return _value_batch(values, now_ms)
        # To build a batch of thousands of records would hold up the event loop; it needs nothing but them.
        return await asyncio.get_running_loop().run_in_executor(self._executor, _value_batch, values, now_ms)

    @property
    def snapshot_end(self) -> Offset:
        """The end of the newest snapshot that can be read; 0 if there is none."""
        return self._log.newest.offset

    def bytes_since_snapshot(self) -> int:
        """Return the size of the log after the newest snapshot."""
        return self._log.bytes_since_snapshot()

    async def take_snapshot(self, end_offset: Offset, values: Iterable[bytes]) -> None:
        """Write a snapshot that replaces the log before `end_offset`, the end of a committed batch.

        `values` are iterated in a worker thread: encoding the records of ten thousand partitions takes long.
        """
        # A snapshot of what is not committed would keep it, although another leader may have removed it.
        assert self._log.newest.offset < end_offset <= self._core.high_watermark, "only committed records, and new ones"
        voters = self._core.voter_history.recorded_before(end_offset)
        await self._log.take_snapshot(end_offset, values, voters)

    async def clean(self, *, retention_bytes: int, retention_ms: int) -> None:
        """Remove the oldest snapshots, and the log before the oldest that stays, while they are too large or too old.

        The newest snapshot that can be read stays. A negative limit is none.
        """
        await self._log.clean(retention_bytes=retention_bytes, retention_ms=retention_ms)

    # Requests of other nodes

    async def receive(self, api_key: ApiKey, request: Request[ResponseT]) -> ResponseT:
        """Answer a request of the quorum: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, DescribeQuorum,
        AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter. A fetch waits for records if there are none.
        """
        try:
            self._check_serving()
            if api_key == ApiKey.FETCH_SNAPSHOT:
                return cast(ResponseT, await self._serve_snapshot(request))
            if api_key in voter_changes.CHANGES:
                return cast(ResponseT, await self._serve_change(api_key, request))
            if api_key == ApiKey.DESCRIBE_QUORUM:
                return cast(ResponseT, self._describe(request))
            return cast(ResponseT, await self._receive(api_key, request))
        except WireError as error:
            if error.code == ErrorCode.INCONSISTENT_CLUSTER_ID:
                logger.error("refused a request of another cluster", api=api_key.name, reason=str(error))
            return cast(ResponseT, self._error_response(api_key, error))

    def _error_response(self, api_key: ApiKey, error: WireError) -> Any:
        if api_key in voter_changes.CHANGES:
            endpoints = self._controllers.leader_endpoint()
            return voter_changes.change_response(api_key, error.code, str(error), self._core, endpoints)
        return wire.error_response(api_key, error.code)

    def _check_serving(self) -> None:
        if self._failure is not None:
            raise WireError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._failure))
        if not self._is_started or self._is_closed:
            raise WireError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is starting or stopping")

    async def _receive(self, api_key: ApiKey, message: Any) -> Any:
        request = wire.decode_request(api_key, message, me=self._core.me, cluster_id=self._controllers.cluster_id)
        if isinstance(request, events.BeginEpochRequest | events.EndEpochRequest):
            endpoint = wire.request_endpoint(message, self._controllers.listener_name)
            self._controllers.learn(request.leader_id, endpoint)
        self._last_received += 1
        request_id = self._last_received
        max_bytes = wire.fetch_limit(message) if isinstance(request, events.FetchRequest) else 0
        received = ReceivedRequest(asyncio.get_running_loop().create_future(), max_bytes)
        self._received[request_id] = received
        try:
            self._step(events.Received(request_id, request))
            self._check_serving()
            response, records = await received.response
        finally:
            del self._received[request_id]
        return wire.encode_response(api_key, response, records, self._controllers.leader_endpoint())

    async def _serve_snapshot(self, message: Any) -> Any:
        request = wire.decode_snapshot_request(message, cluster_id=self._controllers.cluster_id)
        piece, error = wire.SnapshotPiece(0, request.position, b""), self._snapshot_error(request)
        if error is ErrorCode.NONE:
            self._step(events.SnapshotServed(request.replica))
            limit = min(request.max_bytes, _SNAPSHOT_PIECE_MAX)
            found = await self._log.snapshot_piece(request.snapshot, request.position, limit)
            if found is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < found[0]:
                error = ErrorCode.POSITION_OUT_OF_RANGE
            else:
                piece = wire.SnapshotPiece(found[0], request.position, found[1])
        return wire.snapshot_response(
            request.snapshot,
            piece,
            error=error,
            leader_id=self._core.leader_id,
            epoch=self._core.epoch,
            endpoints=self._controllers.leader_endpoint(),
        )

    def _snapshot_error(self, request: wire.SnapshotRequest) -> ErrorCode:
        if request.epoch < self._core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > self._core.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self._core.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # The voters

    async def _serve_change(self, api_key: ApiKey, message: Any) -> Any:
        change = self._decide_change(api_key, message)
        if isinstance(change, NewVoter):
            try:
                versions = await self._controllers.kraft_versions(change.endpoint)
            except ApiError as error:
                reason = f"node {message.voter_id} must run and be reached at its endpoint: {error}"
                raise WireError(ErrorCode.REQUEST_TIMED_OUT, reason) from error
            self._check_serving()
            # Once more: another request may have changed the voters meanwhile, or this node does not lead any more.
            change = self._decide_change(api_key, message, versions)
        if isinstance(change, Report):
            self._step(events.VoterReported(self._core.epoch, change.voter))
        elif isinstance(change, VoterChange) and change.voters is not None:
            timeout_ms = getattr(message, "timeout_ms", self._settings.request_timeout_ms)
            await self._change_voters(change.voters, timeout_ms / 1000 if change.is_awaited else None)
        endpoints = self._controllers.leader_endpoint()
        return voter_changes.change_response(api_key, ErrorCode.NONE, None, self._core, endpoints)

    def _decide_change(
        self, api_key: ApiKey, message: Any, kraft_versions: tuple[int, int] | None = None
    ) -> VoterChange | NewVoter | Report:
        return voter_changes.decide_change(
            api_key,
            message,
            self._core,
            cluster_id=self._controllers.cluster_id,
            listener_name=self._controllers.listener_name,
            now_ms=self._now_ms(),
            kraft_versions=kraft_versions,
        )

    async def _change_voters(self, voters: VoterSet, timeout_s: float | None) -> None:
        """Append a new set of voters, and wait for its commit if `timeout_s` is given; WireError if that fails."""
        try:
            waiter = self._propose(events.ChangeVoters(self._core.epoch, voters), bytearray(), ())
            if waiter.done():
                waiter.result()
            if timeout_s is not None:
                await asyncio.wait_for(waiter, timeout_s)
        except ApiError as error:
            raise WireError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
        except StorageError as error:
            raise WireError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except TimeoutError:
            raise WireError(ErrorCode.REQUEST_TIMED_OUT, "the change is not committed yet, but may be later") from None
        logger.info("changed the voters", voters=[key.node_id for key in voters.keys])

    async def upgrade_kraft_version(self, *, epoch: LeaderEpoch, validate_only: bool = False) -> None:
        """Write the voters of the configuration into the log, as the leader of `epoch`: `kraft.version` 1 (KIP-853).

        Returns when that is committed; nothing happens if the voters are in the log. ApiError INVALID_UPDATE_VERSION
        with the reason if it is not possible, or what `append` raises.
        """
        try:
            voters = voter_changes.decide_upgrade(self._core, self._controllers.own_voter)
        except WireError as error:
            raise ApiError(error.code, str(error)) from error
        if voters is not None and not validate_only:
            await self._propose(events.ChangeVoters(epoch, voters), bytearray(), ())
            logger.info("the voters are in the metadata log now", voters=[key.node_id for key in voters.keys])

    async def _keep_membership(self) -> None:
        """Report this voter to the leader, and join the voters if this node shall do so by itself."""
        reason = ""
        while self._failure is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.fetch_timeout_ms / 1000):
                    # A new leader does not know the directories of the voters of the configuration.
                    await self.leader_changed()
            try:
                await self._update_membership()
                reason = ""
            except (ApiError, WireError) as error:
                if reason != str(error):
                    # Once, not for each retry.
                    reason = str(error)
                    logger.warning("the membership of this node was not updated", reason=reason)

    async def _update_membership(self) -> None:
        core, controllers = self._core, self._controllers
        me, mine = core.me, core.voters.get(core.me.node_id)
        is_outdated = mine is not None and mine.key == me and mine != controllers.own_voter
        if not core.voter_history.is_dynamic:
            is_outdated = core.is_voter and self._reported_epoch != core.epoch
        if isinstance(core.role, Leader):
            is_recorded = core.voter_history.is_dynamic
            if is_outdated and is_recorded and core.role.has_committed and not core.has_voter_change:
                await self._change_voters(core.voters.with_voter(controllers.own_voter), None)
        elif isinstance(core.role, Follower):
            leader_id = core.role.leader_id
            if is_outdated:
                epoch = core.epoch
                update = voter_changes.update_request(me, epoch, controllers.cluster_id, controllers.endpoints)
                updated = await controllers.request(leader_id, ApiKey.UPDATE_RAFT_VOTER, update)
                if updated.error_code == ErrorCode.NONE:
                    self._reported_epoch = epoch
            elif self._joins and mine is not None and mine.key != me:
                removal = voter_changes.removal_request(mine.key, controllers.cluster_id)
                await controllers.request(leader_id, ApiKey.REMOVE_RAFT_VOTER, removal)
            elif self._joins and mine is None:
                addition = voter_changes.addition_request(me, controllers.cluster_id, controllers.endpoints)
                added = await controllers.request(leader_id, ApiKey.ADD_RAFT_VOTER, addition, version_min=1)
                if added.error_code != ErrorCode.NONE:
                    raise WireError(ErrorCode(added.error_code), f"this node cannot join: {added.error_message}")

    def _describe(self, message: Any) -> Any:
        return description.describe_quorum(
            message,
            self._core,
            now_ms=self._now_ms(),
            wall_ms=self._clock.now_ms(),
            endpoints=self._controllers.endpoints,
        )

    def connection_lost(self, node_id: NodeId) -> None:
        """Take the loss of a connection as a hint that the node's process has ended."""
        if self._is_started:
            self._step(events.ConnectionLost(node_id))


def _value_batch(values: Sequence[bytes], now_ms: TimestampMs) -> bytearray:
    return build_batch([Record(index, now_ms, None, value) for index, value in enumerate(values)])


def _new_core(
    me: ReplicaKey,
    log: ReplicaLog,
    voters: VoterHistory,
    settings: QuorumSettings,
    jitter: Callable[[], float],
    *,
    is_observer: bool,
) -> QuorumCore:
    return QuorumCore(
        me,
        state=log.state,
        log=log.view(),
        voters=voters,
        settings=settings,
        jitter=jitter,
        is_observer=is_observer,
    )
