"""A member of a classic group with a protocol of its own: what its members say and are assigned is up to them.

`GroupWorker` runs a `ClassicMember` on the network: one task joins, syncs and then sends heartbeats, until there is a
reason to join again. Whatever fails is logged and tried again, with growing pauses, until the worker is closed. What
was assigned last holds until there is something new, also while the group rebalances; it is `lost` when the coordinator
has given us up, or has not been heard of for a session time-out, in a join too.

Whose instance id is taken by another steps back for a session time-out, and then joins without it: two members that
take the same place from each other would do so for ever. `registry.election` uses this.
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
# A coordinator answers a JoinGroup when the rebalance time-out is over; this is for the way.
_JOIN_GRACE_S = 5.0
_LEAVE_TIMEOUT_S = 2.0


class GroupProtocol(Protocol):
    """What is particular to a group. All of it is called on the event loop, and does no IO."""

    @property
    def type(self) -> str: ...

    @property
    def name(self) -> str: ...

    def metadata(self) -> bytes:
        """What the others are told of this member."""
        ...

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """As the group's leader: from what the members said to what each is assigned."""
        ...

    def assigned(self, assignment: bytes) -> None: ...

    def lost(self) -> None:
        """Nothing is assigned to this member any more."""
        ...

    def refused(self, error: ApiError) -> None:
        """The group does not take this member, for a reason that does not pass by itself. It is tried again."""
        ...


@value_class(kw_only=True)
class WorkerSettings:
    """With an instance id, a member that was killed comes back in its own place at once (KIP-345)."""

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
        self._silence: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._hear()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def rejoin(self, reason: str) -> None:
        """Ask the group anew for an assignment."""
        self._member.request_rejoin(reason)
        self._wake.set()

    async def close(self, *, leave: bool = True) -> None:
        """Without leaving, the group notices when the session is over, as if the process had been killed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        request = self._member.leave_request("the worker is closed", for_good=True)
        if leave and request is not None:
            # The call's own time-out does not count looking for the coordinator.
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                    await self._call(self._coordinators, ApiKey.LEAVE_GROUP, request, timeout_s=_LEAVE_TIMEOUT_S)
        self._stop_listening()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._join()
                failures = 0
                await self._stay()
            except ApiError as error:
                _log.warning("not in the group", group=self._settings.group_id, error=str(error), failures=failures)
                await self._fail(error)
            except Exception:
                # What other members say is not ours to trust; the group must not stand still because of it.
                self._lose("the last try failed", keep_member_id=True)
                _log.exception("the group's protocol failed", group=self._settings.group_id)
            else:
                continue
            await asyncio.sleep(self._cluster.backoff_s(failures))
            failures += 1

    async def _fail(self, error: ApiError) -> None:
        is_fenced = error.code is ErrorCode.FENCED_INSTANCE_ID
        self._lose("the last try failed", keep_member_id=not is_fenced)
        if not is_transient(error.code):
            self._protocol.refused(error)
        if is_fenced:
            self._member.give_up_instance()
            await asyncio.sleep(self._settings.session_timeout_ms / 1000)

    def _lose(self, reason: str, *, keep_member_id: bool) -> None:
        self._stop_listening()
        self._member.lose(reason, keep_member_id=keep_member_id)
        self._protocol.lost()

    async def _join(self) -> None:
        """Until there is an assignment."""
        attempt = 0
        while (step := await self._join_and_sync()) is not Step.SETTLE:
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

    async def _stay(self) -> None:
        """Send heartbeats, until there is a reason to join again."""
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while self._member.rejoin_reason is None:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            if self._member.rejoin_reason is None:
                await self._beat()

    async def _beat(self) -> None:
        """Raises if the coordinator cannot be reached for a session time-out: by then it has given us up."""
        who, timeout_s = self._member.identity, self._settings.session_timeout_ms / 1000
        request = self._member.heartbeat_request()
        response = await self._call(self._coordinators, ApiKey.HEARTBEAT, request, timeout_s=timeout_s)
        if self._member.told(ErrorCode(response.error_code), who) is Step.LOSE:
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
        self._hear()
        return response

    def _hear(self) -> None:
        """The coordinator answers: what was assigned holds for another session time-out."""
        self._stop_listening()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self._settings.session_timeout_ms / 1000, self._miss)

    def _stop_listening(self) -> None:
        if self._silence is not None:
            self._silence.cancel()

    def _miss(self) -> None:
        _log.warning("the group's coordinator does not answer", group=self._settings.group_id)
        # It may answer again and not have missed us: then only a join brings back what was assigned.
        self.rejoin("the coordinator was silent")
        self._protocol.lost()
