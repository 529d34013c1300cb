"""Registration of brokers, at each start of a node, and the first levels of the cluster's features.

A broker's epoch is the offset of its registration record. A new metadata log begins with the level of
`metadata.version`, which determines the format of its records, and the levels of the other features. A log that is
older than a feature gets it with the next registration. `features` changes the levels later.

After an unclean shutdown the node's logs may have lost their unsynced ends. Every partition that the node leads then
begins a new leader epoch, so that clients and followers can see where the old one ended. Without it, new records would
get the offsets and the epoch of lost ones, and a consumer that had read the lost ones would not notice.
"""

from collections.abc import Iterator

from rookery.base.types import NodeId, Offset
from rookery.controller.decision import ControllerResult
from rookery.metadata.features import SUPPORTED_FEATURES
from rookery.metadata.image import ClusterImage
from rookery.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from rookery.metadata.requests import Registration


def decide_register_broker(
    image: ClusterImage, registration: Registration, *, next_offset: Offset
) -> ControllerResult[int]:
    """Return the broker's new epoch as the result. `next_offset` is the offset of the decision's first record."""
    records: list[MetadataRecord] = [
        FeatureLevelRecord(feature.name, feature.max_supported_version)
        for feature in SUPPORTED_FEATURES
        if feature.name not in image.features
    ]
    broker_epoch = next_offset + len(records)
    records.append(
        RegisterBrokerRecord(
            broker_id=registration.node_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=broker_epoch,
            endpoints=registration.endpoints,
            features=SUPPORTED_FEATURES,
            rack=registration.rack,
            fenced=False,
            log_directories=registration.log_directories,
        )
    )
    if not registration.clean:
        records += _new_leader_epochs(image, registration.node_id)
    return ControllerResult(tuple(records), broker_epoch)


def _new_leader_epochs(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            if partition.leader == node_id:
                yield PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, leader=node_id)
