"""A member of a classic group with a custom protocol: a `GroupProtocol` defines the members' metadata and assignments.

`GroupWorker` runs a `ClassicMember` on the network: one task joins, syncs and then sends heartbeats until there is a
reason to join again. Errors are logged and retried, with growing pauses, until the worker is closed. The last
assignment stays valid until the next one, also during a rebalance. It is `lost` when the coordinator has removed this
member, or has not answered for a session time-out, also during a join.

When another member takes over the instance id, this one waits for a session time-out and then joins without it:
otherwise the two would fence each other for ever. `registry.election` uses this.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.values import value_class
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators, is_transient
from rookery.client.membership.classic import ClassicMember, Step
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request
from rookery.protocol.messages import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from rookery.telemetry.library_logs import LibraryLogger

_log = LibraryLogger(__name__)

AnsweredT = TypeVar("AnsweredT", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse, LeaveGroupResponse)

_JOIN_LANE = "join"
# A coordinator answers a JoinGroup after the rebalance time-out at the latest; this allows for the network.
_JOIN_GRACE_S = 5.0
_LEAVE_TIMEOUT_S = 2.0


class GroupProtocol(Protocol):
    """The group-specific part of a worker. All methods are called on the event loop, and must do no IO."""

    @property
    def type(self) -> str: ...

    @property
    def name(self) -> str: ...

    def metadata(self) -> bytes:
        """Return the metadata of this member, which the leader's `assign` receives."""
        ...

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the assignment of each member. Called in the leader, with the metadata of all members."""
        ...

    def assigned(self, assignment: bytes) -> None: ...

    def lost(self) -> None:
        """Called when this member has no assignment any more."""
        ...

    def refused(self, error: ApiError) -> None:
        """Called when the coordinator rejects this member with an error that is not transient. The join is retried."""
        ...


@value_class(kw_only=True)
class WorkerSettings:
    """With an instance id, a member that was killed gets its old assignment back immediately (KIP-345)."""

    group_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int


class GroupWorker:
    def __init__(self, cluster: Cluster, settings: WorkerSettings, protocol: GroupProtocol) -> None:
        self._cluster = cluster
        self._settings = settings
        self._protocol = protocol
        self._member = ClassicMember(
            settings.group_id,
            instance_id=settings.instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=protocol.type,
        )
        self._coordinators = Coordinators(cluster)
        self._join_coordinators = Coordinators(cluster, lane=_JOIN_LANE)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._silence_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._restart_silence_timer()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def rejoin(self, reason: str) -> None:
        """Join again to get a new assignment."""
        self._member.request_rejoin(reason)
        self._wake.set()

    async def close(self, *, leave: bool = True) -> None:
        """Stop. With `leave=False` the group removes the member when its session expires, as after a crash."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        request = self._member.leave_request("the worker is closed", for_good=True)
        if leave and request is not None:
            # The call's own time-out does not include looking up the coordinator.
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                    await self._call(self._coordinators, ApiKey.LEAVE_GROUP, request, timeout_s=_LEAVE_TIMEOUT_S)
        self._stop_silence_timer()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._join()
                failures = 0
                await self._send_heartbeats()
            except ApiError as error:
                _log.warning("not in the group", group=self._settings.group_id, error=str(error), failures=failures)
                await self._fail(error)
            except Exception:
                # The protocol may raise on invalid metadata of other members. Retry: otherwise this task would end, and
                # this member would never come back to the group.
                self._lose("the last attempt failed", keep_member_id=True)
                _log.exception("the group's protocol failed", group=self._settings.group_id)
            else:
                continue
            await asyncio.sleep(self._cluster.backoff_s(failures))
            failures += 1

    async def _fail(self, error: ApiError) -> None:
        is_fenced = error.code is ErrorCode.FENCED_INSTANCE_ID
        self._lose("the last attempt failed", keep_member_id=not is_fenced)
        if not is_transient(error.code):
            self._protocol.refused(error)
        if is_fenced:
            self._member.drop_instance_id()
            await asyncio.sleep(self._settings.session_timeout_ms / 1000)

    def _lose(self, reason: str, *, keep_member_id: bool) -> None:
        self._stop_silence_timer()
        self._member.lose(reason, keep_member_id=keep_member_id)
        self._protocol.lost()

    async def _join(self) -> None:
        """Join and sync until there is an assignment."""
        attempt = 0
        while (step := await self._join_and_sync()) is not Step.ADOPT:
            if step is Step.LOSE:
                self._protocol.lost()
            if step is not Step.JOIN_NOW:
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1
        self._protocol.assigned(self._member.assignment)

    async def _join_and_sync(self) -> Step:
        protocol, settings = self._protocol, self._settings
        timeout_s = settings.rebalance_timeout_ms / 1000 + _JOIN_GRACE_S
        request = self._member.join_request([(protocol.name, protocol.metadata())])
        try:
            joined = await self._call(self._join_coordinators, ApiKey.JOIN_GROUP, request, timeout_s=timeout_s)
            step = self._member.joined(joined)
            if step is not Step.SYNC:
                return step
            to_sync = self._member.sync_request(self._assignments())
            synced = await self._call(self._join_coordinators, ApiKey.SYNC_GROUP, to_sync, timeout_s=timeout_s)
        except ApiError as error:
            if not is_transient(error.code):
                raise
            return Step.JOIN_LATER
        return self._member.synced(synced)

    def _assignments(self) -> Mapping[str, bytes]:
        if not self._member.must_assign:
            return {}
        return self._protocol.assign({member.member_id: member.metadata for member in self._member.members})

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until there is a reason to join again."""
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while self._member.rejoin_reason is None:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            if self._member.rejoin_reason is None:
                await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        """Send a heartbeat. Raises after a session time-out without a response: the member has been removed by then."""
        identity, timeout_s = self._member.identity, self._settings.session_timeout_ms / 1000
        request = self._member.heartbeat_request()
        response = await self._call(self._coordinators, ApiKey.HEARTBEAT, request, timeout_s=timeout_s)
        if self._member.on_error_code(ErrorCode(response.error_code), identity) is Step.LOSE:
            self._protocol.lost()

    async def _call(
        self,
        coordinators: Coordinators,
        api_key: ApiKey,
        request: Request[AnsweredT],
        *,
        timeout_s: float,
    ) -> AnsweredT:
        response = await coordinators.call(
            self._settings.group_id,
            api_key,
            lambda: request,
            codes=lambda response: [response.error_code],
            timeout_s=timeout_s,
        )
        self._restart_silence_timer()
        return response

    def _restart_silence_timer(self) -> None:
        """Restart the timer: the coordinator has answered, so the assignment is valid for another session time-out."""
        self._stop_silence_timer()
        loop = asyncio.get_running_loop()
        self._silence_timer = loop.call_later(self._settings.session_timeout_ms / 1000, self._on_silence)

    def _stop_silence_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()

    def _on_silence(self) -> None:
        _log.warning("the group's coordinator does not answer", group=self._settings.group_id)
        # The coordinator may come back and still have this member: then only a join restores the assignment that
        # `lost` drops here.
        self.rejoin("the coordinator was silent")
        self._protocol.lost()
