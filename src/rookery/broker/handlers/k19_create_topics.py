"""CreateTopics (19): new topics with partitions, replicas and configs; the response is sent when they are served.

The controller makes the checks (`controller.topics`). With `validate_only` everything is checked and nothing created.
After the request's time-out the response is REQUEST_TIMED_OUT; the topics are created nevertheless.

Versions: v2 is the oldest that Kafka 4 has. v4 lets the counts be -1 for the broker's defaults. v5 flexible, and the
response has counts and configs. v6 returns THROTTLING_QUOTA_EXCEEDED for topics beyond the
client's quota; before, the client is only throttled. v7 the topic's id.
"""

from rookery.base.config import ConfigEntry
from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.broker.mutation_quota import THROTTLED, TopicMutations
from rookery.metadata.requests import CreatedTopic, NewTopic, Outcome
from rookery.protocol.message import freeze
from rookery.protocol.messages import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_QUOTA_SINCE = 6
_TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)


async def handle(context: ClusterContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    topics = [_new_topic(topic) for topic in request.topics]
    mutations = TopicMutations(context, strict_since=_QUOTA_SINCE)
    admitted, refused = mutations.split(topics, lambda topic: (topic.name, _new_partitions(context, topic)))
    submitted = context.services.controller.create_topics(admitted, validate_only=request.validate_only)
    created = await within(request.timeout_ms, submitted)
    if created is None:
        created = [CreatedTopic(topic.name, _TIMED_OUT) for topic in admitted]
    mutations.settle((topic.name, topic.outcome) for topic in created)
    created = [*created, *(CreatedTopic(topic.name, THROTTLED) for topic in refused)]
    # Topics with the same configs share one list of described configs, which is converted and encoded once.
    configs = {id(topic.configs): topic.configs for topic in created}
    described = {key: [_config(entry) for entry in entries] for key, entries in configs.items()}
    return CreateTopicsResponse(topics=[_answer(topic, described[id(topic.configs)]) for topic in created])


def _new_partitions(context: ClusterContext, topic: NewTopic) -> int:
    """Return how many partitions the request creates; 0 if the topic exists."""
    if topic.name in context.services.image.topics:
        return 0
    if topic.assignments:
        return len(topic.assignments)
    return topic.partition_count if topic.partition_count >= 0 else context.services.config().integer("num.partitions")


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _answer(topic: CreatedTopic, configs: list[CreatableTopicConfigs]) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=topic.outcome.code,
        error_message=topic.outcome.message,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=configs,
    )


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return freeze(
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.is_sensitive,
        )
    )
