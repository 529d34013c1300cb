"""A cluster image as metadata records: what a snapshot of the metadata log holds. Pure.

Applying the records to the empty image gives an image that is equal, apart from its offset, which is in the name of the
snapshot's file. The order is Kafka's: features first, `metadata.version` before the others, because it says how all
later records are to be read; a topic before its partitions, because a partition of an unknown topic is an error.
"""

from collections.abc import Iterator

from rookery.metadata.features import METADATA_VERSION, METADATA_VERSION_LEVEL
from rookery.metadata.image import BrokerImage, ClusterImage, ControllerImage, TopicImage
from rookery.metadata.image.acls import acl_record
from rookery.metadata.image.quotas import quota_record
from rookery.metadata.image.scram import scram_record
from rookery.metadata.image.tokens import token_record
from rookery.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    encode_record,
)

# A snapshot does not say to which broker the last block of producer ids went, as in Kafka.
_NO_BROKER = -1


def snapshot_values(image: ClusterImage) -> Iterator[bytes]:
    """Yield the encoded records of `image`, in an order in which they can be replayed."""
    metadata_version = image.features.get(METADATA_VERSION, METADATA_VERSION_LEVEL)
    for record in snapshot_records(image):
        yield encode_record(record, metadata_version=metadata_version)


def snapshot_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Yield the records of `image`, in an order in which they can be replayed."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name, image.features[name])
    yield from map(_broker_record, image.brokers.values())
    yield from map(_controller_record, image.controllers.values())
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.topic_id)
        yield from _partition_records(topic)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource.type, resource.name, name, value)
    for entity, quotas in image.client_quotas.items():
        for name, quota in quotas.items():
            yield quota_record(entity, name, quota)
    if image.next_producer_id:
        yield ProducerIdsRecord(_NO_BROKER, _NO_BROKER, image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    for key, credential in image.scram.items():
        yield scram_record(key, credential)
    yield from map(token_record, image.tokens.values())


def _broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        endpoints=broker.endpoints,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_directories=broker.log_directories,
        cordoned_directories=broker.cordoned_directories,
    )


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        endpoints=controller.endpoints,
        features=controller.features,
    )


def _partition_records(topic: TopicImage) -> Iterator[PartitionRecord]:
    for partition in topic.partitions.values():
        yield PartitionRecord(
            partition_id=partition.index,
            topic_id=topic.topic_id,
            replicas=partition.replicas,
            isr=partition.isr,
            removing_replicas=partition.removing_replicas,
            adding_replicas=partition.adding_replicas,
            leader=partition.leader,
            leader_recovery_state=partition.recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=partition.directories,
            elr=partition.elr or None,
            last_known_elr=partition.last_known_elr or None,
        )
