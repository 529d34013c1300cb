"""The cluster as the metadata log describes it: an immutable image, changed only by applying records.

One module for each kind of thing: what an image holds of it, and how records change it. `cluster` puts them together.
"""

from rookery.metadata.image.brokers import BrokerImage as BrokerImage
from rookery.metadata.image.cluster import EMPTY_IMAGE as EMPTY_IMAGE
from rookery.metadata.image.cluster import ClusterImage as ClusterImage
from rookery.metadata.image.cluster import Delta as Delta
from rookery.metadata.image.configs import ConfigResource as ConfigResource
from rookery.metadata.image.topics import PartitionImage as PartitionImage
from rookery.metadata.image.topics import TopicImage as TopicImage
