"""Creates, deletes and describes topics, and adds partitions."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from rookery.base.errors import ErrorCode
from rookery.base.types import (
    NO_TOPIC_ID,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
)
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list
from rookery.client.admin.outcomes import Outcome
from rookery.client.metadata import ClusterMetadata, Topic, read_metadata
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopicRequest,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
)

# Stands for the broker's default in CreateTopics (KIP-464).
BROKER_DEFAULT = -1

# The first versions that identify topics by id.
_DELETE_BY_ID_SINCE = 6
_METADATA_BY_ID_SINCE = 12
# The page size of Java's admin client.
PARTITIONS_PER_PAGE = 2000


@value_class
class NewTopic:
    """`assignments`, the replicas of each partition, replace `partitions` and `replication_factor`."""

    name: TopicName
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] | None = None
    assignments: Mapping[PartitionIndex, Sequence[NodeId]] | None = None


@value_class
class CreatedTopic(Outcome):
    """The properties of the created topic; None if it failed, or if the broker is too old to report them."""

    topic_id: TopicId | None = None
    partitions: int | None = None
    replication_factor: int | None = None


@value_class
class NewPartitions:
    """`total` is the new number of partitions; `assignments` are the replicas of each new one."""

    total: int
    assignments: Sequence[Sequence[NodeId]] | None = None


@value_class(kw_only=True)
class PartitionDetails:
    """`eligible_leaders` can be elected without data loss though not in sync; None if the cluster has none."""

    index: PartitionIndex
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    in_sync_replicas: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]
    eligible_leaders: tuple[NodeId, ...] | None
    last_known_eligible_leaders: tuple[NodeId, ...] | None
    error: ErrorCode


@value_class(kw_only=True)
class TopicDetails:
    name: TopicName
    topic_id: TopicId
    is_internal: bool
    error: ErrorCode
    partitions: tuple[PartitionDetails, ...]


class TopicAdmin(AdminPart):
    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics. If the first response is lost, the retry may report TOPIC_ALREADY_EXISTS."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in as_list(topics, "topics")],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        rows = await self._call_controller(ApiKey.CREATE_TOPICS, request, lambda response: response.topics)
        return [_created(row) for row in rows]

    async def delete_topics(self, topics: Iterable[TopicName | TopicId]) -> list[Outcome]:
        """Delete topics by name or by id; the outcome of an id that does not exist is named by the id."""
        wanted = as_list(topics, "topics")
        names = [topic for topic in wanted if isinstance(topic, str)]
        if len(names) < len(wanted):
            await self._require(ApiKey.DELETE_TOPICS, _DELETE_BY_ID_SINCE, "deletes topics by name only")
        request = DeleteTopicsRequest(
            topics=[_deletable(topic) for topic in wanted], topic_names=names, timeout_ms=self._timeout_ms
        )
        rows = await self._call_controller(ApiKey.DELETE_TOPICS, request, lambda response: response.responses)
        return [
            Outcome.of(row.name or str(row.get("topic_id")), row.error_code, row.get("error_message")) for row in rows
        ]

    async def create_partitions(
        self, totals: Mapping[TopicName, int | NewPartitions], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Increase the number of partitions of topics to these totals."""
        topics = [_enlarged(name, total) for name, total in totals.items()]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=self._timeout_ms, validate_only=validate_only)
        rows = await self._call_controller(ApiKey.CREATE_PARTITIONS, request, lambda response: response.results)
        return [Outcome.of(row.name, row.error_code, row.error_message) for row in rows]

    async def list_topics(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        metadata = await self._retry(self._cluster.refresh)
        return sorted(metadata.topics.values(), key=lambda topic: topic.name)

    async def describe_topics(self, topics: Iterable[TopicName | TopicId]) -> list[Topic]:
        """Describe topics in the given order, each once; a topic that does not exist has an error."""
        wanted = list(dict.fromkeys(as_list(topics, "topics")))
        names = [topic for topic in wanted if isinstance(topic, str)]
        ids = [topic for topic in wanted if not isinstance(topic, str)]
        by_name = (await self._retry(partial(self._cluster.refresh, names))).topics if names else {}
        by_id = {topic.topic_id: topic for topic in await self._describe_ids(ids)} if ids else {}
        return [by_name[topic] if isinstance(topic, str) else by_id[topic] for topic in wanted]

    async def _describe_ids(self, ids: Sequence[TopicId]) -> list[Topic]:
        await self._require(ApiKey.METADATA, _METADATA_BY_ID_SINCE, "describes topics by name only")
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

        async def attempt() -> ClusterMetadata:
            response = await self._cluster.call(ApiKey.METADATA, request)
            for row in response.topics:
                # `read_metadata` uses the name as the key, and a topic that does not exist has none.
                row.name = row.name or str(row.get("topic_id"))
            return read_metadata(response)

        return list((await self._retry(attempt)).topics.values())

    async def describe_topic_partitions(
        self, topics: Iterable[TopicName] = (), *, partitions_per_page: int = PARTITIONS_PER_PAGE
    ) -> list[TopicDetails]:
        """Return the details of topics (empty: all), sorted by name, requested page by page (KIP-966)."""
        wanted = [
            DescribeTopicPartitionsRequestTopicRequest(name=name) for name in sorted(set(as_list(topics, "topics")))
        ]
        found: dict[TopicName, TopicDetails] = {}
        cursor: DescribeTopicPartitionsRequestCursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=wanted, response_partition_limit=partitions_per_page, cursor=cursor
            )
            response = await self._retry(partial(self._cluster.call, ApiKey.DESCRIBE_TOPIC_PARTITIONS, request))
            for row in response.topics:
                details = _details(row)
                before = found[details.name].partitions if details.name in found else ()
                found[details.name] = _details(row, before)
            following = response.next_cursor
            if following is None:
                return list(found.values())
            cursor = DescribeTopicPartitionsRequestCursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
        for index, nodes in (topic.assignments or {}).items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if assignments else topic.partitions,
        replication_factor=BROKER_DEFAULT if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in (topic.configs or {}).items()],
    )


