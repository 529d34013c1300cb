"""Administration: topics, partitions, records, configs, offsets, log directories, with typed results.

Operations on several things answer with one `Outcome` (or richer) per thing, because some may fail and others not;
`Outcome.check` turns a failed one into an `ApiError`. Failures of the network or the controller's absence are retried
inside, up to the cluster's time-out. `cli` calls this, and so do the other parts that need topics of their own.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from rookery.base.config_codes import ConfigOperation, ConfigSource, ResourceType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import (
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicName,
    TopicPartition,
)
from rookery.base.values import value_class
from rookery.client.cluster import Cluster
from rookery.client.metadata import Broker, ClusterMetadata, Topic
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

Result = TypeVar("Result")

# Timestamps with a meaning of their own in ListOffsets.
LATEST: TimestampMs = -1
EARLIEST: TimestampMs = -2
MAX_TIMESTAMP: TimestampMs = -3

# The broker's own defaults, in CreateTopics (KIP-464).
BROKER_DEFAULT = -1

_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
# Retriable for a producer that waits for its topic; a plain answer for an administrator who mistyped it.
_FINAL_FOR_ADMIN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@value_class
class Outcome:
    """How one of several things went."""

    name: str
    error: ErrorCode
    message: str | None

    def check(self) -> None:
        if self.error != ErrorCode.NONE:
            raise ApiError(self.error, self.message or self.name)


@value_class(kw_only=True)
class NewTopic:
    name: TopicName
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] | None = None
    assignments: Mapping[PartitionIndex, Sequence[NodeId]] | None = None


@value_class
class ConfigResource:
    """A topic, or a broker by its id; the empty broker name means all brokers of the cluster."""

    kind: ResourceType
    name: str


@value_class
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@value_class(kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@value_class
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None = None


@value_class
class OffsetResult:
    """The first offset at or after a timestamp; offset -1 where there is none."""

    offset: Offset
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch
    error: ErrorCode


@value_class
class DeletedRecords:
    low_watermark: Offset
    error: ErrorCode


@value_class(kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: NodeId
    brokers: tuple[Broker, ...]


@value_class(kw_only=True)
class LogDirectory:
    """One directory of one broker; sizes are -1 where the broker does not tell."""

    node_id: NodeId
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    partition_sizes: Mapping[TopicPartition, int]


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[Outcome]:
        request = Message(
            topics=[_creatable(topic) for topic in topics], timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        return await self._change(ApiKey.CREATE_TOPICS, request, lambda response: response.topics)

    async def delete_topics(self, names: Iterable[TopicName]) -> list[Outcome]:
        wanted = list(names)
        request = Message(
            topics=[Message(name=name, topic_id=None) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._timeout_ms,
        )
        return await self._change(ApiKey.DELETE_TOPICS, request, lambda response: response.responses)

    async def create_partitions(self, counts: Mapping[TopicName, int], *, validate_only: bool = False) -> list[Outcome]:
        """Raise topics to these total numbers of partitions."""
        topics = [Message(name=name, count=count, assignments=None) for name, count in counts.items()]
        request = Message(topics=topics, timeout_ms=self._timeout_ms, validate_only=validate_only)
        return await self._change(ApiKey.CREATE_PARTITIONS, request, lambda response: response.results)

    async def list_topics(self) -> list[Topic]:
        metadata = await self.retry(self._cluster.refresh)
        return sorted(metadata.topics.values(), key=lambda topic: topic.name)

    async def describe_topics(self, names: Iterable[TopicName]) -> list[Topic]:
        """In the order asked; a topic that does not exist carries its error."""
        wanted = list(dict.fromkeys(names))

        async def ask() -> ClusterMetadata:
            return await self._cluster.refresh(wanted)

        metadata = await self.retry(ask)
        return [metadata.topics[name] for name in wanted]

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, TimestampMs], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetResult]:
        """Offsets by timestamp, or by LATEST, EARLIEST, MAX_TIMESTAMP; asked of each partition's leader."""
        isolation = _READ_COMMITTED if read_committed else _READ_UNCOMMITTED

        def request(partitions: Sequence[TopicPartition]) -> Message:
            topics = by_topic(partitions, lambda tp: Message(partition_index=tp.partition, timestamp=wanted[tp]))
            return Message(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=self._timeout_ms)

        rows = await self.ask_leaders(ApiKey.LIST_OFFSETS, wanted, request)
        return {
            tp: OffsetResult(row.offset, row.timestamp, row.get("leader_epoch", -1), ErrorCode(row.error_code))
            for tp, row in rows.items()
        }

    async def delete_records(self, before: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, DeletedRecords]:
        """Delete what lies below these offsets; -1 means everything up to the high watermark."""

        def request(partitions: Sequence[TopicPartition]) -> Message:
            topics = by_topic(partitions, lambda tp: Message(partition_index=tp.partition, offset=before[tp]))
            return Message(topics=topics, timeout_ms=self._timeout_ms)

        rows = await self.ask_leaders(ApiKey.DELETE_RECORDS, before, request)
        return {tp: DeletedRecords(row.low_watermark, ErrorCode(row.error_code)) for tp, row in rows.items()}

    async def describe_configs(
        self, resource: ConfigResource, *, names: Sequence[str] | None = None, documentation: bool = False
    ) -> list[ConfigEntry]:
        """All configs of a resource, or those named, by name. Raises ApiError if the resource does not exist."""
        described = Message(
            resource_type=resource.kind,
            resource_name=resource.name,
            configuration_keys=None if names is None else list(names),
        )
        request = Message(resources=[described], include_synonyms=True, include_documentation=documentation)

        async def ask() -> list[ConfigEntry]:
            response = await self._cluster.call(ApiKey.DESCRIBE_CONFIGS, request, node=await self._node_of(resource))
            result = response.results[0]
            Outcome(resource.name, ErrorCode(result.error_code), result.error_message).check()
            return sorted((_config_entry(row) for row in result.configs), key=lambda entry: entry.name)

        return await self.retry(ask)

    async def alter_configs(
        self, resource: ConfigResource, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some configs and leave the others (IncrementalAlterConfigs). Raises ApiError."""
        configs = [Message(name=c.name, config_operation=c.operation, value=c.value) for c in changes]
        altered = Message(resource_type=resource.kind, resource_name=resource.name, configs=configs)
        request = Message(resources=[altered], validate_only=validate_only)

        async def ask() -> None:
            node = await self._node_of(resource)
            response = await self._cluster.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, node=node)
            result = response.responses[0]
            Outcome(resource.name, ErrorCode(result.error_code), result.error_message).check()

        await self.retry(ask)

    async def describe_cluster(self) -> ClusterDescription:
        async def ask() -> ClusterDescription:
            response = await self._cluster.call(
                ApiKey.DESCRIBE_CLUSTER,
                Message(include_cluster_authorized_operations=False, include_fenced_brokers=False),
            )
            Outcome("cluster", ErrorCode(response.error_code), response.error_message).check()
            brokers = (Broker(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
            return ClusterDescription(
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                brokers=tuple(sorted(brokers, key=lambda broker: broker.node_id)),
            )

        return await self.retry(ask)

    async def describe_log_dirs(self, nodes: Iterable[NodeId]) -> list[LogDirectory]:
        async def ask() -> list[LogDirectory]:
            await self._know_brokers()
            found: list[LogDirectory] = []
            for node in nodes:
                response = await self._cluster.call(ApiKey.DESCRIBE_LOG_DIRS, Message(topics=None), node=node)
                Outcome(f"broker {node}", ErrorCode(response.get("error_code", 0)), None).check()
                found.extend(_log_directory(node, row) for row in response.results)
            return found

        return await self.retry(ask)

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout_s * 1000)

    async def retry(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """Run an operation again while it ends in a transient error; that a name does not exist is none."""
        return await self._cluster.retry(
            operation, retriable=lambda code: code.retriable and code not in _FINAL_FOR_ADMIN
        )

    async def _change(
        self, api_key: ApiKey, request: Message, rows: Callable[[Message], list[Message]]
    ) -> list[Outcome]:
        async def ask() -> list[Outcome]:
            response = await self._cluster.call_controller(api_key, request)
            outcomes = [
                Outcome(row.name, ErrorCode(row.error_code), row.get("error_message")) for row in rows(response)
            ]
            for outcome in outcomes:
                if outcome.error == ErrorCode.NOT_CONTROLLER:
                    outcome.check()
            return outcomes

        return await self.retry(ask)

    async def ask_leaders(
        self,
        api_key: ApiKey,
        partitions: Iterable[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], Message],
    ) -> dict[TopicPartition, Message]:
        """Ask each partition's leader; partitions that answer with a transient error are asked again."""
        answers: dict[TopicPartition, Message] = {}
        wanted = sorted(partitions)

        async def ask() -> None:
            missing = [tp for tp in wanted if tp not in answers]
            leaders = {tp: await self._cluster.leader(tp) for tp in missing}
            transient: ApiError | None = None
            for node in sorted(set(leaders.values())):
                theirs = [tp for tp in missing if leaders[tp] == node]
                response = await self._cluster.call(api_key, request(theirs), node=node)
                for tp, row in _partition_rows(response):
                    code = ErrorCode(row.error_code)
                    if code.retriable and code not in _FINAL_FOR_ADMIN:
                        transient = ApiError(code, f"partition {tp}")
                    else:
                        answers[tp] = row
            if transient is not None:
                raise transient

        await self.retry(ask)
        return answers

    async def _node_of(self, resource: ConfigResource) -> NodeId | None:
        """A broker's own configs are known to that broker only; everything else any broker knows."""
        if resource.kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not resource.name:
            return None
        await self._know_brokers()
        return int(resource.name)

    async def _know_brokers(self) -> None:
        if not self._cluster.metadata.brokers:
            await self._cluster.refresh(topics=())


def _creatable(topic: NewTopic) -> Message:
    assignments = [
        Message(partition_index=index, broker_ids=list(nodes)) for index, nodes in (topic.assignments or {}).items()
    ]
    return Message(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if assignments else topic.partitions,
        replication_factor=BROKER_DEFAULT if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[Message(name=name, value=value) for name, value in (topic.configs or {}).items()],
    )


def by_topic(partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Message]) -> list[Message]:
    grouped = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return [Message(name=topic, partitions=[row(tp) for tp in group]) for topic, group in grouped]


def _partition_rows(response: Message) -> Iterable[tuple[TopicPartition, Message]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row


def _config_entry(row: Message) -> ConfigEntry:
    synonyms = (ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in row.get("synonyms") or ())
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=ConfigSource(row.config_source),
        read_only=row.read_only,
        sensitive=row.is_sensitive,
        synonyms=tuple(synonyms),
        documentation=row.get("documentation"),
    )


def _log_directory(node: NodeId, row: Message) -> LogDirectory:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for topic in row.topics
        for partition in topic.partitions
    }
    return LogDirectory(
        node_id=node,
        path=row.log_dir,
        error=ErrorCode(row.error_code),
        total_bytes=row.get("total_bytes", -1),
        usable_bytes=row.get("usable_bytes", -1),
        partition_sizes=sizes,
    )
