"""Which replicas of a partition cannot serve: the field `offline_replicas` of responses about topics."""

from collections.abc import Container

from rookery.base.types import NodeId
from rookery.metadata.image import ClusterImage, PartitionImage


def offline_replicas(image: ClusterImage, partition: PartitionImage, live: Container[NodeId]) -> list[NodeId]:
    """Return the replicas on brokers that are not `live`, and those in log directories that are offline."""
    replicas, directories = partition.replicas, partition.directories
    if len(directories) != len(replicas):
        return [node_id for node_id in replicas if node_id not in live]
    return [
        node_id
        for node_id, directory in zip(replicas, directories, strict=True)
        if node_id not in live or not image.brokers[node_id].has_directory(directory)
    ]