def _created(row: CreatableTopicResult) -> CreatedTopic:
    topic_id, partitions = row.get("topic_id", NO_TOPIC_ID), row.get("num_partitions", -1)
    return CreatedTopic(
        name=row.name,
        error=ErrorCode(row.error_code),
        message=row.error_message,
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        partitions=partitions if partitions >= 0 else None,
        replication_factor=row.get("replication_factor") if partitions >= 0 else None,
    )


def _deletable(topic: TopicName | TopicId) -> DeleteTopicState:
    if isinstance(topic, str):
        return DeleteTopicState(name=topic, topic_id=NO_TOPIC_ID)
    return DeleteTopicState(name=None, topic_id=topic)


def _enlarged(name: TopicName, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    new = NewPartitions(wanted) if isinstance(wanted, int) else wanted
    assignments = (
        None
        if new.assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in new.assignments]
    )
    return CreatePartitionsTopic(name=name, count=new.total, assignments=assignments)


def _details(row: DescribeTopicPartitionsResponseTopic, before: tuple[PartitionDetails, ...] = ()) -> TopicDetails:
    """`before` are the partitions from earlier pages."""
    return TopicDetails(
        name=row.name or "",
        topic_id=row.topic_id,
        is_internal=row.is_internal,
        error=ErrorCode(row.error_code),
        partitions=(*before, *map(_partition_details, row.partitions)),
    )


def _partition_details(row: DescribeTopicPartitionsResponsePartition) -> PartitionDetails:
    return PartitionDetails(
        index=row.partition_index,
        leader=row.leader_id,
        leader_epoch=row.leader_epoch,
        replicas=tuple(row.replica_nodes),
        in_sync_replicas=tuple(row.isr_nodes),
        offline_replicas=tuple(row.offline_replicas),
        eligible_leaders=_nodes(row.eligible_leader_replicas),
        last_known_eligible_leaders=_nodes(row.last_known_elr),
        error=ErrorCode(row.error_code),
    )


def _nodes(nodes: Sequence[NodeId] | None) -> tuple[NodeId, ...] | None:
    return None if nodes is None else tuple(nodes)
