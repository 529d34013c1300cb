"""The requests of a transactional producer, to the coordinators of its transactional id and of groups.

`producer` and `sender` use `Transactions`, which exists only if `transactional.id` is set. The state machine
`transactions.TransactionMachine` decides which calls are allowed, which request is next and what an error means. This
module sends the requests: it looks up coordinators, and retries after retriable errors and lost connections until the
deadline.

There are two time limits. `init`, `send_offsets`, `prepare` and `end` have `max.block.ms`; a call that timed out is
continued by calling it again. Adding partitions has `delivery.timeout.ms`, like the batches that wait for it.

A request whose response was lost, or whose caller was cancelled, may still take effect. It is reported to the state
machine, which in the classic protocol raises the epoch before the next transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import Any, Generic, NoReturn

from rookery.base.codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicPartition
from rookery.client.backoff import Backoff
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.client.errors import ClientStateError, TransactionAbortableError
from rookery.client.prepared import PreparedTransaction
from rookery.client.produce.sequences import ProducerIdentity
from rookery.client.produce.transaction_errors import ErrorKind, Request, classify_error
from rookery.client.produce.transactions import GroupLike, GroupOffsets, OffsetLike, TransactionMachine
from rookery.net.channel import software
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request as ApiRequest
from rookery.protocol.message import ResponseT
from rookery.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

FEATURE = "transaction.version"
_V2_LEVEL = 2
_LANE = "coordinator"

# The highest versions that this client uses. Later versions of AddPartitionsToTxn are for brokers, and of
# InitProducerId for two-phase commit; EndTxn 5 and TxnOffsetCommit 5 imply transactions v2 (KIP-890).
_INIT_VERSION = 5
_ADD_PARTITIONS_VERSION = 3
_ADD_OFFSETS_VERSION = 4
_COMMIT_OFFSETS_VERSIONS = {False: 4, True: 5}
_END_VERSIONS = {False: 4, True: 5}

_NO_LEADER_EPOCH = -1
# While the coordinator ends the previous transaction, which is short. Kafka's client begins with the same pause.
_CONCURRENT_BACKOFF = Backoff(0.02, 0.5)
# After all other retriable errors the coordinator is looked up again.
_COORDINATOR_STAYS = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

IdentityListener = Callable[[ProducerIdentity], object]


class Transactions:
    """The transactions of one producer. User calls run one at a time; `ensure_added` runs concurrently, for the sender.

    `on_identity_changed` is called with each new identity, under which sequence numbers start at 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        on_identity_changed: IdentityListener | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.on_identity_changed = on_identity_changed
        self._cluster = cluster
        self._transaction_timeout_ms = transaction_timeout_ms
        self._max_block_s = max_block_ms / 1000
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._machine = TransactionMachine(transactional_id)
        self._coordinators = Coordinators(cluster, KeyType.TRANSACTION)
        self._groups = Coordinators(cluster, KeyType.GROUP)
        self._call_lock = asyncio.Lock()
        self._add_lock = asyncio.Lock()
        # In the order in which the waits began.
        self._add_timeouts: dict[asyncio.Timeout, None] = {}
        # Reset when a response is lost: the cluster may have another transaction.version when it answers again.
        self._is_protocol_known = False

    # Used by the sender

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch for batches; NO_IDENTITY before `init`."""
        return self._machine.identity

    @property
    def is_v2(self) -> bool:
        """Whether batches are sent with Produce v12 or later; otherwise with v11 at most."""
        return self._machine.is_v2

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended; `close` aborts it then."""
        return self._machine.is_open

    @property
    def error(self) -> ApiError | None:
        """The error that failed the transaction or the producer."""
        return self._machine.error

    @property
    def is_failing(self) -> bool:
        """Whether batches are not retried, because the transaction has failed or is being aborted."""
        return self._machine.is_failing

    @property
    def number(self) -> int:
        """The number of the last transaction."""
        return self._machine.number

    def check_may_send(self) -> None:
        """Raise ClientStateError outside of a transaction, or the transaction's error if it has one."""
        self._machine.check_may_send()

    def check_may_still_send(self, number: int) -> None:
        """Do the same check after a wait; also raise if another transaction has begun."""
        self._machine.check_may_still_send(number)

    def add(self, partition: TopicPartition) -> None:
        """Note that the accumulator accepted a record for `partition`."""
        self._machine.accept(partition)

    async def ensure_added(self, partitions: Collection[TopicPartition]) -> None:
        """Add `partitions` to the transaction before batches for them are sent. Raises the error for these batches.

        One request is sent at a time, with all partitions that wait.
        """
        if self._machine.is_added(partitions):
            return
        deadline_s = _now_s() + self._delivery_timeout_s
        try:
            async with asyncio.timeout(None) as limit:
                self._add_timeouts[limit] = None
                async with self._add_lock:
                    if not self._machine.is_added(partitions):
                        await self._add_partitions(partitions, deadline_s)
        except TimeoutError:
            raise TransactionAbortableError("the transaction was aborted before the record was sent") from None
        finally:
            del self._add_timeouts[limit]

    def on_batch_failed(self, partition: TopicPartition, error: ApiError) -> ApiError:
        """Handle a batch that is not retried. Return the error for its records."""
        return self._machine.batch_failed(partition, error)

    def on_send_failed(self, error: ApiError, number: int) -> None:
        """Fail transaction `number`, because one of its records did not get into the accumulator."""
        self._machine.send_failed(error, number)

    # Used by the producer

    async def init(self) -> None:
        """Take over the transactional id: fence its older producers, and abort their open transaction."""
        async with self._call_lock:
            self._machine.begin_init()
            await self._finish(self._deadline_s())

    def begin(self) -> None:
        self._machine.begin()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetLike | Offset], group_metadata: GroupLike
    ) -> None:
        """Commit a group's offsets with the transaction.

        Raises CommitFailedError if the group has a new generation; the transaction must be aborted then.
        """
        if group_metadata.generation_id > 0 and not group_metadata.member_id:
            raise ClientStateError("send_offsets_to_transaction() needs a group_metadata() with a member id")
        async with self._call_lock:
            wanted = {tp: _Position(each) if isinstance(each, int) else each for tp, each in offsets.items()}
            group_offsets = GroupOffsets(group_metadata, wanted)
            self._machine.check_may_send()
            if wanted:
                self._machine.begin_offsets(group_offsets)
                await self._commit_offsets(group_offsets, self._deadline_s())

    async def prepare(self, *, settle: Callable[[], Awaitable[object]]) -> PreparedTransaction:
        """Wait for `settle`, which waits for all records, and leave the transaction open for another process to end."""
        async with self._call_lock:
            deadline_s = self._deadline_s()
            self._machine.begin_prepare()
            await self._settle(settle, deadline_s)
            # Raises if a batch has failed meanwhile: the transaction would be prepared without its records.
            self._machine.begin_prepare()
            await self._finish(deadline_s)
            identity = self._machine.identity
            return PreparedTransaction(
                self.transactional_id, identity.producer_id, identity.producer_epoch, is_v2=self.is_v2
            )

    async def end(self, *, commit: bool, settle: Callable[[], Awaitable[object]] | None = None) -> None:
        """Commit or abort. From now on no record is accepted; `settle` waits for those that were.

        Raises REQUEST_TIMED_OUT after `max.block.ms`; the same call then continues.
        """
        async with self._call_lock:
            deadline_s = self._deadline_s()
            self._machine.begin_end(commit=commit)
            if not commit:
                self._cancel_adding()
            if settle is not None:
                await self._settle(settle, deadline_s)
                # Raises if a batch has failed meanwhile: the transaction would be committed without its records.
                self._machine.begin_end(commit=commit)
            await self._finish(deadline_s)

    async def _settle(self, settle: Callable[[], Awaitable[object]], deadline_s: float) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await settle()
        except TimeoutError:
            raise self._timeout_error("the delivery of the records", None) from None

    def _cancel_adding(self) -> None:
        """End the waits of `ensure_added`: the batches that wait for their partitions are not sent."""
        for limit in self._add_timeouts:
            limit.reschedule(_now_s())

    # Steps

    async def _finish(self, deadline_s: float) -> None:
        """Send the requests of the pending operation until it is done."""
        if not self._is_protocol_known:
            await self._learn_protocol(deadline_s)
        while (request := self._machine.next_request()) is not None:
            if request is Request.INIT:
                await self._init(deadline_s)
            elif request is Request.COMMIT_OFFSETS:
                await self._commit_offsets(self._machine.offsets_to_commit(), deadline_s)
            else:
                await self._end(request, deadline_s)

    async def _learn_protocol(self, deadline_s: float) -> None:
        """Read the cluster's protocol: the level of its feature `transaction.version`."""

        async def request_versions() -> ApiVersionsResponse:
            return await self._cluster.call(ApiKey.API_VERSIONS, software(), lane=_LANE)

        try:
            async with asyncio.timeout_at(deadline_s):
                response = await self._cluster.retry(request_versions, timeout_s=deadline_s - _now_s())
        except TimeoutError:
            raise self._timeout_error("ApiVersions", None) from None
        except ApiError as error:
            raise self._timeout_error("ApiVersions", error) if error.code.retriable else error from None
        features = response.get("finalized_features", ())
        level = next((row.max_version_level for row in features if row.name == FEATURE), 0)
        self._machine.set_next_protocol(is_v2=level >= _V2_LEVEL)
        self._is_protocol_known = True

    async def _init(self, deadline_s: float) -> None:
        expected = self._machine.identity
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        response = await self._request(
            Request.INIT,
            ApiKey.INIT_PRODUCER_ID,
            request,
            codes=_code,
            version_max=_INIT_VERSION,
            deadline_s=deadline_s,
        )
        if response is not None:
            self._machine.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
            self._publish_identity(expected)

    async def _add_partitions(self, partitions: Collection[TopicPartition], deadline_s: float) -> None:
        wanted = self._machine.partitions_to_add(partitions)
        identity = self._machine.identity
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[tp.partition for tp in some])
                for name, some in groupby(wanted, key=lambda tp: tp.topic)
            ],
        )
        await self._request(
            Request.ADD_PARTITIONS,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            message,
            version_max=_ADD_PARTITIONS_VERSION,
            deadline_s=deadline_s,
            codes=_partition_codes,
        )
        self._machine.partitions_added(wanted)

    async def _commit_offsets(self, offsets: GroupOffsets, deadline_s: float) -> None:
        group = offsets.group
        if self._machine.needs_group(group.group_id):
            identity = self._machine.identity
            message = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                group_id=group.group_id,
            )
            await self._request(
                Request.ADD_OFFSETS,
                ApiKey.ADD_OFFSETS_TO_TXN,
                message,
                codes=_code,
                version_max=_ADD_OFFSETS_VERSION,
                deadline_s=deadline_s,
            )
            self._machine.group_added(group.group_id)
        await self._request(
            Request.COMMIT_OFFSETS,
            ApiKey.TXN_OFFSET_COMMIT,
            self._offsets_request(offsets),
            version_max=_COMMIT_OFFSETS_VERSIONS[self.is_v2],
            deadline_s=deadline_s,
            group_id=group.group_id,
            codes=_offset_codes,
        )
        self._machine.offsets_committed(offsets)

    async def _end(self, request: Request, deadline_s: float) -> None:
        before, is_v2 = self._machine.identity, self.is_v2
        message = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=before.producer_id,
            producer_epoch=before.producer_epoch,
            committed=request is Request.END_COMMIT,
        )
        response = await self._request(
            request,
            ApiKey.END_TXN,
            message,
            codes=_code,
            version_max=_END_VERSIONS[is_v2],
            deadline_s=deadline_s,
        )
        if response is not None:
            self._machine.ended(_identity_after(response, before) if is_v2 else None)
            self._publish_identity(before)

    def _publish_identity(self, before: ProducerIdentity) -> None:
        if self._machine.identity != before and self.on_identity_changed is not None:
            self.on_identity_changed(self._machine.identity)

    # Requests

    def _offsets_request(self, offsets: GroupOffsets) -> TxnOffsetCommitRequest:
        group, identity = offsets.group, self._machine.identity
        topics = [
            TxnOffsetCommitRequestTopic(name=name, partitions=[_offset_row(tp, offsets.offsets[tp]) for tp in some])
            for name, some in groupby(sorted(offsets.offsets), key=lambda tp: tp.topic)
        ]
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=topics,
        )

    async def _request(
        self,
        request: Request,
        api_key: ApiKey,
        message: ApiRequest[ResponseT],
        *,
        codes: Callable[[ResponseT], Iterable[int]],
        version_max: int,
        deadline_s: float,
        group_id: str | None = None,
    ) -> ResponseT | None:
        """Send a request until it succeeds, and return the response.

        Returns None if the state machine ignores the error. Raises errors that are not retriable, and time-outs.
        """
        exchange = _Exchange(message, codes)
        coordinators = self._coordinators if group_id is None else self._groups
        key = self.transactional_id if group_id is None else group_id

        async def send() -> None:
            node = await coordinators.find(key, timeout_s=0)
            self._machine.sending(request)
            outgoing = exchange.begin()
            exchange.end(await self._cluster.call(api_key, outgoing, node=node, lane=_LANE, version_max=version_max))

        attempt = 0
        while (error := await self._attempt(send, request, exchange, deadline_s)) is not None:
            if classify_error(request, error.code) is not ErrorKind.RETRY:
                self._fail(request, error)
                return None
            if error.code not in _COORDINATOR_STAYS:
                coordinators.forget(key)
            await self._pause(request, error, attempt, deadline_s)
            attempt += 1
        return exchange.response

    async def _attempt(
        self, send: Callable[[], Awaitable[None]], request: Request, exchange: "_Exchange[Any]", deadline_s: float
    ) -> ApiError | None:
        """Send a request once; return its error. Raises if the deadline has passed."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await send()
        except TimeoutError:
            self._report_lost_response(request, exchange)
            self._raise_timeout(request, exchange.error)
        except ApiError as error:
            exchange.error = error
        finally:
            # Also if the caller is cancelled: the request may have been sent.
            self._report_lost_response(request, exchange)
        return exchange.error

    def _report_lost_response(self, request: Request, exchange: "_Exchange[Any]") -> None:
        if exchange.has_lost_response:
            self._is_protocol_known = False
            self._machine.response_lost(request)

    def _fail(self, request: Request, error: ApiError) -> None:
        raised = self._machine.request_failed(request, error)
        if raised is not None:
            raise raised from error

    async def _pause(self, request: Request, error: ApiError, attempt: int, deadline_s: float) -> None:
        """Wait before the next attempt. Raises if there is no time for one, or it is not needed any more."""
        pause_s = self._cluster.backoff_s(attempt)
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_s = min(pause_s, _CONCURRENT_BACKOFF.pause_s(attempt))
        if _now_s() + pause_s >= deadline_s:
            self._raise_timeout(request, error)
        await asyncio.sleep(pause_s)
        if request is Request.ADD_PARTITIONS:
            # Raises if a batch has failed meanwhile or the transaction is being aborted: its partitions are not needed.
            self._machine.partitions_to_add(())

    def _raise_timeout(self, request: Request, error: ApiError | None) -> NoReturn:
        """Raise the time-out. The batches that wait for their partitions fail; a user's call may be repeated."""
        if request is Request.ADD_PARTITIONS:
            self._fail(request, error or ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer within delivery.timeout.ms"))
        raise self._timeout_error(request.value, error)

    def _timeout_error(self, step: str, error: ApiError | None) -> ApiError:
        reason = f", last: {error}" if error is not None else ""
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"transactional.id {self.transactional_id}: {step} was not done within max.block.ms{reason}; "
            "call again to continue",
        )

    def _deadline_s(self) -> float:
        return _now_s() + self._max_block_s


