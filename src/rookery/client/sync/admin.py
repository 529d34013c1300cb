"""`Admin` without `await`: the same methods as `rookery.client.admin.Admin`, which wait for their results.

Written by scripts/sync_admin.py from the asynchronous class: change that, and run the script. Callbacks that are given
to methods run on the clients' own thread.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rookery.base.codes import ResourceType, UpgradeType
from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, Offset, ProducerId, TimestampMs, TopicId, TopicName, TopicPartition
from rookery.client.admin.admin import Admin as AsyncAdmin
from rookery.client.admin.cluster import ClusterDescription, LogDirectory
from rookery.client.admin.configs import ConfigChange, ConfigResource, ResourceConfigs
from rookery.client.admin.features import Features
from rookery.client.admin.groups import REMOVAL_REASON, GroupDescription, GroupListing, PartitionLag, RemovedMember
from rookery.client.admin.hanging_transactions import OnProgress, Scope
from rookery.client.admin.outcomes import Outcome
from rookery.client.admin.records import DeletedRecords, EpochEnd, OffsetResult
from rookery.client.admin.topics import PARTITIONS_PER_PAGE, CreatedTopic, NewPartitions, NewTopic, TopicDetails
from rookery.client.admin.transactions import (
    TRANSACTION_TIMEOUT_MS,
    AbortTarget,
    FencedProducer,
    OpenTransaction,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from rookery.client.membership.interfaces import OffsetAndMetadata
from rookery.client.metadata import Topic
from rookery.client.metrics.names import MetricName
from rookery.client.prepared import EndOutcome, PreparedTransaction
from rookery.client.sync.loop import shared_loop
from rookery.protocol.api import VersionRange


class Admin:
    """`config` has Kafka's keys: `Admin({"bootstrap.servers": "localhost:9092"})`. Safe to use from many threads."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._admin = AsyncAdmin(config)

    def __enter__(self) -> Self:
        """Connect to one broker: that nobody is there is told at once and not retried."""
        self._loop.run(self._admin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        return self._loop.run(self._admin.describe_cluster(include_fenced=include_fenced))

    def describe_log_dirs(
        self, nodes: Iterable[NodeId] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirectory]:
        """The log directories of these brokers (None: of all), with the sizes of these partitions (None: of all)."""
        return self._loop.run(self._admin.describe_log_dirs(nodes, partitions=partitions))

    def api_versions(self, node: NodeId | None = None) -> dict[str, VersionRange]:
        """The APIs that a broker serves, by Kafka's names, and their versions."""
        return self._loop.run(self._admin.api_versions(node))

    def describe_features(self) -> Features:
        """As one broker knows them."""
        return self._loop.run(self._admin.describe_features())

    def update_features(
        self, levels: Mapping[str, int], upgrade_type: UpgradeType, *, validate_only: bool = False
    ) -> None:
        """Set levels, all of them or none. Raises ApiError."""
        self._loop.run(self._admin.update_features(levels, upgrade_type, validate_only=validate_only))

    def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """What has a configuration, of these types or of all."""
        return self._loop.run(self._admin.list_config_resources(types))

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, names: Sequence[str] | None = None, documentation: bool = False
    ) -> list[ResourceConfigs]:
        """All configs of resources, or those named; in the order asked."""
        return self._loop.run(self._admin.describe_configs(resources, names=names, documentation=documentation))

    def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Change some configs of resources and leave the others; a resource changes as a whole or not at all."""
        return self._loop.run(self._admin.alter_configs(changes, validate_only=validate_only))

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics. One whose first answer got lost is asked for again, and is then TOPIC_ALREADY_EXISTS."""
        return self._loop.run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, topics: Iterable[TopicName | TopicId]) -> list[Outcome]:
        """Delete topics, by name or by id; outcomes of ids that do not exist are named by the id."""
        return self._loop.run(self._admin.delete_topics(topics))

    def create_partitions(
        self, totals: Mapping[TopicName, int | NewPartitions], *, validate_only: bool = False
    ) -> list[Outcome]:
        """Raise topics to these total numbers of partitions."""
        return self._loop.run(self._admin.create_partitions(totals, validate_only=validate_only))

    def list_topics(self) -> list[Topic]:
        """All topics, by name."""
        return self._loop.run(self._admin.list_topics())

    def describe_topics(self, topics: Iterable[TopicName | TopicId]) -> list[Topic]:
        """In the order asked, each once; a topic that does not exist carries its error."""
        return self._loop.run(self._admin.describe_topics(topics))

    def describe_topic_partitions(
        self, topics: Iterable[TopicName] = (), *, partitions_per_page: int = PARTITIONS_PER_PAGE
    ) -> list[TopicDetails]:
        """Topics (none named: all) in great detail, by name, asked for page by page (KIP-966)."""
        return self._loop.run(self._admin.describe_topic_partitions(topics, partitions_per_page=partitions_per_page))

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[ProducerId] = (),
        running_longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactions of all coordinators, by transactional id; `id_pattern` is a regular expression (RE2)."""
        return self._loop.run(
            self._admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                id_pattern=id_pattern,
            )
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """In the order asked; an id that its coordinator does not know carries TRANSACTIONAL_ID_NOT_FOUND."""
        return self._loop.run(self._admin.describe_transactions(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, node: NodeId | None = None
    ) -> dict[TopicPartition, PartitionProducers]:
        """The producers that partitions' leaders, or another broker with replicas, remember."""
        return self._loop.run(self._admin.describe_producers(partitions, node=node))

    def open_transactions(
        self, partitions: Iterable[TopicPartition], *, node: NodeId | None = None
    ) -> list[OpenTransaction]:
        """Those of `describe_producers` that are in a transaction, by partition and start. Raises ApiError."""
        return self._loop.run(self._admin.open_transactions(partitions, node=node))

    def abort_transaction(self, target: AbortTarget) -> None:
        """End a transaction on one partition only, whatever its coordinator knows. Raises ApiError."""
        self._loop.run(self._admin.abort_transaction(target))

    def end_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> EndOutcome:
        """Commit or abort what a producer prepared. May be repeated, also after an answer that got lost.

        Returns when the outcome is certain; readers see it soon after. Raises ApiError where there is no telling.
        """
        return self._loop.run(self._admin.end_transaction(prepared, commit=commit))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> list[FencedProducer]:
        """Lock the producers of transactional ids out, and abort their transactions; returns when that is done.

        A transactional id that does not exist comes into being. From now on `timeout_ms` is its time-out.
        """
        return self._loop.run(self._admin.fence_producers(transactional_ids, timeout_ms=timeout_ms))

    def partitions_in(self, scope: Scope) -> list[TopicPartition]:
        """What there is to look at. Raises ApiError where the topic, the partition or the broker does not exist."""
        return self._loop.run(self._admin.partitions_in(scope))

    def find_hanging_transactions(
        self,
        partitions: Sequence[TopicPartition],
        *,
        longer_than_ms: int,
        now_ms: TimestampMs,
        node: NodeId | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[OpenTransaction]:
        """Asks `node`, else leaders; a transaction is suspect that has written nothing for `longer_than_ms`."""
        return self._loop.run(
            self._admin.find_hanging_transactions(
                partitions, longer_than_ms=longer_than_ms, now_ms=now_ms, node=node, on_progress=on_progress
            )
        )

    def list_offsets(
        self, wanted: Mapping[TopicPartition, TimestampMs], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetResult]:
        """Offsets by timestamp, or by LATEST, EARLIEST, MAX_TIMESTAMP; asked of each partition's leader."""
        return self._loop.run(self._admin.list_offsets(wanted, read_committed=read_committed))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Without the partitions that do not exist or have no leader."""
        return self._loop.run(self._admin.end_offsets(partitions))

    def delete_records(self, before: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, DeletedRecords]:
        """Delete what lies below these offsets; -1 means everything up to the high watermark."""
        return self._loop.run(self._admin.delete_records(before))

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, EpochEnd]:
        """Where leaders' epochs end in partitions: how to tell whether a log was truncated."""
        return self._loop.run(self._admin.epoch_ends(epochs))

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, by name; every state and type if none is named."""
        return self._loop.run(self._admin.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """In the order asked; a group that does not exist carries GROUP_ID_NOT_FOUND."""
        return self._loop.run(self._admin.describe_groups(group_ids))

    def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that the group committed, or what it committed for these partitions; empty where there is nothing.

        With `require_stable`, offsets that an open transaction is about to commit are waited for.
        """
        return self._loop.run(self._admin.committed_offsets(group_id, partitions, require_stable=require_stable))

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, ErrorCode]:
        """Set a group's offsets from outside, which only works while it has no members."""
        return self._loop.run(self._admin.commit_offsets(group_id, offsets))

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Forget what was committed for partitions of topics that no member subscribes to."""
        return self._loop.run(self._admin.delete_offsets(group_id, partitions))

    def delete_groups(self, group_ids: Iterable[str]) -> list[Outcome]:
        """Delete groups that have no members, with their offsets."""
        return self._loop.run(self._admin.delete_groups(group_ids))

    def remove_members(
        self,
        group_id: str,
        *,
        member_ids: Collection[str] | None = None,
        instance_ids: Collection[str] = (),
        reason: str = REMOVAL_REASON,
    ) -> list[RemovedMember]:
        """Remove members from a group, dynamic ones by their ids and static ones by their instance ids; if neither is
        given, all. A removed member that is alive joins again."""
        return self._loop.run(
            self._admin.remove_members(group_id, member_ids=member_ids, instance_ids=instance_ids, reason=reason)
        )

    def lags(self, group_id: str, assigned: Iterable[TopicPartition] = ()) -> list[PartitionLag]:
        """Committed and end offsets of all partitions that the group committed or was assigned."""
        return self._loop.run(self._admin.lags(group_id, assigned))

    def metrics(self) -> dict[MetricName, float]:
        """Kafka's names; see `rookery.client.metrics`. None of an admin over another's cluster."""
        return self._loop.call(self._admin.metrics)

    def close(self) -> None:
        """End all requests. More than once is no error."""
        self._loop.run(self._admin.close())
