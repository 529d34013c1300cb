"""Transactions for tests: a producer that takes each step singly, and a consumer that reads what was committed.

The producer speaks both protocols, and retries as Kafka's own clients do:

    CLASSIC   the client adds partitions to its transaction (AddPartitionsToTxn, AddOffsetsToTxn). One epoch serves many
              transactions; it is raised when a request's fate stays unknown, lest it join a later one (KIP-360)
    V2        the server adds partitions (Produce v12, TxnOffsetCommit v5). Each transaction has its own epoch (KIP-890)

What cannot be told from outside is told as such: `end` answers UNKNOWN if a request was lost that may have been carried
out. `FencedError` ends a producer: another instance has taken over. `AbortableError` ends a transaction only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple

from rookery.base.clock import Clock
from rookery.base.coordinator_codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, Offset, TopicPartition
from rookery.client.accumulator import NO_IDENTITY, PendingBatch, ProducerIdentity, Sequences
from rookery.client.admin import by_topic
from rookery.client.cluster import Cluster, backoff_s
from rookery.client.consumer import ConsumedRecord, Consumer
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch
from tests.support.aborted import aborted_batches

Batch = PendingBatch[None]
Offsets = Mapping[TopicPartition, Offset]

_ACKS_ALL = -1
_READ_COMMITTED = 1
_SENT_KEPT = 12
# Answers of a coordinator that has done nothing yet; after other retriable ones it may have.
_NOT_DONE = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED_IN_PRODUCE = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class FencedError(ApiError):
    """Another instance has this transactional id now."""


class AbortableError(ApiError):
    """The transaction can only be aborted."""


class Protocol(Enum):
    CLASSIC = auto()
    V2 = auto()


class _Versions(NamedTuple):
    produce: int
    commit_offsets: int
    end: int


_VERSIONS = {Protocol.CLASSIC: _Versions(11, 4, 4), Protocol.V2: _Versions(12, 5, 5)}
_INIT_VERSION = 5
_ADD_PARTITIONS_VERSION = 3
_ADD_OFFSETS_VERSION = 4


class Ended(Enum):
    """DONE: as asked for. REFUSED: certainly not. UNKNOWN: perhaps."""

    DONE = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class SentRequest(NamedTuple):
    """A request that went out; whoever sends it again plays a message that comes late."""

    protocol: Protocol
    identity: ProducerIdentity
    api_key: ApiKey
    api_version: int
    message: Message
    node: NodeId


class _Answer(NamedTuple):
    """`is_uncertain`: an attempt before this answer may have been carried out."""

    response: Message | None
    code: ErrorCode
    is_uncertain: bool


class TransactionalProducer:
    """One instance. Begin with `init`; a transaction begins with its first `produce` or `send_offsets`.

    `patience_s` bounds each step with its retries.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        protocol: Protocol,
        clock: Clock,
        timeout_ms: int = 60_000,
        patience_s: float = 20.0,
        sent: deque[SentRequest] | None = None,
    ) -> None:
        self.protocol = protocol
        # What went out lately, in the order of sending.
        self.sent: deque[SentRequest] = deque(maxlen=_SENT_KEPT) if sent is None else sent
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._versions = _VERSIONS[protocol]
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._patience_s = patience_s
        self._sequences = Sequences()
        self._coordinators = self._forget_coordinators()
        self._added: set[TopicPartition] = set()
        self._has_begun = False
        # A request of this transaction may come late: the next transaction needs another epoch.
        self._needs_new_epoch = False

    @property
    def identity(self) -> ProducerIdentity:
        return self._sequences.identity

    async def init(self) -> None:
        """Take over the transactional id; the transaction of a former instance is aborted."""
        await self._init(NO_IDENTITY)

    async def _init(self, expected: ProducerIdentity) -> None:
        request = Message(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
        )
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, _INIT_VERSION, request)
        response = self._checked(answer)
        self._begin_anew(ProducerIdentity(response.producer_id, response.producer_epoch))

    async def produce(self, values: Mapping[TopicPartition, Sequence[bytes]]) -> dict[TopicPartition, Offset]:
        """One batch for each partition; where they begin."""
        self._has_begun = True
        if self.protocol is Protocol.CLASSIC:
            await self._add_partitions(values.keys() - self._added)
        batches = {tp: self._batch(tp, some) for tp, some in values.items()}
        self._sequences.stamp(batches.values())
        offsets: dict[TopicPartition, Offset] = {}
        deadline_s, attempt = self._deadline_s(), 0
        while (failure := await self._produce_once(batches, offsets)) is not None:
            if self._now_s() >= deadline_s:
                self._needs_new_epoch = True
                raise AbortableError(failure, "the records may have been written")
            await self._pause(attempt)
            attempt += 1
        return offsets

    async def send_offsets(self, group: str, offsets: Offsets) -> None:
        """Commit a group's offsets with the transaction."""
        self._has_begun = True
        fields = self._fields() | {"group_id": group}
        if self.protocol is Protocol.CLASSIC:
            self._checked(await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, _ADD_OFFSETS_VERSION, Message(**fields)))
        request = Message(
            **fields,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=by_topic(offsets, lambda tp: _offset_row(tp, offsets[tp])),
        )
        answer = await self._ask(
            ApiKey.TXN_OFFSET_COMMIT,
            self._versions.commit_offsets,
            request,
            key_type=KeyType.GROUP,
            key=group,
            codes=lambda response: [row.error_code for topic in response.topics for row in topic.partitions],
        )
        self._checked(answer)

    async def end(self, *, commit: bool) -> Ended:
        """Ask until there is an answer; after UNKNOWN and REFUSED only another instance can go on."""
        if not self._has_begun:
            return Ended.DONE
        answer = await self._ask(ApiKey.END_TXN, self._versions.end, Message(**self._fields(), committed=commit))
        if answer.code is not ErrorCode.NONE:
            return Ended.UNKNOWN if answer.is_uncertain or answer.code.retriable else Ended.REFUSED
        assert answer.response is not None
        if self.protocol is Protocol.V2:
            self._begin_anew(ProducerIdentity(answer.response.producer_id, answer.response.producer_epoch))
        elif self._needs_new_epoch:
            await self._init(self.identity)
        self._has_begun = False
        self._added.clear()
        return Ended.DONE

    async def repeat(self, request: SentRequest) -> None:
        """Send something again that was sent before, on a connection of its own, whatever the answer."""
        connection = await self._cluster.connection(request.node, "repeated")
        await connection.request(
            request.api_key, request.message, timeout_s=self._cluster.timeout_s, api_version=request.api_version
        )

    # Steps

    def _begin_anew(self, identity: ProducerIdentity) -> None:
        """Sequence numbers begin again with each epoch."""
        if identity != self.identity:
            self._sequences.reset(identity)
        self._needs_new_epoch = False

    async def _add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = sorted(partitions)
        if not wanted:
            return
        fields = {f"v3_and_below_{name}": value for name, value in self._fields().items()}
        topics = [
            Message(name=name, partitions=[tp.partition for tp in some])
            for name, some in groupby(wanted, key=lambda tp: tp.topic)
        ]
        request = Message(**fields, v3_and_below_topics=topics)
        answer = await self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            _ADD_PARTITIONS_VERSION,
            request,
            codes=lambda response: [
                row.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ],
        )
        self._checked(answer)
        self._added.update(wanted)

    def _batch(self, partition: TopicPartition, values: Sequence[bytes]) -> Batch:
        now_ms = self._clock.now_ms()
        records = [Record(index, now_ms, None, value, ()) for index, value in enumerate(values)]
        return PendingBatch(partition, records, [], 0)

    async def _produce_once(
        self, batches: dict[TopicPartition, Batch], offsets: dict[TopicPartition, Offset]
    ) -> ErrorCode | None:
        """Send what has no offset yet; the reason for another try."""
        waiting = [tp for tp in batches if tp not in offsets]
        try:
            leaders = {tp: await self._cluster.leader(tp) for tp in waiting}
        except ApiError as error:
            return error.code
        failure: ErrorCode | None = None
        for node in sorted(set(leaders.values())):
            some = [batches[tp] for tp in sorted(waiting) if leaders[tp] == node]
            for tp, code, offset in await self._produce_to(node, some):
                if code in _WRITTEN:
                    offsets[tp] = offset
                else:
                    failure = self._judge(code, tp)
        return failure

    async def _produce_to(self, node: NodeId, batches: list[Batch]) -> list[tuple[TopicPartition, ErrorCode, Offset]]:
        request = Message(
            transactional_id=self._transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[
                Message(name=name, partition_data=[_produce_row(batch) for batch in some])
                for name, some in groupby(batches, key=lambda batch: batch.partition.topic)
            ],
        )
        try:
            response = await self._send(node, ApiKey.PRODUCE, self._versions.produce, request)
        except ApiError as error:
            return [(batch.partition, error.code, -1) for batch in batches]
        return [
            (TopicPartition(topic.name, row.index), ErrorCode(row.error_code), row.base_offset)
            for topic in response.responses
            for row in topic.partition_responses
        ]

    def _judge(self, code: ErrorCode, partition: TopicPartition) -> ErrorCode:
        """Raise unless the batch may be sent again."""
        if code.retriable:
            return code
        if code in _FENCED_IN_PRODUCE:
            raise FencedError(code, f"{self._transactional_id}, partition {partition}")
        # Numbers given to this batch are not to be used for another.
        self._needs_new_epoch = True
        raise AbortableError(code, f"{self._transactional_id}, partition {partition}")

    # Requests

    def _fields(self) -> dict[str, object]:
        identity = self.identity
        return {
            "transactional_id": self._transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
        }

    async def _ask(
        self,
        api_key: ApiKey,
        api_version: int,
        message: Message,
        *,
        key_type: KeyType = KeyType.TRANSACTION,
        key: str | None = None,
        codes: Callable[[Message], Iterable[int]] = lambda response: [response.error_code],
    ) -> _Answer:
        """Ask a coordinator until it answers something final, or patience ends."""
        deadline_s, attempt, is_uncertain = self._deadline_s(), 0, False
        while True:
            is_sent = False
            response: Message | None = None
            try:
                node = await self._coordinators[key_type].find(key or self._transactional_id, timeout_s=0)
                is_sent = True
                response = await self._send(node, api_key, api_version, message)
                code = next((ErrorCode(code) for code in codes(response) if code), ErrorCode.NONE)
            except ApiError as error:
                code = error.code
            if not code.retriable:
                return _Answer(response, code, is_uncertain)
            is_uncertain = is_uncertain or (is_sent and code not in _NOT_DONE)
            if self._now_s() >= deadline_s:
                return _Answer(None, code, is_uncertain)
            await self._pause(attempt)
            attempt += 1

    async def _send(self, node: NodeId, api_key: ApiKey, api_version: int, message: Message) -> Message:
        connection = await self._cluster.connection(node)
        if api_key is not ApiKey.INIT_PRODUCER_ID:
            self.sent.append(SentRequest(self.protocol, self.identity, api_key, api_version, message, node))
        timeout_s = self._cluster.timeout_s
        return await connection.request(api_key, message, timeout_s=timeout_s, api_version=api_version)

    def _checked(self, answer: _Answer) -> Message:
        if answer.code is ErrorCode.NONE and answer.response is not None:
            return answer.response
        if answer.code in _FENCED:
            raise FencedError(answer.code, self._transactional_id)
        self._needs_new_epoch = True
        raise AbortableError(answer.code, self._transactional_id)

    async def _pause(self, attempt: int) -> None:
        self._coordinators = self._forget_coordinators()
        self._cluster.forget_leaders()
        await asyncio.sleep(backoff_s(attempt))

    def _forget_coordinators(self) -> dict[KeyType, Coordinators]:
        return {key_type: Coordinators(self._cluster, key_type) for key_type in KeyType}

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _deadline_s(self) -> float:
        return self._now_s() + self._patience_s


class CommittedConsumer(Consumer):
    """Reads what was committed, as consumers with isolation.level=read_committed do."""

    def _request(self, partitions: Iterable[TopicPartition]) -> Message:
        request = super()._request(partitions)
        request.isolation_level = _READ_COMMITTED
        return request

    async def _accept(self, tp: TopicPartition, row: Message) -> list[ConsumedRecord]:
        aborted = [(item.producer_id, item.first_offset) for item in row.aborted_transactions or ()]
        dropped = list(aborted_batches(row.records or b"", aborted))
        records = await super()._accept(tp, row)
        return [record for record in records if not any(record.offset in offsets for offsets in dropped)]


def _produce_row(batch: Batch) -> Message:
    records = build_batch(
        batch.records,
        producer_id=batch.identity.producer_id,
        producer_epoch=batch.identity.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=True,
    )
    return Message(index=batch.partition.partition, records=records)


def _offset_row(partition: TopicPartition, offset: Offset) -> Message:
    return Message(
        partition_index=partition.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
