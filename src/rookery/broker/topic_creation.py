"""Creates topics because a client requested their metadata (`auto.create.topics.enable`)."""

from collections.abc import Sequence

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicName
from rookery.broker.context import Services
from rookery.metadata.requests import NewTopic


async def create_missing_topics(services: Services, names: Sequence[TopicName]) -> dict[TopicName, ErrorCode]:
    """Create topics with the broker's defaults. Returns the error code of each topic that could not be created.

    Two clients may request one topic at the same time: TOPIC_ALREADY_EXISTS is success here.
    """
    created = await services.controller.create_topics([NewTopic(name=name) for name in names])
    return {
        topic.name: topic.outcome.code
        for topic in created
        if topic.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
