"""The requests that a broker makes itself, sent to the active controller on whichever node it is.

A topic that was created is served by its leader as soon as that has the metadata. `create_topics` returns when this
node has them, so that the response to a client that caused the creation describes the topic.
"""

from collections.abc import Sequence
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, NodeId, TopicName
from rookery.broker.image_waiters import ImageWaiters
from rookery.metadata.controller_link import ControllerLink
from rookery.metadata.requests import CreatedTopic, NewTopic, Outcome, ProducerIdBlock
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AllocateProducerIdsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)

# The client whose request needs the topic or the id waits meanwhile. It retries after an error.
_TIMEOUT_S: Final = 5.0
_EXISTS: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class RemoteController:
    """Implements `metadata.controller_link.BrokerRequests`."""

    def __init__(self, link: ControllerLink, images: ImageWaiters) -> None:
        self._link = link
        self._images = images

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=int(_TIMEOUT_S * 1000), validate_only=False
        )
        try:
            response = await self._link.send(ApiKey.CREATE_TOPICS, request, timeout_s=_TIMEOUT_S)
        except ApiError as error:
            return [CreatedTopic(topic.name, Outcome(error.code, error.message)) for topic in topics]
        created = [_created(topic) for topic in response.topics]
        await self._await_topics([topic.name for topic in created if topic.outcome.code in _EXISTS])
        return created

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=broker_epoch)
        try:
            response = await self._link.send(ApiKey.ALLOCATE_PRODUCER_IDS, request, timeout_s=_TIMEOUT_S)
        except ApiError as error:
            return ProducerIdBlock(Outcome(error.code, error.message))
        outcome = Outcome(ErrorCode(response.error_code))
        return ProducerIdBlock(outcome, response.producer_id_start, response.producer_id_len)

    async def _await_topics(self, names: Sequence[TopicName]) -> None:
        # If the metadata does not arrive in time, the client gets an error that makes it retry.
        await self._images.wait(lambda image: all(name in image.topics for name in names), timeout_s=_TIMEOUT_S)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in topic.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )


def _created(topic: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        topic.name,
        Outcome(ErrorCode(topic.error_code), topic.error_message),
        topic.get("topic_id", NO_TOPIC_ID),
        topic.get("num_partitions", -1),
        topic.get("replication_factor", -1),
    )
