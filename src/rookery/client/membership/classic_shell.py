"""A consumer's membership in a classic group: runs a `ClassicMember` on the network, concurrently with the polls.

Three parts run concurrently. `poll`, called by the application's polls, makes all changes of the assignment: it revokes
partitions, calls listeners, assigns new partitions. A task per join sends JoinGroup and SyncGroup, on a separate
connection, because a JoinGroup is answered only when all members have joined. Another task sends heartbeats, and leaves
the group when the application has not polled for max.poll.interval.ms.

The order of a rebalance. Eager: stop reading everything, commit, `revoked`, join, sync, `assigned`. Cooperative:
commit, join, sync; for the partitions that move to others stop reading, commit, `revoked`; `assigned` with the new
ones; join again if any were revoked. When the group has removed this member: `lost`, and join again. If a poll is
cancelled in the middle, the next poll continues.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from copy import copy

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicName
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators, is_transient
from rookery.client.errors import CommitFailedError
from rookery.client.membership.assignors.base import Assignor, RebalanceProtocol
from rookery.client.membership.assignors.catalogue import common_protocol
from rookery.client.membership.classic import ClassicMember, Step
from rookery.client.membership.committer import Committer
from rookery.client.membership.handover import Handover
from rookery.client.membership.interfaces import AssignmentHost, ConsumerGroupMetadata, GroupMetrics
from rookery.client.membership.leader import GroupMembers, partition_counts, partition_racks
from rookery.client.membership.poll_timer import PollTimer
from rookery.client.membership.settings import GroupSettings
from rookery.protocol import consumer_protocol
from rookery.protocol.api import ApiKey
from rookery.protocol.consumer_protocol import NEWEST_VERSION, Subscription
from rookery.protocol.messages import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from rookery.telemetry.library_logs import LibraryLogger

_log = LibraryLogger(__name__)

_JOIN_LANE = "join"
# A coordinator answers a JoinGroup after the rebalance time-out at the latest; this allows for the network.
_JOIN_GRACE_S = 5.0
_LEAVE_TIMEOUT_S = 5.0
# LeaveGroup is sent even if the time for closing is used up: without it, the group waits for the session time-out.
_LEAVE_TIMEOUT_MIN_S = 0.1


class ClassicMembership:
    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        host: AssignmentHost,
        committer: Committer,
        assignors: Sequence[Assignor],
        metrics: GroupMetrics | None = None,
    ) -> None:
        self.wake = asyncio.Event()
        self._cluster = cluster
        self._settings = settings
        self._host = host
        self._committer = committer
        self._assignors = assignors
        self._protocol = common_protocol(assignors)
        self._metrics = metrics
        self._handover = Handover(host, committer, metrics=metrics)
        self._member = ClassicMember(
            settings.group_id,
            instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
        )
        self._coordinators = Coordinators(cluster)
        self._join_coordinators = Coordinators(cluster, lane=_JOIN_LANE)
        self._join_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._has_assignment = False
        self._is_lost = False
        self._is_closed = False
        self._failure: ApiError | None = None
        self._joined_topics: frozenset[TopicName] = frozenset()
        # The partition counts that this member assigned by as the leader; None if it does not lead.
        self._counts: dict[TopicName, int] | None = None
        self._seen_metadata_version = -1
        self._poll_timer = PollTimer(settings.max_poll_interval_ms, remind=self.wake.set)
        self._rebalance_started_s = 0.0
        self._last_identity = self._member.identity
        committer.identify = self._identify
        committer.on_member_error = self._on_member_error

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The identity of the last assignment, kept after the group has removed this member.

        Without a member id the coordinator would not fence it: a transaction could commit offsets of partitions that
        belong to others.
        """
        return self._last_identity

    def note_poll(self) -> None:
        self._poll_timer.restart()

    def request_rejoin(self, reason: str) -> None:
        self._member.request_rejoin(reason)
        self.wake.set()

    async def poll(self) -> None:
        self.wake.clear()
        if not self._poll_timer.is_started:
            self.note_poll()
        if self._failure is not None:
            self._raise_failure()
        if self._is_lost:
            await self._lose()
        if self._has_assignment:
            await self._adopt_assignment()
        self._watch_for_changes()
        if self._member.rejoin_reason is not None and not self._is_joining:
            await self._revoke_before_join()
            # Closed meanwhile: a join now would leave a member in the group that never polls and never leaves.
            if not self._is_closed:
                self._start_join()
        elif self._member.is_member:
            self._committer.auto_commit_when_due(self._host.positions_to_commit)

    async def close(self, *, timeout_s: float) -> None:
        self._is_closed = True
        deadline_s = self._now_s() + timeout_s
        await _stop(self._join_task)
        try:
            if self._is_lost or not self._member.is_member:
                await self._handover.lose_all()
            else:
                await self._handover.revoke(self._host.assigned(), timeout_s=timeout_s)
        finally:
            await self._committer.drain(timeout_s=max(deadline_s - self._now_s(), 0))
            self._poll_timer.stop()
            await _stop(self._heartbeat_task)
            request = self._end_membership("the consumer is closed")
            await self._leave(request, timeout_s=max(deadline_s - self._now_s(), _LEAVE_TIMEOUT_MIN_S))
            self._committer.detach()

    def _raise_failure(self) -> None:
        """Raise the failure. A fenced instance id stays fenced; after any other failure the next poll retries."""
        failure = self._failure
        assert failure is not None
        if failure.code != ErrorCode.FENCED_INSTANCE_ID:
            self._failure = None
        raise copy(failure)

    # Called by polls

    async def _lose(self) -> None:
        self._is_lost = False
        # A join in flight may have succeeded since, with an assignment to adopt: keep that one. An assignment of the
        # membership that was lost belongs to others.
        self._has_assignment &= self._member.is_member
        await self._handover.lose_all()

    async def _adopt_assignment(self) -> None:
        """Revoke what the new assignment does not contain, then assign it."""
        generation = self._member.generation
        assigned = consumer_protocol.read_assignment(self._member.assignment)
        if assigned is None:
            self._has_assignment = False
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's leader sent an assignment that is malformed"
            )
        subscribed = self._host.subscribed_topics()
        target = {tp for tp in assigned if tp.topic in subscribed}
        if len(target) < len(assigned):
            self._member.request_rejoin("the assignment contains topics that are not subscribed any more")
        revoked = self._host.assigned() - target
        if revoked:
            await self._handover.revoke(revoked, timeout_s=self._settings.api_timeout_s)
            # Cooperative: only now, after the revocation, can the leader assign these partitions to others.
            self._member.request_rejoin("partitions were revoked")
        if self._is_lost or generation != self._member.generation:
            # Removed, or joined again, while the commit or the listener ran: this assignment is outdated. Adopting it,
            # this member would read partitions that belong to others.
            return
        self._has_assignment = False
        self._last_identity = self._member.identity
        for assignor in self._assignors:
            if assignor.name == self._member.assignor:
                assignor.on_assignment(sorted(target), generation)
        if self._metrics is not None:
            self._metrics.rebalance(self._now_s() - self._rebalance_started_s)
        await self._handover.assign(target)

    async def _revoke_before_join(self) -> None:
        """Before a join: commit, and revoke what cannot be kept (eager: everything)."""
        self._rebalance_started_s = self._now_s()
        assigned, subscribed = self._host.assigned(), self._host.subscribed_topics()
        eager = self._protocol == RebalanceProtocol.EAGER
        revoked = frozenset(tp for tp in assigned if eager or tp.topic not in subscribed)
        timeout_s = min(self._settings.max_poll_interval_ms / 1000, self._settings.api_timeout_s)
        await self._handover.revoke(revoked, timeout_s=timeout_s, commit_all=True)
        if self._is_lost:
            await self._lose()

    def _watch_for_changes(self) -> None:
        """Join again if the subscription differs from that of the last join, or if a leader's partition counts do."""
        if not self._member.may_heartbeat:
            return
        if self._host.subscribed_topics() != self._joined_topics:
            self._member.request_rejoin("the subscription changed")
        if self._counts is not None and self._cluster.metadata_version != self._seen_metadata_version:
            self._seen_metadata_version = self._cluster.metadata_version
            newer = partition_counts(self._cluster.metadata, self._counts)
            if any(self._counts[topic] != count for topic, count in newer.items()):
                self._member.request_rejoin("the number of partitions changed")

    # Joining

    @property
    def _is_joining(self) -> bool:
        return self._join_task is not None and not self._join_task.done()

    def _start_join(self) -> None:
        loop = asyncio.get_running_loop()
        self._join_task = loop.create_task(self._join())
        if self._heartbeat_task is None:
            self._heartbeat_task = loop.create_task(self._run_heartbeats())

    async def _join(self) -> None:
        """Join and sync until there is an assignment, or until the next poll must call `lost` first."""
        attempt = 0
        while True:
            step = await self._join_and_sync()
            if step == Step.ADOPT:
                self._has_assignment = True
                break
            if step == Step.LOSE:
                self._is_lost = True
                break
            if step == Step.JOIN_LATER:
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1
        if step == Step.LOSE and self._metrics is not None:
            self._metrics.failed_rebalance()
        self.wake.set()

    async def _join_and_sync(self) -> Step:
        try:
            step = await self._join_once()
            return await self._sync_once() if step == Step.SYNC else step
        except ApiError as error:
            if is_transient(error.code):
                return Step.JOIN_LATER
            self._failure = error
        except Exception as error:
            _log.exception("the assignor failed", group=self._settings.group_id, assignor=self._member.assignor)
            text = f"assignor {self._member.assignor}: {error}"
            self._failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return self._member.lose("the last attempt to join failed", keep_member_id=True)

    async def _join_once(self) -> Step:
        def build() -> JoinGroupRequest:
            self._joined_topics = self._host.subscribed_topics()
            return self._member.join_request([(each.name, self._subscription(each)) for each in self._assignors])

        grace_s = self._settings.max_poll_interval_ms / 1000 + _JOIN_GRACE_S
        started_s = self._now_s()
        response = await self._join_coordinators.call(
            self._settings.group_id,
            ApiKey.JOIN_GROUP,
            build,
            codes=_code,
            timeout_s=max(self._settings.request_timeout_ms / 1000, grace_s),
        )
        if self._metrics is not None:
            self._metrics.join(self._now_s() - started_s)
        return self._member.joined(response)

    def _subscription(self, assignor: Assignor) -> bytes:
        owned = tuple(sorted(self._host.assigned()))
        return consumer_protocol.write_subscription(
            Subscription(
                NEWEST_VERSION,
                self._joined_topics,
                owned,
                self._settings.client_rack,
                self._member.completed_generation,
                assignor.user_data(self._joined_topics),
            )
        )

    async def _sync_once(self) -> Step:
        assignments = await self._assign_as_leader() if self._member.is_leader else {}
        if not self._member.is_leader:
            self._counts = None
        started_s = self._now_s()
        response = await self._join_coordinators.call(
            self._settings.group_id,
            ApiKey.SYNC_GROUP,
            lambda: self._member.sync_request(assignments),
            codes=_code,
            timeout_s=max(self._settings.request_timeout_ms, self._settings.max_poll_interval_ms) / 1000,
        )
        if self._metrics is not None:
            self._metrics.sync(self._now_s() - started_s)
        return self._member.synced(response)

    async def _assign_as_leader(self) -> dict[str, bytes]:
        group = GroupMembers(self._member.members)
        topics = group.topics
        self._host.watch_group_topics(topics)
        await self._cluster.retry(lambda: self._cluster.refresh(topics))
        metadata = self._cluster.metadata
        self._counts = dict(partition_counts(metadata, topics))
        self._seen_metadata_version = self._cluster.metadata_version
        if not self._member.must_assign:
            return {}
        assignor = next((each for each in self._assignors if each.name == self._member.assignor), None)
        if assignor is None:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose the unknown assignor {self._member.assignor!r}"
            )
        return group.assign(assignor, partition_racks(metadata, topics), protocol=self._protocol)

    # Heartbeats, and leaving

    async def _run_heartbeats(self) -> None:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while True:
            left_s = self._poll_timer.left_s
            await asyncio.sleep(min(interval_s, left_s) if left_s > 0 else interval_s)
            if not self._member.may_heartbeat:
                continue
            if self._poll_timer.left_s <= 0:
                await self._leave_without_polls()
            else:
                await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        identity, started_s = self._member.identity, self._now_s()
        try:
            response = await self._coordinators.call(
                self._settings.group_id,
                ApiKey.HEARTBEAT,
                self._member.heartbeat_request,
                codes=_code,
                timeout_s=min(self._settings.session_timeout_ms, self._settings.request_timeout_ms) / 1000,
            )
        except ApiError as error:
            if not is_transient(error.code):
                self._fail(error)
            return
        if self._metrics is not None:
            self._metrics.heartbeat(self._now_s() - started_s)
        self._on_member_error(ErrorCode(response.error_code), identity)

    async def _leave_without_polls(self) -> None:
        limit_ms = self._settings.max_poll_interval_ms
        _log.warning("no poll for max.poll.interval.ms, leaving the group", group=self._settings.group_id, ms=limit_ms)
        request = self._end_membership(f"no poll for max.poll.interval.ms ({limit_ms})")
        self._is_lost = True
        self.wake.set()
        await self._leave(request, timeout_s=_LEAVE_TIMEOUT_S)

    def _end_membership(self, reason: str) -> LeaveGroupRequest | None:
        request = self._member.leave_request(reason)
        self._member.lose(reason)
        return request

    async def _leave(self, request: LeaveGroupRequest | None, *, timeout_s: float) -> None:
        if request is None:
            return
        # The call's own time-out does not include looking up the coordinator.
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._coordinators.call(
                    self._settings.group_id, ApiKey.LEAVE_GROUP, lambda: request, codes=_code, timeout_s=timeout_s
                )

    # Hooks of the committer

    def _identify(self) -> ConsumerGroupMetadata:
        if self._member.is_member:
            return self._member.identity
        if self._is_joining and not self._is_lost:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self._settings.group_id}: joining, poll first")
        # Not an identity without a member id: an empty group accepts commits of non-members, and this one could move
        # offsets back that another member has committed since.
        raise CommitFailedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {self._settings.group_id}: this consumer is not a member of the group, its partitions belong to "
            "others; poll within max.poll.interval.ms",
        )

    def _on_member_error(self, code: ErrorCode, identity: ConsumerGroupMetadata) -> None:
        try:
            step = self._member.on_error_code(code, identity)
        except ApiError as error:
            self._fail(error)
            return
        if step == Step.LOSE:
            self._is_lost = True
        if self._member.rejoin_reason is not None:
            self.wake.set()

    def _fail(self, error: ApiError) -> None:
        self._failure = error
        self._member.lose("the coordinator rejected this member", keep_member_id=True)
        self._is_lost = True
        self.wake.set()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _code(response: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse) -> list[int]:
    return [response.error_code]


async def _stop(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
