"""DescribeLogDirs (35): the log directories of this broker, their sizes, and the partitions in them.

Null requests all partitions; an empty list none, but still the directories. A partition that is not on this broker is
left out. A directory that failed is listed with KAFKA_STORAGE_ERROR and nothing else.

Versions: v1 is the oldest that Kafka 4 has. v2 flexible. v3 an error for the whole response. v4 total and usable bytes
of the volume. v5 whether a directory takes no new partitions (never here).
"""

from collections.abc import Iterable

from rookery.base.errors import ErrorCode, StorageError
from rookery.base.types import TopicName, TopicPartition
from rookery.broker.context import RequestContext
from rookery.protocol.messages import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from rookery.replication.replica import Replica
from rookery.storage.directory import LogDirectory


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = _wanted(request)
    return DescribeLogDirsResponse(
        error_code=ErrorCode.NONE,
        results=[_describe(context, directory, wanted) for directory in context.services.replicas.directories],
    )


def _wanted(request: DescribeLogDirsRequest) -> set[TopicPartition] | None:
    if request.topics is None:
        return None
    return {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}


def _describe(
    context: RequestContext, directory: LogDirectory, wanted: set[TopicPartition] | None
) -> DescribeLogDirsResult:
    if not directory.is_online:
        return _failed(directory)
    replicas = context.services.replicas
    here = [
        replica
        for replica in replicas
        if replica.log.log_directory is directory and (wanted is None or replica.state.topic_partition in wanted)
    ]
    try:
        total_bytes, usable_bytes = replicas.volume_bytes(directory)
        topics = _topics(here)
    except (OSError, StorageError):
        return _failed(directory)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(directory.path),
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=directory.is_cordoned,
    )


def _failed(directory: LogDirectory) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory.path), topics=[])


def _topics(replicas: Iterable[Replica]) -> list[DescribeLogDirsTopic]:
    by_topic: dict[TopicName, list[DescribeLogDirsPartition]] = {}
    for replica in replicas:
        topic, index = replica.state.topic_partition
        by_topic.setdefault(topic, []).append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=replica.log.size_bytes,
                # How far the end of this replica is below the high watermark.
                offset_lag=max(replica.state.high_watermark - replica.log.end_offset, 0),
                is_future_key=False,
            )
        )
    return [DescribeLogDirsTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
