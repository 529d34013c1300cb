"""Produce (0): append one batch per partition to logs that this broker leads.

Stage 1 checks each batch (header and CRC only), stamps it and appends the same bytes, in the order of the connection's
requests. The answer follows at once unless it has to wait: `acks=all` for the in-sync replicas, and any `acks` but 0
for the fsync that `flush.messages` asks for; what does not get there in time is answered with REQUEST_TIMED_OUT.

- `acks=0` has no answer; an error closes the connection, which is how the client learns of it.
- A batch that the log has already (same producer, epoch and sequence) is answered with its old offset and no error. If
  the old batch belongs to a transaction that has ended, the new one is refused: TRANSACTION_ABORTABLE, up to v10
  UNKNOWN_PRODUCER_ID, the error after which clients of that age abort and ask for a new epoch.
- Partitions fail on their own: NOT_ENOUGH_REPLICAS, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD and
  INVALID_TIMESTAMP (with an error for each record at fault), OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR and so
  on.
- A transactional batch that begins its producer's transaction on a partition needs the coordinator's consent, as
  `broker.verification` tells. Where that has to be waited for, the whole request is appended when it is there, and
  later requests with the same transactional id go behind it. A marker in between makes it INVALID_TXN_STATE.
- Where a topic's configuration asks for a look at the records, as `broker.inspections` tells, a batch may have to wait
  for it. It is appended afterwards, and the answer waits for it.

Versions: v0 to v2 carry old message formats; they are advertised, for the sake of old clients, and refused with
UNSUPPORTED_VERSION. v3 is the first with v2 batches. v5 log start offset. v7 may use zstd. v8 record errors and
messages. v9 flexible. v10 the current leader, where this broker is not it (KIP-951). v11 may answer
TRANSACTION_ABORTABLE. v12 adds partitions to their transaction (KIP-890). v13 names topics by id.
"""

import asyncio
import struct
from collections.abc import Awaitable, Set
from functools import partial
from typing import Final, NamedTuple

from rookery.base.bounds import RECORD_ERRORS_MAX
from rookery.base.errors import ErrorCode, ProtocolError
from rookery.base.types import Buffer, LeaderEpoch, NodeId, Offset, TimestampMs, TopicPartition
from rookery.broker.context import RequestContext
from rookery.broker.inspections import Effort
from rookery.broker.parking import park
from rookery.broker.verification import Verdicts, verify
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.net.connection import Answer
from rookery.net.send import Reply
from rookery.protocol.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    ProduceTopicResult,
    decode_produce,
    encode_produce_response,
)
from rookery.replication.replica import ACKS_ALL, ACKS_NONE, NOT_INSPECTED, Appended, Replica
from rookery.storage.producers import Verification

_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
_ZSTD_SINCE = 7
_ABORTABLE_SINCE = 11
OLD_VERSIONS: Final = range(3)
# Kafka's own admin tools may write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"
_NO_RECORDS: Final = memoryview(b"")
_OK: Final = ErrorCode.NONE


class _Waiting(NamedTuple):
    """An append that is not acknowledged yet, the epoch that it was made in, and the place of its result."""

    partition: TopicPartition
    replica: Replica
    leader_epoch: LeaderEpoch
    end_offset: Offset
    results: list[ProducePartitionResult]
    place: int


def handle(context: RequestContext, frame: memoryview, position: int) -> Answer:
    request = decode_produce(context.api_version, frame, position)
    if request.transactional_id is not None:
        return _handle_transactional(context, request, request.transactional_id)
    produce = _Produce(context, request.acks)
    produce.append_all(request)
    return _answer(produce, request)


def _answer(produce: "_Produce", request: ProduceRequest) -> Answer:
    if produce.delayed:
        delayed, produce.delayed = produce.delayed, ()
        return _answer_later(produce, request, asyncio.gather(*delayed))
    if request.acks == ACKS_NONE:
        _close_on_error(produce.topics)
        return None
    if not produce.waiting:
        return produce.answer()
    # What was acknowledged while another partition's batch was inspected wakes nothing any more: parked, it would be
    # answered at its time-out.
    if produce.is_settled(frozenset()):
        return produce.finish()
    return park(
        produce.context.services.pending,
        [each.partition for each in produce.waiting],
        timeout_ms=request.timeout_ms,
        is_ready=produce.is_settled,
        finish=produce.finish,
    )


