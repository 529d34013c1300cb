"""Metrics of the quorum, the controller and the cluster's metadata."""

from collections.abc import Iterator
from typing import Final

from rookery.base.codes import RecoveryState
from rookery.metadata.features import METADATA_VERSION
from rookery.metadata.image import ClusterImage, Delta, PartitionImage
from rookery.metadata.publisher import MetadataPublisher
from rookery.quorum.driver import QuorumDriver
from rookery.telemetry import names
from rookery.telemetry.measurements import Family, single

_NO_NODE: Final = -1


class UncleanElections:
    """Counts the leaders that were elected although they were not in sync, while this node is the active controller."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, image: ClusterImage, delta: Delta) -> None:
        """Follow the metadata: such a leader recovers until it has confirmed its state."""
        for topic_id, changed in delta.changed.items():
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                self.count += sum(_is_recovering(topic.partitions[index]) for index in changed)


def _is_recovering(partition: PartitionImage) -> bool:
    return partition.recovery_state == RecoveryState.RECOVERING and partition.leader >= 0


def quorum_families(quorum: QuorumDriver) -> Iterator[Family]:
    status = quorum.status
    yield single(names.RAFT_LEADER, _NO_NODE if quorum.leader_id is None else quorum.leader_id)
    yield single(names.RAFT_EPOCH, quorum.leader_epoch)
    yield single(names.RAFT_VOTE, _NO_NODE if status.voted is None else status.voted)
    yield single(names.RAFT_STATE, status.state)
    yield single(names.RAFT_HIGH_WATERMARK, quorum.high_watermark)
    yield single(names.RAFT_END, quorum.next_offset)
    yield single(names.RAFT_END_EPOCH, status.last_epoch)
    yield single(names.RAFT_VOTERS, len(quorum.voters))
    yield single(names.COMMITTED_OFFSET, quorum.high_watermark - 1)


def metadata_families(metadata: MetadataPublisher, quorum: QuorumDriver) -> Iterator[Family]:
    image = metadata.image
    yield single(names.METADATA_OFFSET, image.offset)
    yield single(names.APPLIED_OFFSET, image.offset)
    yield single(names.METADATA_LEVEL, image.features.get(METADATA_VERSION, 0))
    yield single(names.CONTROLLER_ID, _NO_NODE if quorum.leader_id is None else quorum.leader_id)


def controller_families(image: ClusterImage, *, is_active: bool, unclean_elections: int) -> Iterator[Family]:
    """Return what Kafka's controllers report. Only the active one counts: the others report 0."""
    yield single(names.ACTIVE_CONTROLLER, int(is_active))
    yield single(names.UNCLEAN_ELECTIONS, unclean_elections)
    if not is_active:
        for definition in (names.OFFLINE_PARTITIONS, names.IMBALANCE):
            yield single(definition, 0)
        return
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    serving = [broker for broker in image.brokers.values() if not broker.fenced]
    yield single(names.ACTIVE_BROKERS, len(serving))
    yield single(names.FENCED_BROKERS, len(image.brokers) - len(serving))
    yield single(names.TOPIC_COUNT, len(image.topics))
    yield single(names.ALL_PARTITIONS, len(partitions))
    yield single(names.OFFLINE_PARTITIONS, sum(each.leader < 0 for each in partitions))
    yield single(names.IMBALANCE, sum(each.leader != each.replicas[0] for each in partitions))
    yield single(names.EXPORTER_BROKERS, len(serving))
    yield Family(
        names.EXPORTER_BROKER_INFO,
        [
            ((("id", str(broker.broker_id)), ("address", f"{broker.endpoints[0].host}:{broker.endpoints[0].port}")), 1)
            for broker in serving
            if broker.endpoints
        ],
    )
    yield Family(
        names.EXPORTER_PARTITIONS,
        [((("topic", topic.name),), len(topic.partitions)) for topic in image.topics.values()],
    )
