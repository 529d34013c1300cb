"""DescribeProducers (61): the producers that a partition's leader has a state of, with their epochs and sequences.

Versions: v0.
"""

from rookery.base.errors import CorruptionError, ErrorCode, StorageError
from rookery.base.topic_names import name_problem
from rookery.base.types import TopicPartition
from rookery.broker.context import RequestContext
from rookery.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from rookery.protocol.messages import ProducerState as DescribedProducer
from rookery.storage.producers import ProducerState


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def _describe(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    if name_problem(topic) is not None:
        return _answer(index, ErrorCode.INVALID_TOPIC_EXCEPTION, [])
    replica = context.services.replicas.find(TopicPartition(topic, index))
    if isinstance(replica, ErrorCode):
        return _answer(index, replica, [])
    if not replica.state.is_leader:
        return _answer(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    try:
        return _answer(index, ErrorCode.NONE, [_producer(state) for state in replica.log.producers])
    except (StorageError, CorruptionError):
        return _answer(index, ErrorCode.KAFKA_STORAGE_ERROR, [])


def _answer(index: int, code: ErrorCode, producers: list[DescribedProducer]) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, active_producers=producers)


def _producer(state: ProducerState) -> DescribedProducer:
    return DescribedProducer(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp_ms,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.current_transaction_offset,
    )
