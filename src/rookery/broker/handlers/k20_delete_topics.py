"""DeleteTopics (20): delete topics by name or by id; the response is sent when they are removed from the metadata.

Their directories are renamed immediately and removed later (`file.delete.delay.ms`). With `delete.topic.enable=false`
nothing is deleted. An internal topic can be deleted, as in Kafka.

Versions: v1 is the oldest that Kafka 4 has; up to v5 names only. v3 returns TOPIC_DELETION_DISABLED, before it is
INVALID_REQUEST. v4 flexible. v5 error messages, and THROTTLING_QUOTA_EXCEEDED for
topics beyond the client's quota; before, the client is only throttled. v6 names or ids (UNKNOWN_TOPIC_ID).
"""

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID, TopicId, TopicName
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.broker.mutation_quota import THROTTLED, TopicMutations
from rookery.metadata.requests import DeletedTopic, Outcome
from rookery.protocol.messages import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

_DELETION_DISABLED_SINCE = 3
_QUOTA_SINCE = 5
_TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)


async def handle(context: ClusterContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    topics = _topics(request)
    mutations = TopicMutations(context, strict_since=_QUOTA_SINCE)
    admitted, refused = mutations.split(topics, lambda topic: (topic[0] or topic[1], _partitions(context, *topic)))
    deleted = await within(request.timeout_ms, context.services.controller.delete_topics(admitted))
    if deleted is None:
        deleted = [DeletedTopic(name, topic_id, _TIMED_OUT) for name, topic_id in admitted]
    mutations.settle((key, topic.outcome) for topic in deleted for key in (topic.name, topic.topic_id))
    deleted = [*deleted, *(DeletedTopic(name, topic_id, THROTTLED) for name, topic_id in refused)]
    return DeleteTopicsResponse(responses=[_answer(topic, context.api_version) for topic in deleted])


def _partitions(context: ClusterContext, name: TopicName | None, topic_id: TopicId) -> int:
    """Return how many partitions a topic has; 0 if it does not exist."""
    image = context.services.image
    topic = image.topic_by_id(topic_id) if name is None else image.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def _topics(request: DeleteTopicsRequest) -> list[tuple[TopicName | None, TopicId]]:
    by_name = [(name, NO_TOPIC_ID) for name in request.get("topic_names", ())]
    return by_name + [(topic.name, topic.topic_id) for topic in request.get("topics", ())]


def _answer(topic: DeletedTopic, version: int) -> DeletableTopicResult:
    code = topic.outcome.code
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < _DELETION_DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=topic.outcome.message
    )
