"""Sends fetch requests, for `fetcher` and `ranges`, and holds the values in which `fetcher` tracks its requests."""

import asyncio
from typing import Final, NamedTuple, Protocol

from rookery.base.errors import ProtocolError
from rookery.base.types import NodeId, TopicPartition
from rookery.client.consume.subscription import FetchPosition
from rookery.net.channel import Channel
from rookery.protocol.api import ApiKey
from rookery.protocol.fetch import FetchRequest, FetchResponse, decode_fetch_response, encode_fetch_request
from rookery.protocol.fetch_session import FetchSession, SessionRow

# The `replica_id` of a request that does not come from a broker.
CONSUMER_REPLICA_ID: Final = -1
_LAST_VERSION_BY_NAME: Final = 12


class FetchMetrics(Protocol):
    """The methods of `metrics.consumer.ConsumerMetrics` that `fetcher` calls."""

    def fetch(self, latency_s: float, throttle_time_ms: int) -> None: ...

    def fetched(self, tp: TopicPartition, records: int, size_bytes: int) -> None: ...

    def lag(self, tp: TopicPartition, lag: int) -> None: ...

    def lead(self, tp: TopicPartition, lead: int) -> None: ...

    def read_replica(self, tp: TopicPartition, node: NodeId | None) -> None: ...

    def forget(self, tp: TopicPartition) -> None: ...


class RequestedPosition(NamedTuple):
    """The state of a partition when it was requested: a reply counts only while both are unchanged."""

    generation: int
    position: FetchPosition


class FetchPlan(NamedTuple):
    """One fetch request to one broker. A peek (`is_peek`) returns immediately, with or without data."""

    node: NodeId
    requested: dict[TopicPartition, RequestedPosition]
    rows: dict[TopicPartition, SessionRow]
    is_peek: bool


class BrokerState:
    """The state of fetching from one broker."""

    __slots__ = ("abandon_at_s", "attempts", "is_abandoned", "lane", "long_poll", "retry_at_s", "session", "task")

    def __init__(self) -> None:
        self.session = FetchSession()
        # The request in flight, if the broker may hold it for fetch.max.wait.ms until there is data.
        self.long_poll: FetchPlan | None = None
        self.is_abandoned = False
        # The earliest time to abandon a long poll: until then, the broker may still hold an abandoned request on the
        # other connection.
        self.abandon_at_s = 0.0
        self.lane = 0
        self.task: asyncio.Task[None] | None = None
        self.attempts = 0
        self.retry_at_s = 0.0


async def exchange_fetch(
    connection: Channel, request: FetchRequest, *, by_topic_id: bool, timeout_s: float
) -> FetchResponse:
    """Send a request and return the decoded response. Raises ApiError if there is none, or if it is malformed.

    If `by_topic_id` is false, the version is one that identifies topics by name.
    """
    version = connection.version(ApiKey.FETCH)
    if not by_topic_id:
        version = min(version, _LAST_VERSION_BY_NAME)
    body = encode_fetch_request(version, request)
    response = await connection.exchange(ApiKey.FETCH, version, [body], timeout_s=timeout_s)
    try:
        return decode_fetch_response(version, response)
    except ProtocolError as error:
        raise connection.reject_response(error) from None
