"""The requests of a transactional producer: to the transaction's coordinator, and to those of groups.

`Transactions` is what `producer` and `sender` use; it exists only if `transactional.id` is set. What is allowed, what
comes next and what an error means is decided by `transactions.TransactionMachine`; here is the asking: coordinators
are looked up, retriable answers and lost connections are tried again, until the time is over.

Two clocks bound the asking. `init`, `send_offsets` and `end` have `max.block.ms`, and what ran out of time goes on when
it is called again. Adding partitions has `delivery.timeout.ms`, as the batches have that wait for it.

A request whose answer was lost, or whose caller was cancelled, may still be carried out. The machine is told, and in
the classic protocol raises the epoch before the next transaction.
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
from rookery.client.produce.transactions import (
    GroupLike,
    GroupOffsets,
    OffsetLike,
    Request,
    TransactionMachine,
    Verdict,
    judge,
)
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

# The highest versions that clients use. Later ones of AddPartitionsToTxn are for brokers, of InitProducerId for
# two-phase commits; EndTxn 5 and TxnOffsetCommit 5 mean transactions v2 (KIP-890).
_INIT_VERSION = 5
_ADD_PARTITIONS_VERSION = 3
_ADD_OFFSETS_VERSION = 4
_COMMIT_OFFSETS_VERSIONS = {False: 4, True: 5}
_END_VERSIONS = {False: 4, True: 5}

_NO_LEADER_EPOCH = -1
# The transaction before is being ended, which takes only a moment. Kafka's client begins with the same pause.
_CONCURRENT_BACKOFF = Backoff(0.02, 0.5)
# After other errors the coordinator is looked up again.
_COORDINATOR_STAYS = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

IdentityListener = Callable[[ProducerIdentity], object]


class Transactions:
    """One producer's. The calls of users are serialized; `ensure_added` runs beside them, for the sender.

    `on_identity_changed` is called with each new identity: sequence numbers begin again at 0.
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
        self._calling = asyncio.Lock()
        self._adding = asyncio.Lock()
        self._waits_to_add: set[asyncio.Timeout] = set()
        # A broker that we lost may come back with another transaction.version.
        self._is_protocol_known = False

    # What the sender asks

    @property
    def identity(self) -> ProducerIdentity:
        """Producer id and epoch to stamp on batches; NO_IDENTITY before `init`."""
        return self._machine.identity

    @property
    def is_v2(self) -> bool:
        """Whether batches go out as Produce v12 or later; else as v11 at most."""
        return self._machine.is_v2

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended; `close` aborts it then."""
        return self._machine.is_open

    @property
    def error(self) -> ApiError | None:
        """Why the transaction, or the producer, cannot go on."""
        return self._machine.error

    @property
    def is_over(self) -> bool:
        """Whether batches are not to be tried again: the transaction has failed, or is being aborted."""
        return self._machine.is_over

    @property
    def number(self) -> int:
        """Of the transaction that was begun last."""
        return self._machine.number

    def check_may_send(self) -> None:
        """Raises ClientStateError outside of a transaction, and the transaction's error if it has one."""
        self._machine.check_may_send()

    def check_may_still_send(self, number: int) -> None:
        """The same after a wait; also raises if another transaction has begun."""
        self._machine.check_may_still_send(number)

    def add(self, partition: TopicPartition) -> None:
        """A record for it was accepted into the accumulator."""
        self._machine.accept(partition)

    async def ensure_added(self, partitions: Collection[TopicPartition]) -> None:
        """Before batches for these are sent. Raises what the batches are to fail with.

        One request goes out at a time, with all partitions that wait.
        """
        if self._machine.is_added(partitions):
            return
        deadline_s = _now_s() + self._delivery_timeout_s
        try:
            async with asyncio.timeout(None) as limit:
                self._waits_to_add.add(limit)
                async with self._adding:
                    if not self._machine.is_added(partitions):
                        await self._add_partitions(partitions, deadline_s)
        except TimeoutError:
            raise TransactionAbortableError("the transaction was aborted before the record was sent") from None
        finally:
            self._waits_to_add.discard(limit)

    def on_batch_failed(self, partition: TopicPartition, error: ApiError) -> ApiError:
        """For good, not to be retried. What its records' futures get."""
        return self._machine.batch_failed(partition, error)

    def on_send_failed(self, error: ApiError, number: int) -> None:
        """A record of that transaction was refused before it came into the accumulator: no commit without it."""
        self._machine.send_failed(error, number)

    # What users call

    async def init(self) -> None:
        """Take over the transactional id. Fences its older producers, and aborts what they left open."""
        async with self._calling:
            self._machine.begin_init()
            await self._finish(self._deadline_s())

    def begin(self) -> None:
        self._machine.begin()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetLike | Offset], group_metadata: GroupLike
    ) -> None:
        """Commit a group's offsets with the transaction. CommitFailedError: the group has moved on, abort."""
        if group_metadata.generation_id > 0 and not group_metadata.member_id:
            raise ClientStateError("send_offsets_to_transaction() needs a group_metadata() with a member id")
        async with self._calling:
            wanted = {tp: _Position(each) if isinstance(each, int) else each for tp, each in offsets.items()}
            group_offsets = GroupOffsets(group_metadata, wanted)
            self._machine.check_may_send()
            if wanted:
                self._machine.begin_offsets(group_offsets)
                await self._commit_offsets(group_offsets, self._deadline_s())

    async def prepare(self, *, settle: Callable[[], Awaitable[object]]) -> PreparedTransaction:
        """Have everything written, and leave the transaction open for others to end."""
        async with self._calling:
            deadline_s = self._deadline_s()
            self._machine.begin_prepare()
            await self._settle(settle, deadline_s)
            # A batch may have failed: then there is nothing to prepare any more.
            self._machine.begin_prepare()
            await self._finish(deadline_s)
            identity = self._machine.identity
            return PreparedTransaction(
                self.transactional_id, identity.producer_id, identity.producer_epoch, is_v2=self.is_v2
            )

    async def end(self, *, commit: bool, settle: Callable[[], Awaitable[object]] | None = None) -> None:
        """Commit or abort. From the start no record is accepted; `settle` then waits for those that were.

        Raises REQUEST_TIMED_OUT if `max.block.ms` is over: then call the same again.
        """
        async with self._calling:
            deadline_s = self._deadline_s()
            self._machine.begin_end(commit=commit)
            if not commit:
                self._give_up_adding()
            if settle is not None:
                await self._settle(settle, deadline_s)
                # A batch may have failed: then there is no commit any more.
                self._machine.begin_end(commit=commit)
            await self._finish(deadline_s)

    async def _settle(self, settle: Callable[[], Awaitable[object]], deadline_s: float) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await settle()
        except TimeoutError:
            raise self._late("the delivery of what was sent", None) from None

    def _give_up_adding(self) -> None:
        """Batches that wait for their partitions are not to be sent."""
        for limit in self._waits_to_add:
            limit.reschedule(_now_s())

    # Steps

    async def _finish(self, deadline_s: float) -> None:
        """Bring the pending operation to its end."""
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
        """Which protocol the cluster speaks: the level of its feature `transaction.version`."""

        async def ask() -> ApiVersionsResponse:
            return await self._cluster.call(ApiKey.API_VERSIONS, software(), lane=_LANE)

        try:
            async with asyncio.timeout_at(deadline_s):
                response = await self._cluster.retry(ask, timeout_s=deadline_s - _now_s())
        except TimeoutError:
            raise self._late("ApiVersions", None) from None
        except ApiError as error:
            raise self._late("ApiVersions", error) if error.code.retriable else error from None
        features = response.get("finalized_features", ())
        level = next((row.max_version_level for row in features if row.name == FEATURE), 0)
        self._machine.saw_protocol(is_v2=level >= _V2_LEVEL)
        self._is_protocol_known = True

    async def _init(self, deadline_s: float) -> None:
        expected = self._machine.identity
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        response = await self._ask(
            Request.INIT,
            ApiKey.INIT_PRODUCER_ID,
            request,
            codes=_code,
            version_max=_INIT_VERSION,
            deadline_s=deadline_s,
        )
        if response is not None:
            self._machine.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
            self._tell_identity(expected)

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
        await self._ask(
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
            await self._ask(
                Request.ADD_OFFSETS,
                ApiKey.ADD_OFFSETS_TO_TXN,
                message,
                codes=_code,
                version_max=_ADD_OFFSETS_VERSION,
                deadline_s=deadline_s,
            )
            self._machine.group_added(group.group_id)
        await self._ask(
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
        response = await self._ask(
            request,
            ApiKey.END_TXN,
            message,
            codes=_code,
            version_max=_END_VERSIONS[is_v2],
            deadline_s=deadline_s,
        )
        if response is not None:
            self._machine.ended(_identity_after(response, before) if is_v2 else None)
            self._tell_identity(before)

    def _tell_identity(self, before: ProducerIdentity) -> None:
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

    async def _ask(
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
        """The answer, after as many tries as it takes; None if the machine says that the error does not matter."""
        asking = _Asking(message, codes)
        coordinators = self._coordinators if group_id is None else self._groups
        key = self.transactional_id if group_id is None else group_id

        async def ask() -> None:
            node = await coordinators.find(key, timeout_s=0)
            self._machine.sending(request)
            sending = asking.begin()
            asking.end(await self._cluster.call(api_key, sending, node=node, lane=_LANE, version_max=version_max))

        attempt = 0
        while (error := await self._try(ask, request, asking, deadline_s)) is not None:
            if judge(request, error.code) is not Verdict.RETRY:
                self._fail(request, error)
                return None
            if error.code not in _COORDINATOR_STAYS:
                coordinators.forget(key)
            await self._pause(request, error, attempt, deadline_s)
            attempt += 1
        return asking.answer

    async def _try(
        self, ask: Callable[[], Awaitable[None]], request: Request, asking: "_Asking[Any]", deadline_s: float
    ) -> ApiError | None:
        """One try; what went wrong."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await ask()
        except TimeoutError:
            self._note_losses(request, asking)
            self._run_out_of_time(request, asking.error)
        except ApiError as error:
            asking.error = error
        finally:
            self._note_losses(request, asking)
        return asking.error

    def _note_losses(self, request: Request, asking: "_Asking[Any]") -> None:
        if asking.has_lost_answer:
            self._is_protocol_known = False
            self._machine.lost(request)

    def _fail(self, request: Request, error: ApiError) -> None:
        told = self._machine.failed(request, error)
        if told is not None:
            raise told from error

    async def _pause(self, request: Request, error: ApiError, attempt: int, deadline_s: float) -> None:
        """Before the next try; raises if there is no time for one, or no need."""
        pause_s = self._cluster.backoff_s(attempt)
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_s = min(pause_s, _CONCURRENT_BACKOFF.pause_s(attempt))
        if _now_s() + pause_s >= deadline_s:
            self._run_out_of_time(request, error)
        await asyncio.sleep(pause_s)
        if request is Request.ADD_PARTITIONS:
            # A batch has failed meanwhile, or the user aborts: nobody waits for the answer.
            self._machine.partitions_to_add(())

    def _run_out_of_time(self, request: Request, error: ApiError | None) -> NoReturn:
        """Batches that wait for their partitions are lost; whatever a user has called can be called again."""
        if request is Request.ADD_PARTITIONS:
            self._fail(request, error or ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer within delivery.timeout.ms"))
        raise self._late(request.value, error)

    def _late(self, asked: str, error: ApiError | None) -> ApiError:
        reason = f", last: {error}" if error is not None else ""
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"transactional.id {self.transactional_id}: {asked} was not done within max.block.ms{reason}; "
            "call again to go on",
        )

    def _deadline_s(self) -> float:
        return _now_s() + self._max_block_s


class _Asking(Generic[ResponseT]):
    """One request: how often it was sent and answered, the last answer, and the last error."""

    def __init__(self, message: ApiRequest[ResponseT], codes: Callable[[ResponseT], Iterable[int]]) -> None:
        self._message = message
        self._codes = codes
        self._tries = 0
        self._answers = 0
        self.answer: ResponseT | None = None
        self.error: ApiError | None = None

    def begin(self) -> ApiRequest[ResponseT]:
        self._tries += 1
        return self._message

    def end(self, response: ResponseT) -> None:
        self._answers += 1
        self.answer = response
        found = [ErrorCode(code) for code in self._codes(response) if code]
        # What is final comes before what may be tried again.
        code = next((code for code in found if not code.retriable), found[0] if found else None)
        self.error = None if code is None else ApiError(code)

    @property
    def has_lost_answer(self) -> bool:
        return self._answers < self._tries


class _Position:
    """An offset alone, where a user gives no OffsetAndMetadata."""

    leader_epoch: int | None = None
    metadata = ""

    def __init__(self, offset: Offset) -> None:
        self.offset = offset


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _code(response: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse) -> list[int]:
    return [response.error_code]


def _identity_after(response: EndTxnResponse, before: ProducerIdentity) -> ProducerIdentity:
    """The identity for the next transaction. A version that does not report one has not changed it."""
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
