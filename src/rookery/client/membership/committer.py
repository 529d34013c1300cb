"""Commits a consumer's offsets and reads them back, for members of groups of both protocols and for nobody's members.

Commits take effect in the order in which they were asked for, synchronous or not: each waits for those before it, and
this waiting is part of its time-out. A synchronous commit is tried again while its error is retriable; an asynchronous
one only while the coordinator moves, because a later one is behind it. The periodic automatic commit makes way for any
other: its next one has newer offsets anyway. Who commits is asked of the membership for every try, through `identify`;
a refusal that says that we are no member any more is told to it through `on_refused`.

A consumer has one. `consume.consumer` calls it for its user, memberships for themselves.
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

# The group goes on without us.
_NOT_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_TOPIC_IS_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


async def _nothing_newer() -> None:
    return


class Committer:
    """The hooks belong to the membership; without one a consumer commits as nobody's member."""

    def __init__(self, cluster: Cluster, settings: GroupSettings, *, metrics: GroupMetrics | None = None) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._coordinators = Coordinators(cluster)
        # Hands out turns in the order in which they were asked for.
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()
        # Told of what was committed without the user's asking.
        self.on_auto_committed: Callable[[Offsets], None] = lambda offsets: None
        self._automatic: asyncio.Task[None] | None = None
        self._automatic_due_s: float | None = None
        self.detach()

    def detach(self) -> None:
        """The membership is over."""
        self.identify: Callable[[], ConsumerGroupMetadata] = self._nobody
        # Members of groups of the new protocol are asked who they are when they fetch, too.
        self.identify_reader: Callable[[], ConsumerGroupMetadata | None] = lambda: None
        self.on_refused: Callable[[ErrorCode, ConsumerGroupMetadata], None] = lambda code, who: None
        self.renew: Callable[[], Awaitable[None]] = _nothing_newer

    def _nobody(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._settings.group_id)

    async def commit(self, offsets: Offsets, *, timeout_s: float | None = None) -> None:
        """Raises CommitFailedError where the group has given our partitions to others, ApiError otherwise."""
        patience_s = self._settings.api_timeout_s if timeout_s is None else timeout_s
        await self._in_turn(
            lambda left_s: self._commit(offsets, timeout_s=left_s, retriable=_is_retriable), timeout_s=patience_s
        )

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """`callback(offsets, error or None)` is called once, when it is known; callbacks come in order, too."""
        asked = dict(offsets)
        task = self._in_turn(
            lambda left_s: self._commit(asked, timeout_s=left_s, retriable=lambda code: False),
            timeout_s=self._settings.api_timeout_s,
        )
        task.add_done_callback(lambda done: self._tell(done, asked, callback))

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Without the partitions for which the group committed nothing."""
        if not partitions:
            return {}
        patience_s = self._settings.api_timeout_s if timeout_s is None else timeout_s

        async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
            reader = self.identify_reader()
            who = reader or self._nobody()
            request = offset_requests.fetch_request(who, partitions, as_member=reader is not None)
            response = await self._call(ApiKey.OFFSET_FETCH, request, offset_requests.fetch_codes, patience_s)
            for tp, code in offset_requests.fetch_errors(response).items():
                if code not in _TOPIC_IS_GONE:
                    await self._handle(code, who, f"cannot fetch what was committed for {tp or 'the group'}")
            return offset_requests.fetched_offsets(response)

        # Whoever is no member any more may still read, as nobody.
        may_retry = _NOT_A_MEMBER.__contains__
        return await self._retry(
            ask, timeout_s=patience_s, retriable=lambda code: _is_retriable(code) or may_retry(code)
        )

    def auto_commit_when_due(self, positions: Callable[[], Offsets]) -> None:
        """Every auto.commit.interval.ms, from the first call on; not while the last one is under way."""
        if not self._settings.enable_auto_commit:
            return
        now_s = asyncio.get_running_loop().time()
        if self._automatic_due_s is None:
            self._automatic_due_s = now_s + self._settings.auto_commit_interval_ms / 1000
        if now_s < self._automatic_due_s or (self._automatic is not None and not self._automatic.done()):
            return
        self._automatic_due_s = now_s + self._settings.auto_commit_interval_ms / 1000
        offsets = positions()
        if offsets:
            self._automatic = self._in_turn(
                lambda left_s: self._commit_automatically(offsets, left_s), timeout_s=self._settings.api_timeout_s
            )
            self._automatic.add_done_callback(self._warn)

    async def auto_commit_now(self, offsets: Offsets, *, timeout_s: float) -> None:
        """Before partitions are given away, and at the end. A failure is logged: the records come again, elsewhere."""
        self._make_way()
        if self._settings.enable_auto_commit and offsets:
            self._automatic_due_s = None
            task = self._in_turn(lambda left_s: self._commit_automatically(offsets, left_s), timeout_s=timeout_s)
            task.add_done_callback(self._warn)
            with suppress(ApiError):
                await task

    async def drain(self, *, timeout_s: float) -> None:
        """Wait for what was asked for, if it is done in time."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=timeout_s)

    async def flush(self, *, timeout_s: float) -> None:
        """At the end: what is not done in time is dropped, and its callback told."""
        self._make_way()
        await self.drain(timeout_s=timeout_s)
        late = list(self._under_way)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _in_turn(self, work: Callable[[float], Awaitable[None]], *, timeout_s: float) -> "asyncio.Task[None]":
        """`work` is told how much of its time is left when its turn has come."""
        self._make_way()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s

        async def wait_and_work() -> None:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._turn.acquire()
            except TimeoutError:
                text = f"group {self._settings.group_id}: earlier commits took all of the {timeout_s:g} s"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
            try:
                await work(deadline_s - loop.time())
            finally:
                self._turn.release()

        task = loop.create_task(wait_and_work())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _make_way(self) -> None:
        """Drop the periodic commit if it is under way."""
        if self._automatic is not None:
            self._automatic.cancel()
            self._automatic = None

    def _tell(self, task: "asyncio.Task[None]", offsets: Offsets, callback: CommitCallback | None) -> None:
        failure: BaseException | None
        if task.cancelled():
            failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the consumer was closed before the commit was answered")
        else:
            failure = task.exception()
        if callback is None:
            if failure is not None:
                _log.warning("commit failed", group=self._settings.group_id, error=str(failure))
        elif failure is None or isinstance(failure, ApiError):
            _call_back(callback, offsets, failure)
        else:
            raise failure

    def _warn(self, automatic: "asyncio.Task[None]") -> None:
        failure = None if automatic.cancelled() else automatic.exception()
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

        async def ask() -> None:
            started_s, who = loop.time(), self.identify()
            request = offset_requests.commit_request(who, offsets)
            response = await self._call(ApiKey.OFFSET_COMMIT, request, offset_requests.commit_codes, timeout_s)
            if self._metrics is not None:
                self._metrics.commit(loop.time() - started_s)
            for tp, code in offset_requests.commit_errors(response).items():
                if not (skip_missing and code in _TOPIC_IS_GONE):
                    await self._handle(code, who, f"cannot commit {tp}")

        await self._retry(ask, timeout_s=timeout_s, retriable=retriable)

    async def _retry(
        self, ask: Callable[[], Awaitable[Result]], *, timeout_s: float, retriable: Callable[[ErrorCode], bool]
    ) -> Result:
        last: ApiError | None = None

        async def ask_and_note() -> Result:
            nonlocal last
            try:
                return await ask()
            except ApiError as error:
                last = error
                raise

        try:
            # A single try can take longer than that, by looking for the coordinator.
            async with asyncio.timeout(timeout_s):
                return await self._cluster.retry(ask_and_note, timeout_s=timeout_s, retriable=retriable)
        except TimeoutError:
            text = f"group {self._settings.group_id}: no answer about its offsets within {timeout_s:.3g} s"
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

    async def _handle(self, code: ErrorCode, who: ConsumerGroupMetadata, what: str) -> None:
        """Raise what a refusal means."""
        text = f"group {self._settings.group_id}: {what}"
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            # The member goes on in a newer epoch: learn it and try again.
            await self.renew()
        elif code in _NOT_A_MEMBER:
            self.on_refused(code, who)
            text += ", the group has gone on without us: its partitions belong to others"
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.on_refused(code, who)
            text += " while the group rebalances: poll, and commit what is still assigned then"
        raise ApiError(code, text)


def _is_retriable(code: ErrorCode) -> bool:
    return code.retriable or code == ErrorCode.STALE_MEMBER_EPOCH


def _call_back(callback: CommitCallback, offsets: Offsets, failure: ApiError | None) -> None:
    try:
        callback(offsets, failure)
    except Exception:
        _log.exception("the callback of a commit failed")
