"""Commits a consumer's offsets and fetches committed ones, for group members of both protocols and for non-members.

Commits take effect in the order of the calls, synchronous or not: each waits for those before it, and the wait counts
towards its time-out. A synchronous commit is retried while its error is retriable; an asynchronous one only while the
coordinator moves, because a later commit may be queued. The periodic automatic commit is cancelled by any other commit:
its next run has newer offsets anyway. The identity to commit with comes from the membership, through `identify`, for
each attempt; error codes that concern the membership are passed to it through `on_member_error`.

A consumer has one. `consume.consumer` calls it for the user, memberships for automatic commits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.client.errors import CommitFailedError
from rookery.client.membership import offset_requests
from rookery.client.membership.interfaces import (
    CommitCallback,
    ConsumerGroupMetadata,
    GroupMetrics,
    OffsetAndMetadata,
)
from rookery.client.membership.offset_requests import OFFSETS_VERSION_MAX
from rookery.client.membership.settings import GroupSettings
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT
from rookery.telemetry.library_logs import LibraryLogger

_log = LibraryLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Result = TypeVar("Result")

# This consumer is not a member of the group (any more).
_NOT_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_TOPIC_IS_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


async def _no_refresh() -> None:
    return


class Committer:
    """The public hooks are set by the membership; without one, a consumer commits as a non-member."""

    def __init__(self, cluster: Cluster, settings: GroupSettings, *, metrics: GroupMetrics | None = None) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._coordinators = Coordinators(cluster)
        # asyncio locks are fair: commits get it in the order of the calls.
        self._order = asyncio.Lock()
        self._in_flight: set[asyncio.Task[None]] = set()
        # Called after every automatic commit.
        self.on_auto_committed: Callable[[Offsets], None] = lambda offsets: None
        self._periodic: asyncio.Task[None] | None = None
        self._periodic_due_s: float | None = None
        self.detach()

    def detach(self) -> None:
        """Reset the hooks: the membership has ended."""
        self.identify: Callable[[], ConsumerGroupMetadata] = self._non_member
        # In groups of KIP-848, members identify themselves to fetch offsets, too.
        self.identify_reader: Callable[[], ConsumerGroupMetadata | None] = lambda: None
        self.on_member_error: Callable[[ErrorCode, ConsumerGroupMetadata], None] = lambda code, identity: None
        self.refresh_identity: Callable[[], Awaitable[None]] = _no_refresh

    def _non_member(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._settings.group_id)

    async def commit(self, offsets: Offsets, *, timeout_s: float | None = None) -> None:
        """Commit and wait for the reply. Raises CommitFailedError if this consumer is not a member any more."""
        wait_s = self._settings.api_timeout_s if timeout_s is None else timeout_s
        await self._run_in_order(
            lambda left_s: self._commit(offsets, timeout_s=left_s, retriable=_is_retriable), timeout_s=wait_s
        )

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """Commit in the background. `callback(offsets, error or None)` is called once, in the order of the commits."""
        # A copy: the caller may change its mapping before the commit's turn.
        wanted = dict(offsets)
        task = self._run_in_order(
            lambda left_s: self._commit(wanted, timeout_s=left_s, retriable=lambda code: False),
            timeout_s=self._settings.api_timeout_s,
        )
        task.add_done_callback(lambda done: self._report(done, wanted, callback))

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        if not partitions:
            return {}
        wait_s = self._settings.api_timeout_s if timeout_s is None else timeout_s

        async def fetch() -> dict[TopicPartition, OffsetAndMetadata]:
            reader = self.identify_reader()
            identity = reader or self._non_member()
            request = offset_requests.fetch_request(identity, partitions, as_member=reader is not None)
            response = await self._call(ApiKey.OFFSET_FETCH, request, offset_requests.fetch_codes, wait_s)
            for tp, code in offset_requests.fetch_errors(response).items():
                if code not in _TOPIC_IS_GONE:
                    await self._raise_for(code, identity, f"cannot fetch the committed offset of {tp or 'the group'}")
            return offset_requests.fetched_offsets(response)

        # Retry these codes, too: a consumer that is not a member any more may still read, as a non-member.
        may_retry = _NOT_A_MEMBER.__contains__
        return await self._retry(fetch, timeout_s=wait_s, retriable=lambda code: _is_retriable(code) or may_retry(code))

    def auto_commit_when_due(self, positions: Callable[[], Offsets]) -> None:
        """Commit `positions()` if auto.commit.interval.ms has passed and the last periodic commit has ended."""
        if not self._settings.enable_auto_commit:
            return
        now_s = asyncio.get_running_loop().time()
        if self._periodic_due_s is None:
            self._periodic_due_s = now_s + self._settings.auto_commit_interval_ms / 1000
        if now_s < self._periodic_due_s or (self._periodic is not None and not self._periodic.done()):
            return
        self._periodic_due_s = now_s + self._settings.auto_commit_interval_ms / 1000
        offsets = positions()
        if offsets:
            self._periodic = self._run_in_order(
                lambda left_s: self._commit_automatically(offsets, left_s), timeout_s=self._settings.api_timeout_s
            )
            self._periodic.add_done_callback(self._log_failure)

    async def auto_commit_now(self, offsets: Offsets, *, timeout_s: float) -> None:
        """Commit before partitions are revoked, and at the end. A failure is logged: their records are read again."""
        self._cancel_periodic()
        if self._settings.enable_auto_commit and offsets:
            self._periodic_due_s = None
            task = self._run_in_order(lambda left_s: self._commit_automatically(offsets, left_s), timeout_s=timeout_s)
            task.add_done_callback(self._log_failure)
            with suppress(ApiError):
                await task

    async def drain(self, *, timeout_s: float) -> None:
        """Wait for the commits in flight, up to the time-out."""
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=timeout_s)

    async def flush(self, *, timeout_s: float) -> None:
        """Wait for the commits in flight; cancel those that are late, and call their callbacks with an error."""
        self._cancel_periodic()
        await self.drain(timeout_s=timeout_s)
        late = list(self._in_flight)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _run_in_order(self, work: Callable[[float], Awaitable[None]], *, timeout_s: float) -> "asyncio.Task[None]":
        """Run `work` after all earlier commits; its argument is the rest of `timeout_s` at that time."""
        self._cancel_periodic()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s

        async def wait_and_work() -> None:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._order.acquire()
            except TimeoutError:
                text = f"group {self._settings.group_id}: earlier commits took all of the {timeout_s:g} s"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
            try:
                await work(deadline_s - loop.time())
            finally:
                self._order.release()

        task = loop.create_task(wait_and_work())
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def _cancel_periodic(self) -> None:
        """Cancel the periodic commit if it is in flight."""
        if self._periodic is not None:
            self._periodic.cancel()
            self._periodic = None

    def _report(self, task: "asyncio.Task[None]", offsets: Offsets, callback: CommitCallback | None) -> None:
        failure: BaseException | None
        if task.cancelled():
            failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the consumer was closed before the coordinator answered")
        else:
            failure = task.exception()
        if callback is None:
            if failure is not None:
                _log.warning("commit failed", group=self._settings.group_id, error=str(failure))
        elif failure is None or isinstance(failure, ApiError):
            _call_back(callback, offsets, failure)
        else:
            raise failure

    def _log_failure(self, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            _log.warning("automatic commit failed", group=self._settings.group_id, error=str(failure))

    async def _commit_automatically(self, offsets: Offsets, timeout_s: float) -> None:
        await self._commit(offsets, timeout_s=timeout_s, retriable=_is_retriable, skip_missing=True)
        self.on_auto_committed(offsets)

    async def _commit(
        self,
        offsets: Offsets,
        *,
        timeout_s: float,
        retriable: Callable[[ErrorCode], bool],
        skip_missing: bool = False,
    ) -> None:
        if not offsets:
            return
        loop = asyncio.get_running_loop()

        async def send() -> None:
            # The identity of this attempt: a retry after a rebalance must not use an older generation.
            started_s, identity = loop.time(), self.identify()
            request = offset_requests.commit_request(identity, offsets)
            response = await self._call(ApiKey.OFFSET_COMMIT, request, offset_requests.commit_codes, timeout_s)
            if self._metrics is not None:
                self._metrics.commit(loop.time() - started_s)
            for tp, code in offset_requests.commit_errors(response).items():
                if not (skip_missing and code in _TOPIC_IS_GONE):
                    await self._raise_for(code, identity, f"cannot commit {tp}")

        await self._retry(send, timeout_s=timeout_s, retriable=retriable)

    async def _retry(
        self, send: Callable[[], Awaitable[Result]], *, timeout_s: float, retriable: Callable[[ErrorCode], bool]
    ) -> Result:
        last: ApiError | None = None

        async def attempt() -> Result:
            nonlocal last
            try:
                return await send()
            except ApiError as error:
                last = error
                raise

        try:
            # `retry` bounds the pauses only: one attempt may take longer, by looking up the coordinator.
            async with asyncio.timeout(timeout_s):
                return await self._cluster.retry(attempt, timeout_s=timeout_s, retriable=retriable)
        except TimeoutError:
            text = f"group {self._settings.group_id}: the coordinator did not answer within {timeout_s:.3g} s"
            raise last or ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        except ApiError as error:
            if error.code in _NOT_A_MEMBER and not isinstance(error, CommitFailedError):
                raise CommitFailedError(error.code, error.message) from None
            raise

    async def _call(
        self,
        api_key: ApiKey,
        request: Request[ResponseT],
        codes: Callable[[ResponseT], Iterable[int]],
        timeout_s: float,
    ) -> ResponseT:
        return await self._coordinators.call(
            self._settings.group_id,
            api_key,
            lambda: request,
            codes=codes,
            version_max=OFFSETS_VERSION_MAX,
            timeout_s=timeout_s,
        )

    async def _raise_for(self, code: ErrorCode, identity: ConsumerGroupMetadata, what: str) -> None:
        """Raise the error for `code`; pass it on to the membership if it concerns `identity`."""
        text = f"group {self._settings.group_id}: {what}"
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            # The member has a newer epoch: a heartbeat returns it, and the retry uses it.
            await self.refresh_identity()
        elif code in _NOT_A_MEMBER:
            self.on_member_error(code, identity)
            text += ": this consumer is not a member of the group, its partitions belong to others"
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.on_member_error(code, identity)
            text += " while the group rebalances: poll, then commit what is still assigned"
        raise ApiError(code, text)


def _is_retriable(code: ErrorCode) -> bool:
    return code.retriable or code == ErrorCode.STALE_MEMBER_EPOCH


def _call_back(callback: CommitCallback, offsets: Offsets, failure: ApiError | None) -> None:
    try:
        callback(offsets, failure)
    except Exception:
        _log.exception("the callback of a commit failed")
