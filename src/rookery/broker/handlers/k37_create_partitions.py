"""CreatePartitions (37): more partitions for topics that exist; `count` is the new total.

Existing partitions and their records stay where they are. With `validate_only` everything is checked and nothing
created.

Versions: v0 and v1 are the same, v2 flexible, v3 quotas (none here).
"""

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.broker.deadlines import within
from rookery.metadata.requests import ChangedTopic, MorePartitions, Outcome
from rookery.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)


async def handle(context: ClusterContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    topics = [MorePartitions(topic.name, topic.count, _assignments(topic)) for topic in request.topics]
    submitted = context.services.controller.create_partitions(topics, validate_only=request.validate_only)
    changed = await within(request.timeout_ms, submitted)
    if changed is None:
        changed = [ChangedTopic(topic.name, _TIMED_OUT) for topic in topics]
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=topic.outcome.code, error_message=topic.outcome.message
            )
            for topic in changed
        ],
    )


def _assignments(topic: CreatePartitionsTopic) -> tuple[tuple[int, ...], ...] | None:
    if topic.assignments is None:
        return None
    return tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)
