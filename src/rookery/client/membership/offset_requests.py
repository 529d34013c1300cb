"""Builds OffsetCommit and OffsetFetch requests and parses their responses. Pure; `committer` sends them."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition, indexes_by_topic
from rookery.client.membership.interfaces import NO_GENERATION, ConsumerGroupMetadata, OffsetAndMetadata
from rookery.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

# This client identifies topics by name; from version 10 on, these APIs use topic ids only.
OFFSETS_VERSION_MAX = 9

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class _Fetched(NamedTuple):
    """The part of an OffsetFetch response for one partition."""

    partition: TopicPartition
    error: ErrorCode
    offset: Offset
    metadata: str
    leader_epoch: LeaderEpoch


def commit_request(identity: ConsumerGroupMetadata, offsets: Offsets) -> OffsetCommitRequest:
    def row(tp: TopicPartition) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        )

    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        retention_time_ms=-1,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=[row(TopicPartition(name, index)) for index in indexes])
            for name, indexes in indexes_by_topic(offsets).items()
        ],
    )


def commit_results(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.get("name", ""), row.partition_index): ErrorCode(row.error_code)
        for topic in response.topics
        for row in topic.partitions
    }


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that were not committed, with their error codes."""
    return {tp: code for tp, code in commit_results(response).items() if code != ErrorCode.NONE}


def commit_codes(response: OffsetCommitResponse) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


def fetch_request(
    identity: ConsumerGroupMetadata,
    partitions: Collection[TopicPartition] | None,
    *,
    as_member: bool,
    require_stable: bool = True,
) -> OffsetFetchRequest:
    """Build an OffsetFetch for `partitions`; None: for all partitions with a committed offset.

    `as_member` sends the member id and epoch, as members of KIP-848 groups must; another epoch than theirs is an error.

    With `require_stable`, the broker does not return offsets that an open transaction is about to replace. Consumers
    need that whatever the isolation level: one that starts at the older offset would read again what the transaction
    has processed.
    """
    everything = partitions is None
    topics = indexes_by_topic(partitions or ()).items()
    group = OffsetFetchRequestGroup(
        group_id=identity.group_id,
        member_id=identity.member_id if as_member else None,
        member_epoch=identity.generation_id if as_member else NO_GENERATION,
        topics=None
        if everything
        else [OffsetFetchRequestTopics(name=t, partition_indexes=found) for t, found in topics],
    )
    return OffsetFetchRequest(
        group_id=identity.group_id,
        topics=None
        if everything
        else [OffsetFetchRequestTopic(name=t, partition_indexes=found) for t, found in topics],
        groups=[group],
        require_stable=require_stable,
    )


def fetch_codes(response: OffsetFetchResponse) -> list[int]:
    return [_group_code(response), *(row.error for row in _rows(response))]


def fetch_errors(response: OffsetFetchResponse) -> dict[TopicPartition | None, ErrorCode]:
    """Return the error codes by partition; the key None holds the error of the whole group."""
    found: dict[TopicPartition | None, ErrorCode] = {None: _group_code(response)}
    found |= {row.partition: row.error for row in _rows(response)}
    return {tp: code for tp, code in found.items() if code != ErrorCode.NONE}


def fetched_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets; partitions without one are left out."""
    return {
        row.partition: OffsetAndMetadata(row.offset, row.metadata, row.leader_epoch)
        for row in _rows(response)
        if row.error == ErrorCode.NONE and row.offset >= 0
    }


def _group_code(response: OffsetFetchResponse) -> ErrorCode:
    """Return the error code of the group. Since version 8, a response holds a list of groups."""
    groups = response.get("groups")
    if groups is None:
        return ErrorCode(response.get("error_code", ErrorCode.NONE))
    # If a response without the group counted as one without offsets, the consumer would reset its positions.
    return ErrorCode(groups[0].error_code if groups else ErrorCode.UNKNOWN_SERVER_ERROR)


def _rows(response: OffsetFetchResponse) -> Iterator[_Fetched]:
    groups = response.get("groups")
    for topic in groups[0].topics if groups else ():
        for row in topic.partitions:
            yield _Fetched(
                TopicPartition(topic.get("name", ""), row.partition_index),
                ErrorCode(row.error_code),
                row.committed_offset,
                row.metadata or "",
                row.committed_leader_epoch,
            )
    for older in response.get("topics", ()):
        for partition in older.partitions:
            yield _Fetched(
                TopicPartition(older.name, partition.partition_index),
                ErrorCode(partition.error_code),
                partition.committed_offset,
                partition.metadata or "",
                partition.get("committed_leader_epoch", NO_LEADER_EPOCH),
            )
