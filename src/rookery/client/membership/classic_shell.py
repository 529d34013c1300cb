"""A consumer's membership in a classic group: runs a `ClassicMember` on the network, beside the consumer's polls.

Three things run at once. `poll`, called by the application's polls, does what changes the assignment: it gives up
partitions, calls listeners, takes over new ones. A task per join sends JoinGroup and SyncGroup, on a connection of
their own, because a JoinGroup is only answered when all members have joined. A task of its own sends heartbeats, and
leaves the group when the application has not polled for max.poll.interval.ms.

The order of a rebalance. Eager: stop reading everything, commit, `revoked`, join, sync, `assigned`. Cooperative:
commit, join, sync; for what goes to others stop reading, commit, `revoked`; `assigned` with what is new; if something
was given up, join again. When the group has given us up: `lost`, and join again. A poll that is cancelled in the middle
is taken up by the next.
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
# A coordinator answers a JoinGroup when the rebalance time-out is over; this is for the way.
_JOIN_GRACE_S = 5.0
_LEAVE_TIMEOUT_S = 5.0
# Saying goodbye is worth a try, even if the time for closing is over.
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
        self._joining: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._has_assignment = False
        self._is_lost = False
        self._is_closed = False
        self._failure: ApiError | None = None
        self._told_topics: frozenset[TopicName] = frozenset()
        # What a leader assigned by; None unless we lead.
        self._counts: dict[TopicName, int] | None = None
        self._seen_metadata_version = -1
        self._poll_timer = PollTimer(settings.max_poll_interval_ms, remind=self.wake.set)
        self._rebalance_started_s = 0.0
        self._known_as = self._member.identity
        committer.identify = self._identify
        committer.on_refused = self._on_refused

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """As of the last assignment: when the group has given us up, a transaction must not pass as nobody's."""
        return self._known_as

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
            await self._settle()
        self._watch_for_changes()
        if self._member.rejoin_reason is not None and not self._is_joining:
            await self._prepare()
            # Closed meanwhile: nobody would leave the group again.
            if not self._is_closed:
                self._begin_to_join()
        elif self._member.is_member:
            self._committer.auto_commit_when_due(self._host.positions_to_commit)

    async def close(self, *, timeout_s: float) -> None:
        self._is_closed = True
        deadline_s = self._now_s() + timeout_s
        await _stop(self._joining)
        try:
            if self._is_lost or not self._member.is_member:
                await self._handover.lose_all()
            else:
                await self._handover.give_up(self._host.assigned(), timeout_s=timeout_s)
        finally:
            await self._committer.drain(timeout_s=max(deadline_s - self._now_s(), 0))
            self._poll_timer.stop()
            await _stop(self._beating)
            request = self._give_notice("the consumer is closed")
            await self._leave(request, timeout_s=max(deadline_s - self._now_s(), _LEAVE_TIMEOUT_MIN_S))
            self._committer.detach()

    def _raise_failure(self) -> None:
        """A fenced instance id stays fenced; after any other failure the next poll tries again."""
        failure = self._failure
        assert failure is not None
        if failure.code != ErrorCode.FENCED_INSTANCE_ID:
            self._failure = None
        raise copy(failure)

    # What polls do

    async def _lose(self) -> None:
        self._is_lost = False
        # A join that was under way may have brought us back already, with an assignment that is to be followed.
        self._has_assignment &= self._member.is_member
        await self._handover.lose_all()

    async def _settle(self) -> None:
        """Follow the assignment that came."""
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
            self._member.request_rejoin("we were assigned topics to which we do not subscribe any more")
        revoked = self._host.assigned() - target
        if revoked:
            await self._handover.give_up(revoked, timeout_s=self._settings.api_timeout_s)
            self._member.request_rejoin("there were partitions to give up")
        if self._is_lost or generation != self._member.generation:
            return
        self._has_assignment = False
        self._known_as = self._member.identity
        for assignor in self._assignors:
            if assignor.name == self._member.assignor:
                assignor.on_assignment(sorted(target), generation)
        if self._metrics is not None:
            self._metrics.rebalance(self._now_s() - self._rebalance_started_s)
        await self._handover.take(target)

    async def _prepare(self) -> None:
        """Before joining: commit, and give up what cannot be kept."""
        self._rebalance_started_s = self._now_s()
        assigned, subscribed = self._host.assigned(), self._host.subscribed_topics()
        eager = self._protocol == RebalanceProtocol.EAGER
        given_up = frozenset(tp for tp in assigned if eager or tp.topic not in subscribed)
        timeout_s = min(self._settings.max_poll_interval_ms / 1000, self._settings.api_timeout_s)
        await self._handover.give_up(given_up, timeout_s=timeout_s, commit_all=True)
        if self._is_lost:
            await self._lose()

    def _watch_for_changes(self) -> None:
        """Other topics than we told, or other partitions than we assigned, are a reason to join again."""
        if not self._member.may_beat:
            return
        if self._host.subscribed_topics() != self._told_topics:
            self._member.request_rejoin("the subscription changed")
        if self._counts is not None and self._cluster.metadata_version != self._seen_metadata_version:
            self._seen_metadata_version = self._cluster.metadata_version
            newer = partition_counts(self._cluster.metadata, self._counts)
            if any(self._counts[topic] != count for topic, count in newer.items()):
                self._member.request_rejoin("the number of partitions changed")

    # Joining

    @property
    def _is_joining(self) -> bool:
        return self._joining is not None and not self._joining.done()

    def _begin_to_join(self) -> None:
        loop = asyncio.get_running_loop()
        self._joining = loop.create_task(self._join())
        if self._beating is None:
            self._beating = loop.create_task(self._keep_beating())

    async def _join(self) -> None:
        """Until there is an assignment, or something that the next poll must do first."""
        attempt = 0
        while True:
            step = await self._join_and_sync()
            if step == Step.SETTLE:
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
        return self._member.lose("the last try to join failed", keep_member_id=True)

    async def _join_once(self) -> Step:
        def build() -> JoinGroupRequest:
            self._told_topics = self._host.subscribed_topics()
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
                self._told_topics,
                owned,
                self._settings.client_rack,
                self._member.completed_generation,
                assignor.user_data(self._told_topics),
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
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {self._member.assignor!r}")
        return group.share_out(assignor, partition_racks(metadata, topics), protocol=self._protocol)

    # Heartbeats, and leaving

    async def _keep_beating(self) -> None:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while True:
            patience_s = self._poll_timer.left_s
            await asyncio.sleep(min(interval_s, patience_s) if patience_s > 0 else interval_s)
            if not self._member.may_beat:
                continue
            if self._poll_timer.left_s <= 0:
                await self._leave_for_silence()
            else:
                await self._beat()

    async def _beat(self) -> None:
        who, started_s = self._member.identity, self._now_s()
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
        self._on_refused(ErrorCode(response.error_code), who)

    async def _leave_for_silence(self) -> None:
        limit_ms = self._settings.max_poll_interval_ms
        _log.warning("no poll for max.poll.interval.ms, leaving the group", group=self._settings.group_id, ms=limit_ms)
        request = self._give_notice(f"no poll for max.poll.interval.ms ({limit_ms})")
        self._is_lost = True
        self.wake.set()
        await self._leave(request, timeout_s=_LEAVE_TIMEOUT_S)

    def _give_notice(self, reason: str) -> LeaveGroupRequest | None:
        request = self._member.leave_request(reason)
        self._member.lose(reason)
        return request

    async def _leave(self, request: LeaveGroupRequest | None, *, timeout_s: float) -> None:
        if request is None:
            return
        # The call's own time-out does not count looking for the coordinator.
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._coordinators.call(
                    self._settings.group_id, ApiKey.LEAVE_GROUP, lambda: request, codes=_code, timeout_s=timeout_s
                )

    # What commits ask and tell

    def _identify(self) -> ConsumerGroupMetadata:
        if self._member.is_member:
            return self._member.identity
        if self._is_joining and not self._is_lost:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self._settings.group_id}: joining, poll first")
        raise CommitFailedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {self._settings.group_id}: we are not a member (any more), so what was ours belongs to others; "
            "poll within max.poll.interval.ms",
        )

    def _on_refused(self, code: ErrorCode, who: ConsumerGroupMetadata) -> None:
        try:
            step = self._member.told(code, who)
        except ApiError as error:
            self._fail(error)
            return
        if step == Step.LOSE:
            self._is_lost = True
        if self._member.rejoin_reason is not None:
            self.wake.set()

    def _fail(self, error: ApiError) -> None:
        self._failure = error
        self._member.lose("the group refused us", keep_member_id=True)
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
