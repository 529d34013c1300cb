"""A real broker or cluster for tests: `with EmbeddedBroker() as broker: connect_to(broker.bootstrap_servers)`."""

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.testing.cluster import EmbeddedCluster
from rookery.testing.embedded import EmbeddedBroker
from rookery.testing.faults import Fault, Faults

__all__ = ["ApiKey", "EmbeddedBroker", "EmbeddedCluster", "ErrorCode", "Fault", "Faults"]
