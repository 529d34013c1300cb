"""A consumer's membership in a group of KIP-848: runs a `ConsumerMember` on the network.

A task sends the heartbeats, immediately when there is something to report. The assignment changes only inside `poll`,
when all records that earlier polls returned count as processed: partitions that move to others are committed, then
`revoked`, and only then reported to the coordinator. When the group has removed this member, the task joins again by
itself; the next poll first drops the whole assignment (`lost`). An application that does not poll for
max.poll.interval.ms leaves, and joins with its next poll.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from random import Random
from typing import NoReturn
from uuid import UUID

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicId, TopicName, TopicPartition, encode_uuid
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators, is_transient
from rookery.client.errors import AuthenticationError, CommitFailedError
from rookery.client.membership.committer import Committer
from rookery.client.membership.consumer_member import FENCED, ConsumerMember, TopicIdPartition
from rookery.client.membership.handover import Handover
from rookery.client.membership.interfaces import AssignmentHost, ConsumerGroupMetadata, GroupMetrics
from rookery.client.membership.poll_timer import PollTimer
from rookery.client.membership.settings import GroupSettings
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from rookery.telemetry.library_logs import LibraryLogger

_log = LibraryLogger(__name__)

_LEAVE_TIMEOUT_S = 5.0
_LEAVE_TIMEOUT_MIN_S = 0.1


class ConsumerMembership:
    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        host: AssignmentHost,
        committer: Committer,
        randomness: Random,
        metrics: GroupMetrics | None = None,
    ) -> None:
        self.wake = asyncio.Event()
        self._cluster = cluster
        self._settings = settings
        self._host = host
        self._committer = committer
        self._metrics = metrics
        self._handover = Handover(host, committer, metrics=metrics)
        self._member = ConsumerMember(
            settings.group_id,
            member_id=encode_uuid(UUID(int=randomness.getrandbits(128), version=4)),
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack,
            server_assignor=settings.group_remote_assignor,
        )
        self._coordinators = Coordinators(cluster)
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeat_due = asyncio.Event()
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None
        # The partitions that are read, by topic id; and the fence count with which they were assigned.
        self._reading: dict[TopicIdPartition, TopicPartition] = {}
        self._reading_fence_count = 0
        # Whether the listener was called with the first assignment since the join, which may be empty.
        self._has_first_assignment = False
        # The retry of the look-up of topic ids without a name.
        self._names_attempt = 0
        self._names_timer: asyncio.TimerHandle | None = None
        self._poll_timer = PollTimer(settings.max_poll_interval_ms, remind=self.wake.set)
        self._last_identity = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        committer.identify = self._identify
        committer.identify_reader = lambda: self._member.identity if self._member.has_joined else None
        committer.on_member_error = self._on_member_error
        committer.refresh_identity = self._send_heartbeat

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The identity of the membership whose partitions are read, not of a later one after a fence.

        With the later identity, a transaction could commit offsets of partitions that were lost in between.
        """
        if self._member.has_joined and not self._is_lost:
            self._last_identity = self._member.identity
        return self._last_identity

    @property
    def is_reconciled(self) -> bool:
        """Whether the coordinator has confirmed the partitions that are read."""
        return self._member.is_reconciled and self._follows_target()

    def note_poll(self) -> None:
        self._poll_timer.restart()

    def request_rejoin(self, reason: str) -> None:
        """Wake the poll, which reports a changed subscription. The coordinator notices changes of topics itself."""
        self.wake.set()

    async def poll(self) -> None:
        self.wake.clear()
        if self._failure is not None:
            self._raise_failure(self._failure)
        self._follow_subscription()
        if self._heartbeat_task is None or self._heartbeat_task.done():
            self._start_heartbeats()
        if self._is_lost:
            await self._lose()
        if not self._follows_target():
            await self._reconcile()
        if self._member.has_joined and not self._is_lost:
            self._committer.auto_commit_when_due(self._host.positions_to_commit)

    async def close(self, *, timeout_s: float) -> None:
        deadline_s = self._now_s() + timeout_s
        try:
            if self._member.has_joined and not self._is_lost:
                await self._handover.revoke(self._host.assigned(), timeout_s=timeout_s)
            else:
                await self._handover.lose_all()
        finally:
            await self._committer.drain(timeout_s=max(deadline_s - self._now_s(), 0))
            self._poll_timer.stop()
            if self._names_timer is not None:
                self._names_timer.cancel()
            await self._stop_heartbeats()
            if self._member.must_leave:
                await self._leave(timeout_s=max(deadline_s - self._now_s(), _LEAVE_TIMEOUT_MIN_S))
            self._committer.detach()

    # Called by polls

    def _raise_failure(self, failure: ApiError) -> NoReturn:
        """Raise the failure. Only authentication is retried by the next poll: other errors persist."""
        if isinstance(failure, AuthenticationError):
            self._failure = None
        raise copy(failure)

    def _start_heartbeats(self) -> None:
        self.note_poll()
        self._heartbeat_task = asyncio.get_running_loop().create_task(self._run_heartbeats())

    def _follow_subscription(self) -> None:
        topics = self._host.subscribed_topics()
        if topics != self._member.topics:
            self._member.topics = topics
            self._heartbeat_due.set()

    def _follows_target(self) -> bool:
        if self._member.is_assigned and not self._has_first_assignment:
            return False
        return self._reading.keys() == self._member.target == self._member.owned

    @property
    def _is_lost(self) -> bool:
        """Whether the coordinator has removed this member since the current partitions were assigned.

        It may be a member again already: without this, the partitions of the earlier membership would still be read.
        """
        return self._reading_fence_count != self._member.fence_count

    async def _lose(self) -> None:
        self._reading_fence_count = self._member.fence_count
        self._reading = {}
        self._has_first_assignment = False
        await self._handover.lose_all()

    async def _reconcile(self) -> None:
        """Revoke what is not in the target, assign what is new, and report to the coordinator."""
        target, fence_count = self._member.target, self._member.fence_count
        started_s = self._now_s()
        names = await self._names({partition.topic_id for partition in target})
        reading = {o: TopicPartition(names[o.topic_id], o.partition) for o in target if o.topic_id in names}
        revoked = self._host.assigned() - set(reading.values())
        if revoked:
            await self._handover.revoke(revoked, timeout_s=self._settings.api_timeout_s)
            self._reading = {o: tp for o, tp in self._reading.items() if tp not in revoked}
        if (self._member.target, self._member.fence_count) != (target, fence_count):
            # While the commit or the listener ran, there was a new target, or a fence, even if the same partitions
            # were assigned again: `target` is outdated. The next poll reconciles again.
            self.wake.set()
            return
        changed = self._reading != reading or not self._has_first_assignment
        self._reading = reading
        self._has_first_assignment = True
        # Only after the revocation: once this is reported, the coordinator assigns the revoked partitions to others,
        # which begin at the committed offsets.
        self._member.acknowledge(reading)
        if self._member.has_changes:
            self._heartbeat_due.set()
        if changed:
            if self._metrics is not None:
                self._metrics.rebalance(self._now_s() - started_s)
            await self._handover.assign(reading.values())

    async def _names(self, topic_ids: set[TopicId]) -> dict[TopicId, TopicName]:
        """Return the names of `topic_ids`, without those of deleted topics, which are looked up with a backoff."""
        if self._are_known(topic_ids):
            self._names_attempt = 0
        elif self._names_timer is None:
            await self._cluster.retry(lambda: self._cluster.refresh(self._member.topics))
            if not self._are_known(topic_ids):
                pause_s = self._cluster.backoff_s(self._names_attempt)
                self._names_attempt += 1
                self._names_timer = asyncio.get_running_loop().call_later(pause_s, self._ask_names_again)
        found = {topic_id: self._cluster.metadata.topic_name(topic_id) for topic_id in topic_ids}
        return {topic_id: name for topic_id, name in found.items() if name is not None}

    def _are_known(self, topic_ids: set[TopicId]) -> bool:
        return all(self._cluster.metadata.topic_name(topic_id) is not None for topic_id in topic_ids)

    def _ask_names_again(self) -> None:
        self._names_timer = None
        if not self._follows_target():
            self.wake.set()

    # Heartbeats

    async def _run_heartbeats(self) -> None:
        try:
            while True:
                self._heartbeat_due.clear()
                await self._send_heartbeat()
                if not self._member.has_changes:
                    await self._wait_until_due()
                if self._poll_timer.left_s <= 0:
                    await self._leave_without_polls()
                    return
        except ApiError as error:
            self._failure = error
            self._member.fence()
            self.wake.set()

    async def _wait_until_due(self) -> None:
        interval_s = self._member.heartbeat_interval_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(interval_s, self._poll_timer.left_s))):
                await self._heartbeat_due.wait()

    async def _send_heartbeat(self) -> None:
        """Send a heartbeat and process the response; if it fences the member, join again. Raises final errors."""
        async with self._heartbeat_lock:
            attempt = 0
            while True:
                response = await self._send(self._member.heartbeat, timeout_s=None)
                code = ErrorCode(response.error_code)
                if code not in FENCED:
                    break
                self._fence()
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1
            if code != ErrorCode.NONE:
                raise self._group_error(code, response.error_message)
            if not self._is_lost:
                self._last_identity = self._member.identity
            self._member.on_response(response)
        if not self._follows_target():
            self.wake.set()

    async def _send(
        self, build: Callable[[], ConsumerGroupHeartbeatRequest], *, timeout_s: float | None
    ) -> ConsumerGroupHeartbeatResponse:
        def codes(response: ConsumerGroupHeartbeatResponse) -> list[int]:
            if is_transient(ErrorCode(response.error_code)):
                self._member.on_no_response()
            return [response.error_code]

        while True:
            started_s = self._now_s()
            try:
                response = await self._coordinators.call(
                    self._settings.group_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, build, codes=codes, timeout_s=timeout_s
                )
            except ApiError as error:
                self._member.on_no_response()
                if timeout_s is None and is_transient(error.code):
                    continue
                if isinstance(error, AuthenticationError):
                    raise
                raise self._group_error(error.code, error.message) from None
            if self._metrics is not None:
                self._metrics.heartbeat(self._now_s() - started_s)
            return response

    async def _leave_without_polls(self) -> None:
        limit_ms = self._settings.max_poll_interval_ms
        _log.warning("no poll for max.poll.interval.ms, leaving the group", group=self._settings.group_id, ms=limit_ms)
        await self._leave(timeout_s=_LEAVE_TIMEOUT_S)
        # Only now: a poll joins again only if this task has ended.
        self.wake.set()

    async def _leave(self, *, timeout_s: float) -> None:
        request = self._member.leave()
        # The call's own time-out does not include looking up the coordinator.
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._send(lambda: request, timeout_s=timeout_s)

    async def _stop_heartbeats(self) -> None:
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._heartbeat_task

    def _fence(self) -> None:
        """Join again. Records that were read since the last commit are read again by their next owners."""
        self._member.fence()
        self.wake.set()

    def _identify(self) -> ConsumerGroupMetadata:
        # After a fence, `positions_to_commit` are those of partitions that may belong to others: the identity of the
        # new membership would make the coordinator accept them.
        if self._member.has_joined and not self._is_lost:
            return self._member.identity
        raise CommitFailedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {self._settings.group_id}: this consumer is not a member of the group, its partitions belong to "
            "others; poll within max.poll.interval.ms",
        )

    def _on_member_error(self, code: ErrorCode, identity: ConsumerGroupMetadata) -> None:
        if identity != self._member.identity:
            return
        if code in FENCED:
            self._fence()
            self._heartbeat_due.set()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._failure = self._group_error(code, None)
            self.wake.set()

    def _group_error(self, code: ErrorCode, message: str | None) -> ApiError:
        group = f"group {self._settings.group_id}"
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return ApiError(code, f"{group}: the broker does not support the consumer group protocol of KIP-848")
        return ApiError(code, f"{group}: {message}" if message else group)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
