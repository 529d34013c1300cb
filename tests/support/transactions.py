"""Transactions for tests: a producer with a method for each step.

The steps are those of Rookery's client (`Transactions`), in either protocol, whatever the cluster's feature level is:

    CLASSIC   the client adds partitions to its transaction (AddPartitionsToTxn, AddOffsetsToTxn). One epoch is used for
              many transactions; it is incremented when the outcome of a request is unknown, because the request could
              become part of a later transaction (KIP-360)
    V2        the server adds partitions (Produce v12, TxnOffsetCommit v5). Each transaction has its own epoch (KIP-890)

Only writing is implemented here: one batch for each partition, whose offset is returned. `end` returns UNKNOWN if a
request was lost that may have been carried out. `AbortableError` ends only the transaction. Every other ApiError ends
the producer: another instance has taken over, or must.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple

from rookery.base.clock import Clock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, Offset, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import DeliveryTimeoutError, FatalProducerError, ProducerFencedError
from rookery.client.produce.sequences import ProducerIdentity
from rookery.client.produce.transaction_calls import Transactions
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message, Request, ResponseT, Struct
from rookery.records.record import Record, build_batch

Offsets = Mapping[TopicPartition, Offset]

_ACKS_ALL = -1
_SENT_KEPT = 12
_REPEATED = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    )
)
# The retriable errors of a coordinator that has changed nothing; after others it may have.
_NOT_DONE = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class AbortableError(ApiError):
    """The transaction can only be aborted."""


class Protocol(Enum):
    CLASSIC = auto()
    V2 = auto()


_PRODUCE_VERSIONS = {Protocol.CLASSIC: 11, Protocol.V2: 12}


class Ended(Enum):
    """The outcome of `end`. DONE: as requested. REJECTED: certainly not. UNKNOWN: perhaps."""

    DONE = auto()
    REJECTED = auto()
    UNKNOWN = auto()


class SentRequest(NamedTuple):
    """A request that was sent. Sending it again simulates a message that arrives late."""

    protocol: Protocol
    identity: ProducerIdentity
    api_key: ApiKey
    api_version: int
    message: Request[Struct]
    node: NodeId
    # True for a Produce request whose batches were all acknowledged.
    is_written: bool = False


class Batch(NamedTuple):
    partition: TopicPartition
    data: bytearray


class GroupName(NamedTuple):
    """The metadata of a group without a member: the broker then does not check the member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class TransactionCluster(Cluster):
    """A cluster client with a fixed protocol; `on_sent` is called with each request."""

    protocol = Protocol.V2
    on_sent: Callable[[ApiKey, int, Request[Struct], NodeId], None] | None = None
    # Whether an EndTxn may have been carried out although it was not confirmed.
    is_end_uncertain = False

    async def call(
        self,
        api_key: ApiKey,
        message: Request[ResponseT],
        *,
        node: NodeId | None = None,
        timeout_s: float | None = None,
        lane: str = "",
        version_max: int | None = None,
    ) -> ResponseT:
        connection = await self.connection(node, lane)
        if api_key in _REPEATED and self.on_sent is not None and node is not None:
            assert version_max is not None, "the version determines the protocol"
            self.on_sent(api_key, min(version_max, connection.version(api_key)), message, node)
        was_uncertain = self.is_end_uncertain
        self.is_end_uncertain |= api_key is ApiKey.END_TXN
        response = await super().call(
            api_key, message, node=node, timeout_s=timeout_s, lane=lane, version_max=version_max
        )
        if api_key is ApiKey.END_TXN:
            code = ErrorCode(vars(response)["error_code"])
            # Also after a success: the next step, a new epoch, may fail.
            self.is_end_uncertain = (
                was_uncertain or code is ErrorCode.NONE or (code.retriable and code not in _NOT_DONE)
            )
        if api_key is ApiKey.API_VERSIONS and self.protocol is Protocol.CLASSIC:
            vars(response)["finalized_features"] = []
        return response


