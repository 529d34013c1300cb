"""Brokers in the metadata log: registration at each start of a node, and the features that the cluster agreed on.

A broker's epoch is the offset of its registration record. A new log begins with the level of `metadata.version`, which
says how its records are to be read, and those of the other features; a log that was begun before there was a feature
gets it with the next registration. `features` changes their levels. After an unclean stop the node's logs may have
lost their unsynced ends; every partition that it leads then begins a new leader epoch, so that clients and followers
can see where the old one ended.
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
    """The result is the broker's new epoch; `next_offset` is where the decision's first record will be."""
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
