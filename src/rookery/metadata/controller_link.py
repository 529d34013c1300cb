"""The way from any node to the active controller, for the requests that nodes send themselves.

Brokers register, send heartbeats, alter partitions, allocate producer ids and create topics through a `ControllerLink`.
`broker.controller_link` implements it: in process if this node is the active controller, else over a channel.
"""

from collections.abc import Sequence
from typing import Protocol

from rookery.base.types import NodeId
from rookery.metadata.requests import CreatedTopic, NewTopic, ProducerIdBlock
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT


class ControllerLink(Protocol):
    """Sends requests to the active controller, whichever node it is."""

    async def send(self, api_key: ApiKey, request: Request[ResponseT], *, timeout_s: float) -> ResponseT:
        """Send a request and return the response of the active controller.

        Waits and sends again while there is no active controller, the connection fails, or the response's top-level
        error code is NOT_CONTROLLER: the request may then be handled twice. Raises ApiError with REQUEST_TIMED_OUT
        after `timeout_s`, and with UNSUPPORTED_VERSION if the controller serves no common version.
        """
        ...


class BrokerRequests(Protocol):
    """The requests that a broker makes for its clients and coordinators, as calls.

    The active controller implements it for its own node; on other nodes, and on all nodes of a cluster,
    `broker.remote_controller` does. A failure is an outcome, never an exception.
    """

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        """Create topics; returns when this node serves those that were created."""
        ...

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock: ...
