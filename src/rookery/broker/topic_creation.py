"""Creates topics because a client requested their metadata (`auto.create.topics.enable`)."""

from collections.abc import Sequence
from typing import Final

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicName
from rookery.broker.context import RequestContext
from rookery.broker.mutation_quota import TopicMutations
from rookery.metadata.requests import NewTopic

_NO_CONTROLLER: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


async def create_missing_topics(context: RequestContext, names: Sequence[TopicName]) -> dict[TopicName, ErrorCode]:
    """Create topics with the broker's defaults. Returns the error code of each topic that could not be created.

    Topics beyond the client's quota for new partitions are UNKNOWN_TOPIC_OR_PARTITION, after which clients retry.

    Two clients may request one topic at the same time: TOPIC_ALREADY_EXISTS is success here. If the controller does not
    respond in time, the topic may still be created: the code is LEADER_NOT_AVAILABLE, and clients retry.
    """
    services = context.services
    mutations = TopicMutations(context, strict_since=0)
    partition_count = services.config().integer("num.partitions")
    admitted = [name for name in names if mutations.admit(name, partition_count)]
    created = await services.broker_requests.create_topics([NewTopic(name=name) for name in admitted])
    codes = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    codes.update({topic.name: topic.outcome.code for topic in created})
    return {
        name: ErrorCode.LEADER_NOT_AVAILABLE if code in _NO_CONTROLLER else code
        for name, code in codes.items()
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
