"""The appends of one Produce request: each batch to its partition's log, in the request's order, and their results.

The frequent case takes `append_all`, `_append` and `result` only: this broker leads the partition, the batch needs no
inspection, and it is acknowledged as soon as it is written. Batches that have to wait are in `inspected` (before their
append) and `acknowledgements` (after it); both are None for a request that does not wait.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from rookery.base.bounds import RECORD_ERRORS_MAX
from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, TimestampMs, TopicPartition
from rookery.broker.context import RequestContext
from rookery.broker.produce.acknowledgement import Acknowledgements
from rookery.broker.produce.inspected import InspectedAppends
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.net.send import Reply
from rookery.protocol.dialect import NodeEndpoint
from rookery.protocol.produce import ProducePartitionResult, ProduceTopic, encode_produce_response
from rookery.replication.replica import ACKS_ALL, ACKS_NONE, NOT_INSPECTED, Appended, Replica
from rookery.storage.producers import Verification
from rookery.telemetry.traffic import TopicTraffic

_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
_ZSTD_SINCE = 7
_ABORTABLE_SINCE = 11
# Kafka's own admin tools may write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"
_NO_RECORDS: Final = memoryview(b"")
_OK: Final = ErrorCode.NONE


class Appends:
    """The appends of one request: their results, and those that have to wait.

    `_leaders` are the nodes that lead partitions which this broker does not; the response has their addresses
    (KIP-951).
    """

    __slots__ = ("_errors_left", "_leaders", "acknowledgements", "acks", "context", "inspected", "topics")

    def __init__(self, context: RequestContext, acks: int) -> None:
        self.context = context
        self.acks = acks
        self.topics: list[tuple[str | None, UUID | None, list[ProducePartitionResult]]] = []
        self.inspected: InspectedAppends | None = None
        self.acknowledgements: Acknowledgements | None = None
        self._leaders: list[NodeId] = []
        # Record errors that the response may still list.
        self._errors_left = RECORD_ERRORS_MAX

    def append_all(
        self,
        topics: Sequence[ProduceTopic],
        verifications: Mapping[TopicPartition, Verification | Appended] | None = None,
    ) -> None:
        """Append all batches.

        `verifications` has an entry for each batch that begins a transaction: the verification to append it with, or
        the outcome of a batch whose verification failed.
        """
        services = self.context.services
        now_ms = services.clock.now_ms()
        for name, topic_id, partitions in topics:
            if topic_id is not None:
                name = services.replicas.topic_name(topic_id)
            error = self.check_topic(name)
            results: list[ProducePartitionResult] = []
            for slot, (index, records) in enumerate(partitions):
                if error is not None or name is None:
                    code = error or ErrorCode.UNKNOWN_TOPIC_ID
                    self._count_failure(services.replicas.traffic.others, code)
                    results.append(ProducePartitionResult(index, code))
                    continue
                partition = TopicPartition(name, index)
                verification = None if verifications is None else verifications.get(partition)
                if isinstance(verification, Appended):
                    results.append(self.fail(partition, verification.error_code, verification))
                    continue
                result = self._append(partition, records, now_ms, verification, results, slot)
                if result is not None:
                    results.append(result)
            self.topics.append((name, topic_id, results))

    def refuse_all(self, topics: Sequence[ProduceTopic], code: ErrorCode) -> None:
        """Give an error to all batches."""
        for name, topic_id, partitions in topics:
            results = [ProducePartitionResult(index, code) for index, _ in partitions]
            self.topics.append((name, topic_id, results))

    def check_topic(self, name: str | None) -> ErrorCode | None:
        """Return the error that all partitions of a topic get, or None."""
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.acks not in _ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if name in INTERNAL_TOPICS and self.context.client_id != _ADMIN_CLIENT_ID:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return None

    def _append(
        self,
        partition: TopicPartition,
        records: memoryview | None,
        now_ms: TimestampMs,
        verification: Verification | None,
        results: list[ProducePartitionResult],
        slot: int,
    ) -> ProducePartitionResult | None:
        """Append one batch and return its result; None if it is inspected first, and `results[slot]` is set later."""
        services = self.context.services
        replica = services.replicas.find(partition)
        if isinstance(replica, ErrorCode):
            return self.fail(partition, replica)
        if records is None:
            records = _NO_RECORDS
        appended: Appended | None = None
        # A batch must not overtake an earlier one of its connection that is still being inspected: its sequence number
        # would be out of order.
        if services.inspections.is_idle or self._get_inspected().may_append(partition):
            appended = replica.append(
                records,
                acks=self.acks,
                now_ms=now_ms,
                zstd_allowed=self.context.api_version >= _ZSTD_SINCE,
                verification=verification,
            )
            if appended is NOT_INSPECTED:
                appended = self._get_inspected().append_now(self, replica, records, now_ms, verification)
        if appended is None:
            self._get_inspected().delay(self, partition, records, verification, results, slot)
            return None
        return self.result(partition, replica, appended, len(records), results, slot)

    def _get_inspected(self) -> InspectedAppends:
        if self.inspected is None:
            self.inspected = InspectedAppends(self.context)
        return self.inspected

    def append(
        self,
        replica: Replica,
        records: memoryview,
        now_ms: TimestampMs,
        verification: Verification | None,
        *,
        is_inspected: bool = False,
    ) -> Appended:
        """Append a batch that had to wait, or the batch that its inspection returned (`is_inspected`)."""
        return replica.append(
            records,
            acks=self.acks,
            now_ms=now_ms,
            zstd_allowed=self.context.api_version >= _ZSTD_SINCE,
            is_inspected=is_inspected,
            verification=verification,
        )

    def result(
        self,
        partition: TopicPartition,
        replica: Replica,
        appended: Appended,
        size: int,
        results: list[ProducePartitionResult],
        slot: int,
    ) -> ProducePartitionResult:
        """Return the result of an append of `size` bytes, made in this turn; the caller puts it into `results[slot]`.

        If the append is not acknowledged yet, the response will wait for it.
        """
        code, base_offset, end_offset, log_append_time_ms, log_start_offset, _, _ = appended
        if code is not _OK:
            return self.fail(partition, code, appended)
        traffic = replica.traffic
        traffic.produces += 1
        traffic.bytes_in += size
        traffic.messages_in += end_offset - base_offset
        acks = self.acks
        if acks != ACKS_NONE and not replica.is_acknowledged(end_offset, acks):
            if self.acknowledgements is None:
                self.acknowledgements = Acknowledgements(self.context.services.replicas, acks)
            self.acknowledgements.expect(partition, replica, end_offset, results, slot)
        return ProducePartitionResult(partition[1], code, base_offset, log_append_time_ms, log_start_offset)

    def fail(
        self, partition: TopicPartition, code: ErrorCode, appended: Appended | None = None
    ) -> ProducePartitionResult:
        """Return the result of a batch that was rejected or not acknowledged; `appended` has a rejection's details."""
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.context.api_version < _ABORTABLE_SINCE:
            code = ErrorCode.UNKNOWN_PRODUCER_ID
        self._count_failure(self.context.services.replicas.traffic_of(partition), code)
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

    def _count_failure(self, traffic: TopicTraffic, code: ErrorCode) -> None:
        traffic.produces += 1
        traffic.failed_produces += 1
        self.context.services.requests.add_error(self.context.api_key, code)

    def reply(self) -> Reply:
        """Return the response. Appends that are not acknowledged by now get an error."""
        if self.acknowledgements is not None:
            for each, code in self.acknowledgements.failures():
                each.results[each.slot] = self.fail(each.partition, code)
        endpoints: Sequence[NodeEndpoint] = ()
        if self._leaders:
            endpoints = self.context.services.endpoints(dict.fromkeys(self._leaders), self.context.listener)
        usage = self.context.usage
        throttle_ms = 0 if usage is None else usage.charge_produce()
        body = encode_produce_response(
            self.context.api_version, self.topics, throttle_time_ms=throttle_ms, node_endpoints=endpoints
        )
        return self.context.reply([body])