class _Exchange(Generic[ResponseT]):
    """One request: the numbers of its attempts and responses, the last response, and the last error."""

    def __init__(self, message: ApiRequest[ResponseT], codes: Callable[[ResponseT], Iterable[int]]) -> None:
        self._message = message
        self._codes = codes
        self._attempts = 0
        self._responses = 0
        self.response: ResponseT | None = None
        self.error: ApiError | None = None

    def begin(self) -> ApiRequest[ResponseT]:
        self._attempts += 1
        return self._message

    def end(self, response: ResponseT) -> None:
        self._responses += 1
        self.response = response
        found = [ErrorCode(code) for code in self._codes(response) if code]
        # A code that is not retriable comes first: retrying because of another one would never succeed.
        code = next((code for code in found if not code.retriable), found[0] if found else None)
        self.error = None if code is None else ApiError(code)

    @property
    def has_lost_response(self) -> bool:
        return self._responses < self._attempts


class _Position:
    """An offset without metadata, for a user who passes a number instead of an OffsetAndMetadata."""

    leader_epoch: int | None = None
    metadata = ""

    def __init__(self, offset: Offset) -> None:
        self.offset = offset


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _code(response: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse) -> list[int]:
    return [response.error_code]


def _identity_after(response: EndTxnResponse, before: ProducerIdentity) -> ProducerIdentity:
    """Return the identity for the next transaction: `before` if the version of the response does not have one."""
    return ProducerIdentity(
        response.get("producer_id", before.producer_id), response.get("producer_epoch", before.producer_epoch)
    )


def _partition_codes(response: AddPartitionsToTxnResponse) -> list[int]:
    return [
        row.partition_error_code
        for topic in response.get("results_by_topic_v3_and_below", ())
        for row in topic.results_by_partition
    ]


def _offset_codes(response: TxnOffsetCommitResponse) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


def _offset_row(partition: TopicPartition, offset: OffsetLike) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=_NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
