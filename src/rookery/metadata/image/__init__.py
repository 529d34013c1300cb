"""The cluster as the metadata log describes it: an immutable image, changed only by applying records.

Each kind of resource (topics, brokers, configs, ACLs, ...) has a module with its part of the image and with the code
that applies records to it. `cluster` combines them.
"""

from rookery.metadata.image.brokers import BrokerImage as BrokerImage
from rookery.metadata.image.brokers import ControllerImage as ControllerImage
from rookery.metadata.image.cluster import EMPTY_IMAGE as EMPTY_IMAGE
from rookery.metadata.image.cluster import ClusterImage as ClusterImage
from rookery.metadata.image.cluster import Delta as Delta
from rookery.metadata.image.cluster import ImageChanges as ImageChanges
from rookery.metadata.image.cluster import difference as difference
from rookery.metadata.image.configs import ConfigResource as ConfigResource
from rookery.metadata.image.topics import PartitionImage as PartitionImage
from rookery.metadata.image.topics import TopicImage as TopicImage
from rookery.metadata.image.topics import changed_partition as changed_partition
