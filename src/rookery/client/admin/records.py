"""Looks up offsets (by timestamp, by leader epoch), and deletes the oldest records."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from rookery.base.errors import ErrorCode
from rookery.base.types import (
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicPartition,
    indexes_by_topic,
)
from rookery.base.values import value_class
from rookery.client.admin.base import as_list, partition_rows
from rookery.client.admin.topics import TopicAdmin
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

# Special timestamps of ListOffsets.
LATEST: TimestampMs = -1
EARLIEST: TimestampMs = -2
MAX_TIMESTAMP: TimestampMs = -3

_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_CONSUMER_REPLICA = -1
_ANY_EPOCH: LeaderEpoch = -1


@value_class
class OffsetResult:
    """The first offset at or after a timestamp; -1 if there is none."""

    offset: Offset
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch
    error: ErrorCode


@value_class
class DeletedRecords:
    """`low_watermark` is the first offset that remains."""

    low_watermark: Offset
    error: ErrorCode


@value_class
class EpochEnd:
    """The end offset of the newest epoch that is not newer than the requested one; both are -1 if there is none."""

    leader_epoch: LeaderEpoch
    end_offset: Offset
    error: ErrorCode


class RecordAdmin(TopicAdmin):
    async def list_offsets(
        self, wanted: Mapping[TopicPartition, TimestampMs], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetResult]:
        """Look up offsets by timestamp, or by LATEST, EARLIEST or MAX_TIMESTAMP, at the partitions' leaders."""
        isolation = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED

        def request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=wanted[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in indexes_by_topic(partitions).items()
            ]
            return ListOffsetsRequest(
                replica_id=_CONSUMER_REPLICA, isolation_level=isolation, topics=topics, timeout_ms=self._timeout_ms
            )

        rows = await self._call_leaders(
            ApiKey.LIST_OFFSETS,
            wanted,
            request,
            rows=lambda response: partition_rows(response.topics),
            failed=lambda tp, error: ListOffsetsPartitionResponse(
                partition_index=tp.partition, error_code=error.code, offset=-1, timestamp=-1
            ),
        )
        return {
            tp: OffsetResult(row.offset, row.timestamp, row.get("leader_epoch", -1), ErrorCode(row.error_code))
            for tp, row in rows.items()
        }

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the end offsets; partitions that do not exist or have no leader are left out."""
        wanted = as_list(partitions, "partitions")
        topics = await self.describe_topics({tp.topic for tp in wanted}) if wanted else []
        led = {TopicPartition(t.name, p.index) for t in topics for p in t.partitions if p.leader >= 0}
        found = await self.list_offsets({tp: LATEST for tp in wanted if tp in led})
        return {tp: result.offset for tp, result in found.items() if result.error == ErrorCode.NONE}

    async def delete_records(self, before: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records below these offsets; -1 means all records up to the high watermark."""

        def request(partitions: Sequence[TopicPartition]) -> DeleteRecordsRequest:
            topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in indexes_by_topic(partitions).items()
            ]
            return DeleteRecordsRequest(topics=topics, timeout_ms=self._timeout_ms)

        rows = await self._call_leaders(
            ApiKey.DELETE_RECORDS,
            before,
            request,
            rows=lambda response: partition_rows(response.topics),
            failed=lambda tp, error: DeleteRecordsPartitionResult(
                partition_index=tp.partition, error_code=error.code, low_watermark=-1
            ),
        )
        return {tp: DeletedRecords(row.low_watermark, ErrorCode(row.error_code)) for tp, row in rows.items()}

    async def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, EpochEnd]:
        """Return the end offsets of leader epochs, which show whether a log was truncated."""

        rows = await self._call_leaders(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            epochs,
            lambda partitions: _epochs_request({tp: epochs[tp] for tp in partitions}),
            rows=_epoch_rows,
            failed=lambda tp, error: OffsetForLeaderEpochResponseEpochEndOffset(
                partition=tp.partition, error_code=error.code, leader_epoch=-1, end_offset=-1
            ),
        )
        return {tp: EpochEnd(row.leader_epoch, row.end_offset, ErrorCode(row.error_code)) for tp, row in rows.items()}


def _epoch_rows(
    response: OffsetForLeaderEpochResponse,
) -> Iterable[tuple[TopicPartition, OffsetForLeaderEpochResponseEpochEndOffset]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.topic, row.partition), row


def _epochs_request(epochs: Mapping[TopicPartition, LeaderEpoch]) -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(
            topic=topic,
            partitions=[
                OffsetForLeaderPartition(
                    partition=index,
                    current_leader_epoch=_ANY_EPOCH,
                    leader_epoch=epochs[TopicPartition(topic, index)],
                )
                for index in indexes
            ],
        )
        for topic, indexes in indexes_by_topic(epochs).items()
    ]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER_REPLICA, topics=topics)
