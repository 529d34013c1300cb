"""CreatePartitions (37): more partitions for topics that exist; `count` is the new total.

Existing partitions and their records stay where they are. With `validate_only` everything is checked and nothing
created.

Versions: v0 and v1 are the same, v2 flexible. v3 returns THROTTLING_QUOTA_EXCEEDED for topics beyond the
client's quota; before, the client is only throttled.
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.broker.mutation_quota import THROTTLED, TopicMutations
from rookery.metadata.requests import ChangedTopic, MorePartitions, Outcome
from rookery.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_QUOTA_SINCE = 3
_TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)


async def handle(context: ClusterContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    topics = [MorePartitions(topic.name, topic.count, _assignments(topic)) for topic in request.topics]
    mutations = TopicMutations(context, strict_since=_QUOTA_SINCE)
    admitted, refused = mutations.split(topics, lambda topic: (topic.name, _more_partitions(context, topic)))
    submitted = context.services.controller.create_partitions(admitted, validate_only=request.validate_only)
    changed = await within(request.timeout_ms, submitted)
    if changed is None:
        changed = [ChangedTopic(topic.name, _TIMED_OUT) for topic in admitted]
    mutations.settle((topic.name, topic.outcome) for topic in changed)
    changed = [*changed, *(ChangedTopic(topic.name, THROTTLED) for topic in refused)]
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=topic.outcome.code, error_message=topic.outcome.message
            )
            for topic in changed
        ],
    )


def _more_partitions(context: ClusterContext, topic: MorePartitions) -> int:
    """Return how many partitions the request creates; 0 if the topic does not exist."""
    known = context.services.image.topics.get(topic.name)
    return 0 if known is None else topic.count - len(known.partitions)


def _assignments(topic: CreatePartitionsTopic) -> tuple[tuple[int, ...], ...] | None:
    if topic.assignments is None:
        return None
    return tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)
