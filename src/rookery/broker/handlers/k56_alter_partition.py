"""AlterPartition (56): a partition's leader proposes a new ISR to the controller (KIP-497).

Versions: v2 is the oldest that Kafka 4 has; it names the members of the ISR. v3 also their broker epochs, so that a
broker that has restarted meanwhile does not enter the ISR (KIP-903).
"""

from collections.abc import Sequence
from itertools import groupby

from rookery.base.types import NO_BROKER_EPOCH, NodeId
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import AlteredPartition, PartitionAlteration
from rookery.protocol.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)


async def handle(context: ClusterContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    alterations = [
        PartitionAlteration(
            topic_id=topic.topic_id,
            index=each.partition_index,
            leader_epoch=each.leader_epoch,
            partition_epoch=each.partition_epoch,
            isr=_isr(each),
            recovery_state=each.leader_recovery_state,
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    altered = await context.services.controller.alter_partitions(request.broker_id, request.broker_epoch, alterations)
    return AlterPartitionResponse(error_code=altered.outcome.code, topics=_topics(altered.partitions))


def _isr(partition: AlterPartitionRequestPartitionData) -> tuple[tuple[NodeId, int], ...]:
    with_epochs = partition.get("new_isr_with_epochs")
    if with_epochs is not None:
        return tuple((member.broker_id, member.broker_epoch) for member in with_epochs)
    return tuple((node_id, NO_BROKER_EPOCH) for node_id in partition.get("new_isr", ()))


def _topics(partitions: Sequence[AlteredPartition]) -> list[AlterPartitionResponseTopicData]:
    return [
        AlterPartitionResponseTopicData(topic_id=topic_id, partitions=[_partition(each) for each in group])
        for topic_id, group in groupby(partitions, key=lambda each: each.topic_id)
    ]


def _partition(partition: AlteredPartition) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=partition.index,
        error_code=partition.code,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.recovery_state,
        partition_epoch=partition.partition_epoch,
    )
