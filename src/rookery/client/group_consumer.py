"""A consumer whose partitions a group's coordinator chooses: joins, reads, commits, makes way, leaves.

Runs a `Member` (the protocol's state) beside a `Consumer` (the reading). A task of its own sends the heartbeats;
partitions change hands only inside `poll`, when everything that earlier polls returned counts as processed: it is
committed before a partition is given away, every few seconds, and on `close`. So a record may be read twice, after a
crash, but none is skipped. All requests to the coordinator take turns, because each depends on the epoch that the one
before it brought.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import uuid4

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.identifiers import encode_uuid
from rookery.base.types import Offset, TopicId, TopicName, TopicPartition, indexes_by_topic
from rookery.client.cluster import Cluster
from rookery.client.consumer import END, ConsumedRecord, Consumer, Start, StartOffset
from rookery.client.coordinators import Coordinators, is_transient
from rookery.client.group_member import FENCED, Member, Owned
from rookery.client.groups import (
    OFFSETS_VERSION_MAX,
    CommittedOffset,
    commit_request,
    fetched_codes,
    partition_codes,
    read_committed_offsets,
)
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

DEFAULT_COMMIT_INTERVAL_S = 5.0
_IDLE_WAIT_S = 0.5
_LEAVE_TIMEOUT_S = 5.0
# Between an answer that gave us up and the next try to join.
_REJOIN_PAUSE_S = 0.1
_TOPIC_IS_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

FindStarts = Callable[[Consumer, list[TopicPartition]], Awaitable[Mapping[TopicPartition, Start]]]


async def _start_at_end(_: Consumer, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Start]:
    return dict.fromkeys(partitions, END)


class GroupConsumer:
    """`find_starts` says where to begin in partitions for which the group committed nothing."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Collection[TopicName],
        *,
        find_starts: FindStarts = _start_at_end,
        commit_interval_s: float = DEFAULT_COMMIT_INTERVAL_S,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._find_starts = find_starts
        self._commit_interval_s = commit_interval_s
        self._member = Member(group_id, topics, member_id=encode_uuid(uuid4()))
        self._coordinators = Coordinators(cluster)
        self._consumer = Consumer(cluster)
        self._reading: dict[Owned, TopicPartition] = {}
        self._processed: dict[TopicPartition, Offset] = {}
        self._committed: dict[TopicPartition, Offset] = {}
        self._commit_due_s = 0.0
        self._turn = asyncio.Lock()
        self._news_to_tell = asyncio.Event()
        self._news_to_follow = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None

    async def __aenter__(self) -> Self:
        """Join. Raises ApiError if the group cannot be joined; the partitions come later."""
        await self._cluster.refresh(self._topics)
        await self._beat()
        self._commit_due_s = self._now_s() + self._commit_interval_s
        self._heartbeats = asyncio.get_running_loop().create_task(self._keep_beating())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ApiError:
            if error is None:
                raise

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def is_settled(self) -> bool:
        """The coordinator and we agree on what we read."""
        return self._member.is_settled and self._follows_target()

    def positions(self) -> dict[TopicPartition, Offset]:
        """What is read now, and the offset of the next record of each."""
        return self._consumer.positions()

    async def poll(self) -> list[ConsumedRecord]:
        """The records that arrive within about half a second. Those of the last poll count as processed from now on."""
        self._mark_processed()
        if self._failure is not None:
            raise self._failure
        if not self._follows_target():
            await self._reconcile()
        elif self._now_s() >= self._commit_due_s:
            await self._commit()
        if self._reading:
            return await self._consumer.poll()
        self._news_to_follow.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news_to_follow.wait(), _IDLE_WAIT_S)
        return []

    async def commit(self) -> None:
        """Commit everything that polls returned and `give_back` did not take back."""
        self._mark_processed()
        await self._commit()

    def give_back(self, records: Iterable[ConsumedRecord]) -> None:
        """These records of the last poll were not processed: their partitions go on from the first of them."""
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            self._consumer.seek(tp, min(record.offset, self._consumer.position(tp)))

    async def close(self) -> None:
        """Commit what was processed, and leave, so that others take over at once."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            with suppress(asyncio.CancelledError):
                await self._heartbeats
        await self._consumer.close()
        if not self._member.has_joined:
            return
        try:
            await self._commit(timeout_s=_LEAVE_TIMEOUT_S)
        finally:
            with suppress(ApiError):
                await self._send(self._member.leave, timeout_s=_LEAVE_TIMEOUT_S)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _mark_processed(self) -> None:
        self._processed = self._consumer.positions()

    def _follows_target(self) -> bool:
        """After being fenced we may get the same partitions again, and still have to begin them anew."""
        return self._reading.keys() == self._member.target == self._member.owned

    def _owned_partitions(self) -> set[TopicPartition]:
        return {tp for owned, tp in self._reading.items() if owned in self._member.owned}

    async def _keep_beating(self) -> None:
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news_to_tell.wait(), self._member.heartbeat_interval_ms / 1000)
                self._news_to_tell.clear()
                await self._beat()
        except ApiError as error:
            self._failure = error
            self._news_to_follow.set()

    async def _beat(self) -> None:
        """One heartbeat, answered; after being fenced, the next join as well."""
        async with self._turn:
            response = await self._send(self._member.heartbeat)
            while ErrorCode(response.error_code) in FENCED:
                self._fence()
                await asyncio.sleep(_REJOIN_PAUSE_S)
                response = await self._send(self._member.heartbeat)
            if response.error_code != ErrorCode.NONE:
                raise self._refusal(ErrorCode(response.error_code), response.error_message)
            self._member.answered(response)
        if not self._follows_target():
            self._news_to_follow.set()

    async def _send(self, build: Callable[[], Message], *, timeout_s: float | None = None) -> Message:
        def codes(response: Message) -> list[int]:
            if is_transient(ErrorCode(response.error_code)):
                self._member.failed()
            return [response.error_code]

        try:
            return await self._coordinators.call(
                self._member.group_id,
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                build,
                codes=codes,
                timeout_s=timeout_s,
            )
        except ApiError as error:
            self._member.failed()
            raise self._refusal(error.code, error.message) from None

    def _refusal(self, code: ErrorCode, message: str | None) -> ApiError:
        group = f"group {self._member.group_id}"
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return ApiError(code, f"{group}: the broker does not offer the consumer group protocol of KIP-848")
        return ApiError(code, f"{group}: {message}" if message else group)

    def _fence(self) -> None:
        """What was read since the last commit is read again by whoever owns it now."""
        self._member.fence()
        self._news_to_follow.set()

    async def _reconcile(self) -> None:
        """Make way for others, begin with what is new, and tell the coordinator."""
        target, fence_count = self._member.target, self._member.fence_count
        # Where we were fenced out, someone else may have read on: those partitions begin anew.
        ours = self._owned_partitions()
        self._processed = {tp: offset for tp, offset in self._processed.items() if tp in ours}
        if self._member.revoked:
            await self._commit()
        names = await self._names({partition.topic_id for partition in target})
        reading = {o: TopicPartition(names[o.topic_id], o.partition) for o in target if o.topic_id in names}
        kept = {tp: StartOffset(self._processed[tp]) for tp in reading.values() if tp in self._processed}
        starts = await self._starts([tp for tp in reading.values() if tp not in kept])
        if (self._member.target, self._member.fence_count) != (target, fence_count):
            # Reassigned meanwhile, or fenced, even if we are back with the same partitions: others may have read on.
            # The next poll tries again, from what was processed.
            return
        await self._consumer.assign({**kept, **starts})
        self._reading = reading
        self._mark_processed()
        self._committed = {tp: offset for tp, offset in self._committed.items() if tp in self._processed}
        self._member.acknowledge(reading)
        self._news_to_tell.set()

    async def _names(self, topic_ids: set[TopicId]) -> dict[TopicId, TopicName]:
        """The topics that are known by these ids; one that was deleted has no name."""
        if any(self._cluster.metadata.topic_name(topic_id) is None for topic_id in topic_ids):
            await self._cluster.refresh(self._topics)
        found = {topic_id: self._cluster.metadata.topic_name(topic_id) for topic_id in topic_ids}
        return {topic_id: name for topic_id, name in found.items() if name is not None}

    async def _starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Start]:
        if not partitions:
            return {}
        committed = await self._fetch_committed(partitions)
        self._committed |= {tp: found.offset for tp, found in committed.items()}
        fresh = [tp for tp in partitions if tp not in committed]
        starts: dict[TopicPartition, Start] = {tp: StartOffset(found.offset) for tp, found in committed.items()}
        return starts | dict(await self._find_starts(self._consumer, fresh) if fresh else {})

    async def _fetch_committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        topics = indexes_by_topic(partitions)
        wanted = [Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()]

        def build() -> Message:
            member_id, epoch = self._member.member_id, self._member.epoch
            group_id = self._member.group_id
            asked = Message(group_id=group_id, member_id=member_id, member_epoch=epoch, topics=wanted)
            return Message(group_id=group_id, topics=wanted, groups=[asked], require_stable=True)

        response = await self._call_as_member(ApiKey.OFFSET_FETCH, build, fetched_codes)
        return {} if response is None else read_committed_offsets(response, self._member.group_id)

    async def _commit(self, *, timeout_s: float | None = None) -> None:
        """Commit what was processed and is not committed yet; nothing if we are fenced."""
        self._commit_due_s = self._now_s() + self._commit_interval_s
        ours = self._owned_partitions()
        due = {tp: offset for tp, offset in self._processed.items() if tp in ours and self._committed.get(tp) != offset}
        if not due:
            return

        def build() -> Message:
            offsets = {tp: CommittedOffset(offset) for tp, offset in due.items()}
            return commit_request(
                self._member.group_id, offsets, member_id=self._member.member_id, member_epoch=self._member.epoch
            )

        response = await self._call_as_member(ApiKey.OFFSET_COMMIT, build, partition_codes, timeout_s=timeout_s)
        if response is None:
            return
        for topic in response.topics:
            for row in topic.partitions:
                code = ErrorCode(row.error_code)
                if code != ErrorCode.NONE and code not in _TOPIC_IS_GONE:
                    raise self._refusal(code, f"cannot commit {topic.name}-{row.partition_index}")
        self._committed |= due

    async def _call_as_member(
        self,
        api_key: ApiKey,
        build: Callable[[], Message],
        codes: Callable[[Message], list[int]],
        *,
        timeout_s: float | None = None,
    ) -> Message | None:
        """A request that the member's epoch fences; None if we were fenced. A stale epoch is renewed first."""

        async def ask() -> Message | None:
            async with self._turn:
                response = await self._coordinators.call(
                    self._member.group_id,
                    api_key,
                    build,
                    codes=codes,
                    version_max=OFFSETS_VERSION_MAX,
                    timeout_s=timeout_s,
                )
                found = {ErrorCode(code) for code in codes(response)}
                if found & FENCED:
                    self._fence()
                    return None
            for code in found & {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSTABLE_OFFSET_COMMIT}:
                if code == ErrorCode.STALE_MEMBER_EPOCH:
                    await self._beat()
                raise self._refusal(code, None)
            return response

        waits = {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return await self._cluster.retry(ask, timeout_s=timeout_s, retriable=waits.__contains__)