class TransactionalProducer:
    """One instance. Call `init` first; a transaction begins with its first `produce` or `send_offsets`.

    `patience_s` is the time-out of each step, including its retries.
    """

    def __init__(
        self,
        cluster: TransactionCluster,
        transactional_id: str,
        *,
        protocol: Protocol,
        clock: Clock,
        timeout_ms: int = 60_000,
        patience_s: float = 20.0,
        sent: deque[SentRequest] | None = None,
    ) -> None:
        self.protocol = protocol
        # The latest requests, in the order of sending.
        self.sent: deque[SentRequest] = deque(maxlen=_SENT_KEPT) if sent is None else sent
        self._cluster = cluster
        self._clock = clock
        self._patience_s = patience_s
        self._next_sequences: dict[TopicPartition, int] = {}
        cluster.protocol = protocol
        cluster.on_sent = self._note_sent
        self._transactions = Transactions(
            cluster,
            transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(patience_s * 1000),
            delivery_timeout_ms=int(patience_s * 1000),
            on_identity_changed=lambda identity: self._next_sequences.clear(),
        )

    @property
    def identity(self) -> ProducerIdentity:
        return self._transactions.identity

    async def init(self) -> None:
        """Take over the transactional id; the transaction of a former instance is aborted."""
        await self._transactions.init()

    async def produce(self, values: Mapping[TopicPartition, Sequence[bytes]]) -> dict[TopicPartition, Offset]:
        """Write one batch to each partition; returns their first offsets."""
        self._begin()
        for partition in values:
            self._transactions.add(partition)
        try:
            await self._transactions.ensure_added(values.keys())
            return await self._produce([self._batch(tp, some) for tp, some in values.items()])
        except ApiError as error:
            raise self._as_abortable(error) from error

    async def send_offsets(self, group: str, offsets: Offsets) -> None:
        """Commit a group's offsets with the transaction."""
        self._begin()
        try:
            await self._transactions.send_offsets(offsets, GroupName(group))
        except ApiError as error:
            raise self._as_abortable(error) from error

    async def end(self, *, commit: bool) -> Ended:
        """End the transaction, with retries. After UNKNOWN and REJECTED only another instance can continue."""
        self._cluster.is_end_uncertain = False
        if not self._transactions.is_open:
            return Ended.DONE
        try:
            await self._transactions.end(commit=commit)
        except ApiError as error:
            return Ended.UNKNOWN if self._cluster.is_end_uncertain or error.code.retriable else Ended.REJECTED
        return Ended.DONE

    async def close(self) -> None:
        await self._cluster.close()

    # Steps

    def _begin(self) -> None:
        if not self._transactions.is_open:
            self._transactions.begin()

    def _as_abortable(self, error: ApiError) -> ApiError:
        """Return the error as AbortableError, also after a time-out, unless it ends the producer."""
        if isinstance(error, ProducerFencedError | FatalProducerError):
            return error
        return AbortableError(error.code, error.message)

    def _batch(self, partition: TopicPartition, values: Sequence[bytes]) -> Batch:
        now_ms, identity = self._clock.now_ms(), self.identity
        sequence = self._next_sequences.get(partition, 0)
        self._next_sequences[partition] = sequence + len(values)
        data = build_batch(
            [Record(index, now_ms, None, value, ()) for index, value in enumerate(values)],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return Batch(partition, data)

    async def _produce(self, batches: Iterable[Batch]) -> dict[TopicPartition, Offset]:
        """Send batches until all have an offset."""
        offsets: dict[TopicPartition, Offset] = {}
        waiting = {batch.partition: batch for batch in batches}
        deadline_s, attempt = _now_s() + self._patience_s, 0
        while failure := await self._produce_once(waiting, offsets):
            if _now_s() >= deadline_s:
                late = DeliveryTimeoutError(f"the records may have been written: {failure}")
                for partition in waiting:
                    self._transactions.on_batch_failed(partition, late)
                raise late
            self._cluster.forget_leaders()
            await asyncio.sleep(self._cluster.backoff_s(attempt))
            attempt += 1
        return offsets

    async def _produce_once(
        self, waiting: dict[TopicPartition, Batch], offsets: dict[TopicPartition, Offset]
    ) -> ErrorCode | None:
        """Send the waiting batches once; returns the error if another attempt is needed."""
        try:
            leaders = {tp: await self._cluster.leader(tp) for tp in waiting}
        except ApiError as error:
            return error.code
        failure: ErrorCode | None = None
        for node in sorted(set(leaders.values())):
            some = [waiting[tp] for tp in sorted(waiting) if leaders[tp] == node]
            for tp, code, offset in await self._produce_to(node, some):
                if code in _WRITTEN:
                    offsets[tp] = offset
                    del waiting[tp]
                elif code.retriable:
                    failure = code
                else:
                    raise self._transactions.on_batch_failed(tp, ApiError(code, f"partition {tp}"))
        return failure

    async def _produce_to(self, node: NodeId, batches: list[Batch]) -> list[tuple[TopicPartition, ErrorCode, Offset]]:
        request = Message(
            transactional_id=self._transactions.transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[
                Message(
                    name=name,
                    partition_data=[Message(index=batch.partition.partition, records=batch.data) for batch in some],
                )
                for name, some in groupby(batches, key=lambda batch: batch.partition.topic)
            ],
        )
        try:
            version = _PRODUCE_VERSIONS[self.protocol]
            response = await self._cluster.call(ApiKey.PRODUCE, request, node=node, version_max=version)
        except ApiError as error:
            return [(batch.partition, error.code, -1) for batch in batches]
        answers = [
            (TopicPartition(topic.name, row.index), ErrorCode(row.error_code), row.base_offset)
            for topic in response.responses
            for row in topic.partition_responses
        ]
        if all(code in _WRITTEN for _, code, _ in answers):
            self._note_written(request)
        return answers

    def _note_written(self, message: Message) -> None:
        for index, sent in enumerate(self.sent):
            if sent.message is message:
                self.sent[index] = sent._replace(is_written=True)

    def _note_sent(self, api_key: ApiKey, api_version: int, message: Request[Struct], node: NodeId) -> None:
        self.sent.append(SentRequest(self.protocol, self.identity, api_key, api_version, message, node))


async def repeat(cluster: Cluster, request: SentRequest) -> None:
    """Send a request again, on a separate connection, and ignore the response."""
    if request.node not in cluster.metadata.brokers:
        await cluster.refresh(())
    connection = await cluster.connection(request.node, "repeated")
    await connection.request(
        request.api_key, request.message, timeout_s=cluster.timeout_s, api_version=request.api_version
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
