"""OffsetCommit and OffsetFetch as a consumer writes and reads them. Pure; `committer` sends them."""

from collections.abc import Callable, Collection, Iterable, Mapping

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, TopicPartition, indexes_by_topic
from rookery.client.membership.interfaces import NO_GENERATION, ConsumerGroupMetadata, OffsetAndMetadata
from rookery.protocol.message import Message

# Offsets are kept by topic name here; from version 10 on these APIs speak of topic ids only.
OFFSETS_VERSION_MAX = 9

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_request(who: ConsumerGroupMetadata, offsets: Offsets) -> Message:
    def row(tp: TopicPartition) -> Message:
        return Message(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        )

    return Message(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        retention_time_ms=-1,
        topics=_by_topic(offsets, row),
    )


def _by_topic(partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Message]) -> list[Message]:
    topics = indexes_by_topic(partitions)
    return [
        Message(name=name, partitions=[row(TopicPartition(name, index)) for index in indexes])
        for name, indexes in topics.items()
    ]


def commit_errors(response: Message) -> dict[TopicPartition, ErrorCode]:
    """The partitions that were not committed."""
    return {
        TopicPartition(topic.name, row.partition_index): ErrorCode(row.error_code)
        for topic in response.topics
        for row in topic.partitions
        if row.error_code != ErrorCode.NONE
    }


def commit_codes(response: Message) -> list[int]:
    return [row.error_code for topic in response.topics for row in topic.partitions]


def fetch_request(who: ConsumerGroupMetadata, partitions: Collection[TopicPartition], *, as_member: bool) -> Message:
    """Members of groups of the new protocol say who they are, and are refused in another epoch than the group's.

    Offsets that a transaction has not committed yet are waited for (`require_stable`), whatever the isolation level:
    who starts before them would read again what the transaction has processed.
    """
    topics = [Message(name=name, partition_indexes=found) for name, found in indexes_by_topic(partitions).items()]
    asked = Message(
        group_id=who.group_id,
        member_id=who.member_id if as_member else None,
        member_epoch=who.generation_id if as_member else NO_GENERATION,
        topics=topics,
    )
    return Message(group_id=who.group_id, topics=topics, groups=[asked], require_stable=True)


def fetch_codes(response: Message) -> list[int]:
    group = _group(response)
    return [group.get("error_code", 0), *(row.error_code for topic in group.topics for row in topic.partitions)]


def fetch_errors(response: Message) -> dict[TopicPartition | None, ErrorCode]:
    """By partition; None is the group itself."""
    group = _group(response)
    found: dict[TopicPartition | None, ErrorCode] = {None: ErrorCode(group.get("error_code", 0))}
    for topic in group.topics:
        for row in topic.partitions:
            found[TopicPartition(topic.name, row.partition_index)] = ErrorCode(row.error_code)
    return {tp: code for tp, code in found.items() if code != ErrorCode.NONE}


def fetched_offsets(response: Message) -> dict[TopicPartition, OffsetAndMetadata]:
    """Without the partitions for which nothing is committed."""
    return {
        TopicPartition(topic.name, row.partition_index): OffsetAndMetadata(
            row.committed_offset, row.metadata or "", row.get("committed_leader_epoch", NO_LEADER_EPOCH)
        )
        for topic in _group(response).topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE and row.committed_offset >= 0
    }


def _group(response: Message) -> Message:
    """Several groups at once came with version 8; before, the response itself was the group's."""
    return response.groups[0] if response.get("groups") else response
