"""A consumer's membership in a group of the new kind (KIP-848): runs a `ConsumerMember` on the network.

A task of its own sends the heartbeats, at once when there is something to tell. Partitions change hands only inside
`poll`, when everything that earlier polls returned counts as processed: what goes to others is committed, `revoked`,
and only then told to the coordinator. When the group has given us up the task joins again by itself; the next poll
first loses everything. An application that does not poll for max.poll.interval.ms leaves, and joins with its next poll.
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
from rookery.client.membership.consumer_member import FENCED, ConsumerMember, Owned
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
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None
        # What is read, as the coordinator names it; and the fence count in which that was assigned.
        self._reading: dict[Owned, TopicPartition] = {}
        self._reading_since_fence = 0
        # Whether the listener has heard of the first assignment since we joined, which may be of nothing.
        self._has_begun = False
        # A topic that has no name yet is asked for again, after a while.
        self._names_attempt = 0
        self._names_timer: asyncio.TimerHandle | None = None
        self._poll_timer = PollTimer(settings.max_poll_interval_ms, remind=self.wake.set)
        self._known_as = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        committer.identify = self._identify
        committer.identify_reader = lambda: self._member.identity if self._member.has_joined else None
        committer.on_refused = self._on_refused
        committer.renew = self._beat

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Of the membership under which we read: when it is lost, a transaction must not pass as the next one's."""
        if self._member.has_joined and not self._is_lost:
            self._known_as = self._member.identity
        return self._known_as

    @property
    def is_settled(self) -> bool:
        """The coordinator and we agree on what we read."""
        return self._member.is_settled and self._follows_target()

    def note_poll(self) -> None:
        self._poll_timer.restart()

    def request_rejoin(self, reason: str) -> None:
        """The coordinator sees changes of topics by itself; those of the subscription are told with the next poll."""
        self.wake.set()

    async def poll(self) -> None:
        self.wake.clear()
        if self._failure is not None:
            self._raise_failure(self._failure)
        self._follow_subscription()
        if self._beating is None or self._beating.done():
            self._begin()
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
                await self._handover.give_up(self._host.assigned(), timeout_s=timeout_s)
            else:
                await self._handover.lose_all()
        finally:
            await self._committer.drain(timeout_s=max(deadline_s - self._now_s(), 0))
            self._poll_timer.stop()
            if self._names_timer is not None:
                self._names_timer.cancel()
            await self._stop_beating()
            if self._member.may_be_known:
                await self._leave(timeout_s=max(deadline_s - self._now_s(), _LEAVE_TIMEOUT_MIN_S))
            self._committer.detach()

    # What polls do

    def _raise_failure(self, failure: ApiError) -> NoReturn:
        """A password may be right the next time; whatever else a coordinator refuses it goes on to refuse."""
        if isinstance(failure, AuthenticationError):
            self._failure = None
        raise copy(failure)

    def _begin(self) -> None:
        self.note_poll()
        self._beating = asyncio.get_running_loop().create_task(self._keep_beating())

    def _follow_subscription(self) -> None:
        topics = self._host.subscribed_topics()
        if topics != self._member.topics:
            self._member.topics = topics
            self._news.set()

    def _follows_target(self) -> bool:
        if self._member.is_assigned and not self._has_begun:
            return False
        return self._reading.keys() == self._member.target == self._member.owned

    @property
    def _is_lost(self) -> bool:
        """The coordinator gave us up since we began to read what we read; we may be a member again."""
        return self._reading_since_fence != self._member.fence_count

    async def _lose(self) -> None:
        self._reading_since_fence = self._member.fence_count
        self._reading = {}
        self._has_begun = False
        await self._handover.lose_all()

    async def _reconcile(self) -> None:
        """Make way for others, begin with what is new, and tell the coordinator."""
        target, fence_count = self._member.target, self._member.fence_count
        started_s = self._now_s()
        names = await self._names({partition.topic_id for partition in target})
        reading = {o: TopicPartition(names[o.topic_id], o.partition) for o in target if o.topic_id in names}
        revoked = self._host.assigned() - set(reading.values())
        if revoked:
            await self._handover.give_up(revoked, timeout_s=self._settings.api_timeout_s)
            self._reading = {o: tp for o, tp in self._reading.items() if tp not in revoked}
        if (self._member.target, self._member.fence_count) != (target, fence_count):
            # Reassigned meanwhile, or fenced, even if we are back with the same partitions: the next poll sees to it.
            self.wake.set()
            return
        changed = self._reading != reading or not self._has_begun
        self._reading = reading
        self._has_begun = True
        self._member.acknowledge(reading)
        if self._member.has_news:
            self._news.set()
        if changed:
            if self._metrics is not None:
                self._metrics.rebalance(self._now_s() - started_s)
            await self._handover.take(reading.values())

    async def _names(self, topic_ids: set[TopicId]) -> dict[TopicId, TopicName]:
        """The topics that are known by these ids. One that was deleted has no name; that is not asked all the time."""
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

    async def _keep_beating(self) -> None:
        try:
            while True:
                self._news.clear()
                await self._beat()
                if not self._member.has_news:
                    await self._wait_for_news()
                if self._poll_timer.left_s <= 0:
                    await self._leave_for_silence()
                    return
        except ApiError as error:
            self._failure = error
            self._member.fence()
            self.wake.set()

    async def _wait_for_news(self) -> None:
        interval_s = self._member.heartbeat_interval_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(interval_s, self._poll_timer.left_s))):
                await self._news.wait()

    async def _beat(self) -> None:
        """One heartbeat, answered; after being fenced, the next join as well. Raises what cannot be mended."""
        async with self._turn:
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
                raise self._refusal(code, response.error_message)
            if not self._is_lost:
                self._known_as = self._member.identity
            self._member.answered(response)
        if not self._follows_target():
            self.wake.set()

    async def _send(
        self, build: Callable[[], ConsumerGroupHeartbeatRequest], *, timeout_s: float | None
    ) -> ConsumerGroupHeartbeatResponse:
        def codes(response: ConsumerGroupHeartbeatResponse) -> list[int]:
            if is_transient(ErrorCode(response.error_code)):
                self._member.failed()
            return [response.error_code]

        while True:
            started_s = self._now_s()
            try:
                response = await self._coordinators.call(
                    self._settings.group_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, build, codes=codes, timeout_s=timeout_s
                )
            except ApiError as error:
                self._member.failed()
                if timeout_s is None and is_transient(error.code):
                    continue
                if isinstance(error, AuthenticationError):
                    raise
                raise self._refusal(error.code, error.message) from None
            if self._metrics is not None:
                self._metrics.heartbeat(self._now_s() - started_s)
            return response

    async def _leave_for_silence(self) -> None:
        limit_ms = self._settings.max_poll_interval_ms
        _log.warning("no poll for max.poll.interval.ms, leaving the group", group=self._settings.group_id, ms=limit_ms)
        await self._leave(timeout_s=_LEAVE_TIMEOUT_S)
        # Not before: a poll that waits joins again only when this task is over.
        self.wake.set()

    async def _leave(self, *, timeout_s: float) -> None:
        request = self._member.leave()
        # The call's own time-out does not count looking for the coordinator.
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._send(lambda: request, timeout_s=timeout_s)

    async def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating

    def _fence(self) -> None:
        """What was read since the last commit is read again by whoever owns it now."""
        self._member.fence()
        self.wake.set()

    def _identify(self) -> ConsumerGroupMetadata:
        if self._member.has_joined and not self._is_lost:
            return self._member.identity
        raise CommitFailedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {self._settings.group_id}: we are not a member (any more), so what was ours belongs to others; "
            "poll within max.poll.interval.ms",
        )

    def _on_refused(self, code: ErrorCode, who: ConsumerGroupMetadata) -> None:
        if who != self._member.identity:
            return
        if code in FENCED:
            self._fence()
            self._news.set()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._failure = self._refusal(code, None)
            self.wake.set()

    def _refusal(self, code: ErrorCode, message: str | None) -> ApiError:
        group = f"group {self._settings.group_id}"
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return ApiError(code, f"{group}: the broker does not offer the consumer group protocol of KIP-848")
        return ApiError(code, f"{group}: {message}" if message else group)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