def _handle_transactional(context: RequestContext, request: ProduceRequest, transactional_id: str) -> Answer:
    produce = _TransactionalProduce(context, request.acks, transactional_id)
    turns = context.services.produce_turns
    verdicts: Verdicts | Awaitable[Verdicts] | None = None
    if turns.is_free(transactional_id):
        verdicts = produce.verify(request)
        if isinstance(verdicts, dict):
            produce.append_verified(request, verdicts)
            return _answer(produce, request)
    kept = _copy(request)
    appended = turns.take(transactional_id, lambda: produce.append_later(kept, verdicts))
    return _answer_later(produce, kept, appended)


def _copy(request: ProduceRequest) -> ProduceRequest:
    """What can wait: the frame is reused when the handler returns."""
    topics: list[ProduceTopic] = [
        (
            name,
            topic_id,
            [(index, None if records is None else memoryview(bytearray(records))) for index, records in items],
        )
        for name, topic_id, items in request.topics
    ]
    return request._replace(topics=topics)


async def _answer_later(produce: "_Produce", request: ProduceRequest, appended: Awaitable[object]) -> Reply | None:
    await appended
    answer = _answer(produce, request)
    return await answer if isinstance(answer, Awaitable) else answer


class _Produce:
    """One request: its results, those of them that have to wait, and the leaders that they point to."""

    __slots__ = ("_acks", "_effort", "_errors_left", "_leaders", "context", "delayed", "topics", "waiting")

    def __init__(self, context: RequestContext, acks: int) -> None:
        self.context = context
        self._acks = acks
        self._leaders: list[NodeId] = []
        self.topics: list[ProduceTopicResult] = []
        self.waiting: list[_Waiting] = []
        # Appends that wait for an inspection.
        self.delayed: tuple[asyncio.Task[None], ...] = ()
        self._effort: Effort | None = None
        # Record errors that the answer may still name.
        self._errors_left = RECORD_ERRORS_MAX

    def append_all(self, request: ProduceRequest) -> None:
        services = self.context.services
        now_ms = services.clock.now_ms()
        for name, topic_id, partitions in request.topics:
            if topic_id is not None:
                name = services.replicas.topic_name(topic_id)
            refusal = self._refuse_topic(name)
            results: list[ProducePartitionResult] = []
            for index, records in partitions:
                if refusal is not None or name is None:
                    results.append(ProducePartitionResult(index, refusal or ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    results.append(self._append(TopicPartition(name, index), records, now_ms, results))
            self.topics.append((name, topic_id, results))

    def _refuse_topic(self, name: str | None) -> ErrorCode | None:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._acks not in _ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if name in INTERNAL_TOPICS and self.context.client_id != _ADMIN_CLIENT_ID:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return None

    def _append(
        self,
        partition: TopicPartition,
        records: memoryview | None,
        now_ms: TimestampMs,
        results: list[ProducePartitionResult],
        verification: Verification | None = None,
    ) -> ProducePartitionResult:
        """The result, which will be the next of `results`."""
        services = self.context.services
        replica = services.replicas.find(partition)
        if isinstance(replica, ErrorCode):
            return self._fail(partition, replica)
        if records is None:
            records = _NO_RECORDS
        inspections = services.inspections
        # Nothing may pass a batch that waits in the same line.
        if not inspections.is_idle and not inspections.is_free(self._line(partition)):
            return self._delay(partition, records, results, verification)
        appended = self._append_to(replica, records, now_ms, verification)
        if appended is NOT_INSPECTED:
            self._effort = self._effort or Effort()
            inspected = inspections.inspect_now(replica, records, self._effort, now_ms=now_ms)
            if inspected is None:
                return self._delay(partition, records, results, verification)
            appended = self._append_inspected(replica, inspected, now_ms, verification)
        return self._result(partition, replica, appended, results, len(results))

    def _append_to(
        self,
        replica: Replica,
        records: memoryview,
        now_ms: TimestampMs,
        verification: Verification | None,
        *,
        is_inspected: bool = False,
    ) -> Appended:
        return replica.append(
            records,
            acks=self._acks,
            now_ms=now_ms,
            zstd_allowed=self.context.api_version >= _ZSTD_SINCE,
            is_inspected=is_inspected,
            verification=verification,
        )

    def _append_inspected(
        self, replica: Replica, inspected: Buffer | Appended, now_ms: TimestampMs, verification: Verification | None
    ) -> Appended:
        if isinstance(inspected, Appended):
            return inspected
        return self._append_to(replica, memoryview(inspected), now_ms, verification, is_inspected=True)

    def _result(
        self,
        partition: TopicPartition,
        replica: Replica,
        appended: Appended,
        results: list[ProducePartitionResult],
        place: int,
    ) -> ProducePartitionResult:
        """What is told of an append; its place is among the `results`."""
        code, base_offset, end_offset, log_append_time_ms, log_start_offset, _, _ = appended
        if code is not _OK:
            return self._fail(partition, code, appended)
        acks = self._acks
        if acks != ACKS_NONE and not replica.is_acknowledged(end_offset, acks):
            self.waiting.append(_Waiting(partition, replica, replica.state.leader_epoch, end_offset, results, place))
        return ProducePartitionResult(partition[1], code, base_offset, log_append_time_ms, log_start_offset)

    def _line(self, partition: TopicPartition) -> str:
        return f"{partition.topic}-{partition.partition} {self.context.connection.peer}"

    def _delay(
        self,
        partition: TopicPartition,
        records: memoryview,
        results: list[ProducePartitionResult],
        verification: Verification | None,
    ) -> ProducePartitionResult:
        """A result to be replaced before the answer is made, when the batch has had its turn and its inspection."""
        services, place = self.context.services, len(results)
        # The frame is reused when the handler returns.
        kept = memoryview(bytearray(records))

        def act(appended: Appended) -> None:
            replica = services.replicas.find(partition)
            if isinstance(replica, ErrorCode):
                results[place] = self._fail(partition, replica)
            else:
                results[place] = self._result(partition, replica, appended, results, place)

        append = partial(self._append_later, partition, kept, verification)
        self.delayed = (*self.delayed, services.inspections.delay(self._line(partition), append, act))
        return ProducePartitionResult(partition.partition, ErrorCode.REQUEST_TIMED_OUT)

    async def _append_later(
        self, partition: TopicPartition, records: memoryview, verification: Verification | None
    ) -> Appended:
        """Inspect and append a batch whose turn has come. Its topic may be another one after each wait."""
        services = self.context.services
        replica = services.replicas.find(partition)
        if isinstance(replica, ErrorCode):
            return Appended(replica)
        appended = self._append_to(replica, records, services.clock.now_ms(), verification)
        if appended is not NOT_INSPECTED:
            return appended
        now_ms = services.clock.now_ms()
        inspected = await services.inspections.inspect(replica, records, services.slices, now_ms=now_ms)
        if services.replicas.find(partition) is not replica:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._append_inspected(replica, inspected, services.clock.now_ms(), verification)

    def _fail(
        self, partition: TopicPartition, code: ErrorCode, appended: Appended | None = None
    ) -> ProducePartitionResult:
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.context.api_version < _ABORTABLE_SINCE:
            code = ErrorCode.UNKNOWN_PRODUCER_ID
        result = ProducePartitionResult(partition.partition, code)
        if appended is not None:
            record_errors = appended.record_errors[: self._errors_left]
            self._errors_left -= len(record_errors)
            result = result._replace(
                log_start_offset=appended.log_start_offset,
                record_errors=record_errors,
                error_message=appended.message,
            )
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = self.context.services.current_leader(partition)
            self._leaders.append(leader[0])
            result = result._replace(current_leader=leader)
        return result

    def is_settled(self, changed: Set[TopicPartition]) -> bool:
        # Those that changed first: one of them that is not there yet settles the question.
        candidates = sorted(self.waiting, key=lambda each: each.partition not in changed)
        return all(self._settle(each) is not None for each in candidates)

    def _settle(self, waiting: _Waiting) -> ErrorCode | None:
        """What became of an append; None while it has to wait."""
        replica = self.context.services.replicas.find(waiting.partition)
        if isinstance(replica, ErrorCode):
            return replica
        # The epoch first: the offsets of a later epoch are those of other records (`Partition.still_leads`).
        if replica is not waiting.replica or not replica.state.still_leads(waiting.leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not replica.is_acknowledged(waiting.end_offset, self._acks):
            return None
        if self._acks == ACKS_ALL and not replica.has_enough_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _OK

    def finish(self) -> Reply:
        for each in self.waiting:
            outcome = self._settle(each)
            if outcome is None:
                outcome = ErrorCode.REQUEST_TIMED_OUT
            if outcome is not _OK:
                each.results[each.place] = self._fail(each.partition, outcome)
        return self.answer()

    def answer(self) -> Reply:
        leaders = dict.fromkeys(self._leaders)
        endpoints = self.context.services.endpoints(leaders, self.context.listener) if leaders else ()
        body = encode_produce_response(self.context.api_version, self.topics, node_endpoints=endpoints)
        return self.context.reply([body])


class _TransactionalProduce(_Produce):
    """A request with a transactional id. Its batches are verified first; those that may not be written are refused."""

    __slots__ = ("_transactional_id", "_verdicts")

    def __init__(self, context: RequestContext, acks: int, transactional_id: str) -> None:
        super().__init__(context, acks)
        self._transactional_id = transactional_id
        self._verdicts: Verdicts = {}

    def verify(self, request: ProduceRequest) -> Verdicts | Awaitable[Verdicts]:
        return verify(self.context, self._transactional_id, self._find_unverified(request))

    def append_verified(self, request: ProduceRequest, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self.append_all(request)

    async def append_later(self, request: ProduceRequest, verdicts: Verdicts | Awaitable[Verdicts] | None) -> None:
        """Without `verdicts`, what is verified is what there is now that the requests before have been appended."""
        if verdicts is None:
            verdicts = self.verify(request)
        self.append_verified(request, await verdicts if isinstance(verdicts, Awaitable) else verdicts)

    def _find_unverified(self, request: ProduceRequest) -> dict[TopicPartition, Verification]:
        replicas = self.context.services.replicas
        found: dict[TopicPartition, Verification] = {}
        for name, topic_id, partitions in request.topics:
            if topic_id is not None:
                name = replicas.topic_name(topic_id)
            if name is None or self._refuse_topic(name) is not None:
                continue
            for index, records in partitions:
                replica = replicas.find(TopicPartition(name, index))
                if isinstance(replica, ErrorCode) or not replica.state.is_leader or records is None:
                    continue
                verification = replica.verification_of(records)
                if verification is not None:
                    found[TopicPartition(name, index)] = verification
        return found

    def _append(
        self,
        partition: TopicPartition,
        records: memoryview | None,
        now_ms: TimestampMs,
        results: list[ProducePartitionResult],
        verification: Verification | None = None,
    ) -> ProducePartitionResult:
        verdict = self._verdicts.get(partition, verification)
        if isinstance(verdict, Appended):
            return self._fail(partition, verdict.error_code, verdict)
        return super()._append(partition, records, now_ms, results, verdict)


def _close_on_error(topics: list[ProduceTopicResult]) -> None:
    for name, topic_id, results in topics:
        for result in results:
            if result.error_code != ErrorCode.NONE:
                code = ErrorCode(result.error_code).name
                raise ProtocolError(f"produce with acks=0 to {name or topic_id}-{result.index} failed: {code}")


def refuse_old_version(version: int, frame: memoryview, position: int) -> list[bytes]:
    """The answer to v0 to v2: every partition UNSUPPORTED_VERSION."""
    try:
        return [_encode_refusal(version, frame, position)]
    except struct.error as error:
        raise ProtocolError(f"malformed Produce v{version}") from error


def _encode_refusal(version: int, frame: memoryview, position: int) -> bytes:
    """Copies the request's structure: acks, timeout, then arrays of topics and their partitions with records."""
    out = bytearray()
    acks, _, topic_count = struct.unpack_from(">hii", frame, position)
    if acks == ACKS_NONE:
        raise ProtocolError(f"Produce v{version} is not supported")
    position += 10
    out += struct.pack(">i", topic_count)
    for _ in range(topic_count):
        (name_size,) = struct.unpack_from(">h", frame, position)
        name, partition_count = struct.unpack_from(f">{max(name_size, 0)}si", frame, position + 2)
        position += 6 + len(name)
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", partition_count)
        for _ in range(partition_count):
            index, size = struct.unpack_from(">ii", frame, position)
            position += 8 + max(size, 0)
            out += struct.pack(">ihq", index, ErrorCode.UNSUPPORTED_VERSION, -1)
            out += struct.pack(">q", -1) if version >= 2 else b""
    return bytes(out + (struct.pack(">i", 0) if version >= 1 else b""))
